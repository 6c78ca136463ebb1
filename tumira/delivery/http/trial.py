"""Trials of a carrier over HTTP: whether it knows us, and a message that is followed to its receipt."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from tumira.carriers.http.access import callback_url, open_carrier
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.values import LookFailure, OutgoingMessage, SubmitAnswer
from tumira.carriers.store import Carrier
from tumira.core.errors import OperatorError
from tumira.core.translation import _
from tumira.delivery.http.client import (
    DEFAULT_TIMEOUTS,
    AccessDeniedError,
    CarrierClient,
    HttpTimeouts,
)
from tumira.delivery.http.connections import AnswerLostError, RequestNotSentError
from tumira.delivery.http.link import new_reference
from tumira.delivery.receipt_rules import receipt_result
from tumira.delivery.store import receipts, references
from tumira.postgres.pool import Database
from tumira.pricing.segments import Encoding, measure

LOOK_S: Final = 2.0
VALIDITY_S: Final = 3600

_FAILED: Final = (AccessDeniedError, AnswerLostError, RequestNotSentError)


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """A carrier that knows us, and the credit left if it tells."""

    answer_ms: float
    balance: Decimal | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class TrialMessage:
    """What a carrier made of a message; `state` is what its receipt says, None without one."""

    answer: SubmitAnswer
    answer_ms: float
    state: str | None


@asynccontextmanager
async def _calling(
    carrier: Carrier, timing: HttpTimeouts, proxy: str | None
) -> AsyncIterator[tuple[HttpCarrier, CarrierClient]]:
    assert carrier.http is not None
    http = open_carrier(carrier.http)
    client = CarrierClient(http, 1, timing, proxy)
    try:
        yield http, client
    except _FAILED as error:
        text = _("{carrier} could not be used: {problem}.")
        raise OperatorError(text.format(carrier=carrier.http.url, problem=error)) from None
    finally:
        await client.close()


async def check_access(
    carrier: Carrier, *, proxy: str | None = None, timing: HttpTimeouts = DEFAULT_TIMEOUTS
) -> AccessCheck:
    """Ask a carrier for the credit left, or for a token; OperatorError says in one line why that failed."""
    async with _calling(carrier, timing, proxy) as (http, client):
        began = time.monotonic()
        if not http.has_balance:
            if not http.has_token:
                raise OperatorError(
                    _("This provider can be tried with a message only: run `tumira carrier test` with --to.")
                )
            await client.find_token()
            return AccessCheck(_since_ms(began))
        answer = await client.call(http.balance_request)
        balance = http.read_balance(answer)
        if balance is None:
            text = _("The provider answered with HTTP {status}. Check the URL, the settings and the secrets.")
            raise OperatorError(text.format(status=answer.status))
        return AccessCheck(_since_ms(began), balance.amount, balance.currency or None)


async def send_trial(
    database: Database,
    carrier: Carrier,
    to: str,
    text: str,
    *,
    public_url: str,
    wait_s: float,
    proxy: str | None = None,
    timing: HttpTimeouts = DEFAULT_TIMEOUTS,
) -> TrialMessage:
    """Send a message that belongs to no account, and wait for its receipt."""
    assert carrier.http is not None
    async with database.connection() as connection:
        sequence = await references.next_sequence(connection)
    async with _calling(carrier, timing, proxy) as (http, client):
        message = OutgoingMessage(
            recipient=to,
            text=text,
            sender=carrier.settings.source,
            reference=new_reference(),
            sequence=sequence,
            unicode=measure(text).encoding is not Encoding.GSM_7,
            validity_s=min(VALIDITY_S, http.max_validity_s or VALIDITY_S),
            callback_url=callback_url(public_url, carrier.http),
            at=datetime.now(UTC),
        )
        began = time.monotonic()
        answer = http.read_submit(
            await client.call(lambda token: http.submit_request(message, token)), message
        )
        took_ms = _since_ms(began)
        state = None
        deadline = began + wait_s
        while answer.carrier_ref and time.monotonic() < deadline:
            state = await _find_state(
                database, carrier.id, http, client, answer.carrier_ref, message.reference
            )
            if state is not None:
                break
            await asyncio.sleep(min(LOOK_S, wait_s / 10))
        return TrialMessage(answer, took_ms, state)


async def _find_state(
    database: Database,
    carrier_id: int,
    http: HttpCarrier,
    client: CarrierClient,
    carrier_ref: str,
    reference: str,
) -> str | None:
    """Return the final state of a message, from a callback or from the carrier itself."""
    async with database.connection() as connection:
        states = await receipts.list_states(connection, carrier_id, carrier_ref)
    if http.looks_by_id or http.looks_by_reference:
        answer = await client.call(lambda token: http.look_request(carrier_ref, reference, token))
        looked = http.read_look(answer, carrier_ref, reference)
        states = [*states, *(() if isinstance(looked, LookFailure) else (one.state for one in looked))]
    return next((state for state in states if receipt_result(state, None).status is not None), None)


def _since_ms(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)
