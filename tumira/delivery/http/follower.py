"""Asks a carrier over HTTP for outcomes of messages and the credit left, one call at a time.

The worker that holds the first link to a carrier follows it. With nothing to ask, a look is one statement.
"""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import structlog
from msgspec import structs

from tumira.carriers import http_store as http_carriers
from tumira.carriers.http.access import poll_ages
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.values import CarrierReport, LookFailure
from tumira.carriers.store import Carrier
from tumira.core import metrics
from tumira.core.loops import forever
from tumira.delivery.http.client import (
    AccessDeniedError,
    CarrierClient,
    HttpTimeouts,
)
from tumira.delivery.http.connections import AnswerLostError, RequestNotSentError
from tumira.delivery.http.resolve_doubts import resend_unknown
from tumira.delivery.http.take_reports import take_reports
from tumira.delivery.observer import Observer
from tumira.delivery.store import references
from tumira.delivery.store.references import DueDoubt, DueQuestion
from tumira.postgres.pool import Database
from tumira.sending.lifecycle import is_final

ASKED_MAX: Final = 20
# A question that was taken up and not finished is asked again after this.
LEASE_S: Final = 120.0
# Before a doubt is asked about again after an answer that says nothing.
UNREADABLE_S: Final = 60.0

_FAILED: Final = (AccessDeniedError, AnswerLostError, RequestNotSentError)

_log: Final = structlog.get_logger()


class HttpFollower:
    def __init__(
        self,
        database: Database,
        carrier: Carrier,
        http: HttpCarrier,
        client: CarrierClient,
        timing: HttpTimeouts,
        observer: Observer,
    ) -> None:
        self._database = database
        self._carrier = carrier
        self._http = http
        self._client = client
        self._timing = timing
        self._observer = observer
        self._ages = poll_ages(http)
        self._balance_due = 0.0
        # The credit left that the last answer to a submit told, until it is stored.
        self._told: Decimal | None = None
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(
            forever("ask a carrier", self._step, timing.ask_s, carrier=carrier.name)
        )

    def note_balance(self, amount: Decimal) -> None:
        """Take the credit left from the answer to a submit; it is stored from time to time."""
        self._told = amount

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _step(self) -> float | None:
        asked = 0
        if self._ages:
            asked += await self._ask_due()
        if self._carrier.settings.in_doubt == "look":
            asked += await self._ask_about_doubts()
        if self._loop.time() >= self._balance_due and (self._http.has_balance or self._told is not None):
            self._balance_due = self._loop.time() + self._timing.balance_s
            await (self._ask_balance() if self._http.has_balance else self._store_told())
        return 0.0 if asked >= ASKED_MAX else None

    async def _ask_due(self) -> int:
        async with self._database.transaction() as connection:
            due = await references.claim_due(connection, self._carrier.id, ASKED_MAX, LEASE_S)
        for question in due:
            await self._ask(question)
        return len(due)

    async def _ask(self, question: DueQuestion) -> None:
        is_over = question.status is None or (is_final(question.status) and question.status != "unconfirmed")
        reports: Sequence[CarrierReport] = ()
        # A report can come before the answer is recorded: then the message is known by our reference alone.
        if not is_over and (question.carrier_ref is not None or self._http.looks_by_reference):
            looked = await self._look(question.carrier_ref, question.reference)
            reports = () if isinstance(looked, LookFailure) else looked
        if reports:
            is_over = await self._take(reports)
        age_s = None if is_over else next(iter(self._ages[question.polls + 1 :]), None)
        async with self._database.transaction() as connection:
            await references.ask_later(connection, self._carrier.id, question.reference, age_s)

    async def _look(self, carrier_ref: str | None, reference: str) -> Sequence[CarrierReport] | LookFailure:
        try:
            answer = await self._client.call(
                lambda token: self._http.look_request(carrier_ref, reference, token)
            )
        except _FAILED as error:
            _log.warning("carrier could not be asked", carrier=self._carrier.name, problem=str(error))
            return LookFailure.UNREADABLE
        looked = self._http.read_look(answer, carrier_ref, reference)
        if isinstance(looked, LookFailure):
            return looked
        # Whatever it calls it, this is what we asked for.
        return [structs.replace(report, reference=reference) for report in looked]

    async def _take(self, reports: Sequence[CarrierReport]) -> bool:
        """Settle by what the carrier said, and tell whether that ended the message."""
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            taken = await take_reports(connection, self._carrier, reports, now)
        self._observer.ended(self._carrier.id, taken.endings)
        metrics.RECEIPTS.labels(self._carrier.name, "matched").inc(taken.matched)
        return bool(taken.endings)

    async def _ask_about_doubts(self) -> int:
        async with self._database.connection() as connection:
            due = await references.list_doubts(connection, self._carrier.id, ASKED_MAX)
        for doubt in due:
            await self._resolve(doubt)
        return len(due)

    async def _resolve(self, doubt: DueDoubt) -> None:
        looked: Sequence[CarrierReport] | LookFailure = LookFailure.UNREADABLE
        if doubt.reference is not None:
            looked = await self._look(None, doubt.reference)
        if looked is LookFailure.NOT_FOUND:
            async with self._database.transaction() as connection:
                await resend_unknown(connection, self._carrier.id, [doubt.message_id])
        elif isinstance(looked, LookFailure) or not looked:
            async with self._database.transaction() as connection:
                await references.postpone_doubts(connection, [doubt.message_id], UNREADABLE_S)
        else:
            await self._take(looked)

    async def _store_told(self) -> None:
        if self._told is not None:
            amount, self._told = self._told, None
            async with self._database.connection() as connection:
                await http_carriers.set_balance(connection, self._carrier.id, amount, "")

    async def _ask_balance(self) -> None:
        try:
            answer = await self._client.call(self._http.balance_request)
        except _FAILED as error:
            _log.warning("balance not known", carrier=self._carrier.name, problem=str(error))
            return
        balance = self._http.read_balance(answer)
        if balance is None:
            _log.warning("balance not known", carrier=self._carrier.name, status=answer.status)
            return
        async with self._database.connection() as connection:
            await http_carriers.set_balance(connection, self._carrier.id, balance.amount, balance.currency)
