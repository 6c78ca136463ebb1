"""Messages composed in the dashboard: reviewed with their price, and sent exactly once."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import sha256

from msgspec import Struct

from tumira.accounts import store as accounts
from tumira.accounts.api_keys import Scope
from tumira.content import template_store
from tumira.content.check import check_text, classify_early
from tumira.core import money
from tumira.core.errors import (
    AccountSuspended,
    FieldCode,
    InsufficientBalance,
    Refusal,
    TooManyRecipients,
    ValidationFailed,
)
from tumira.core.ids import AccountId
from tumira.postgres.pool import Database
from tumira.pricing.destinations import RECIPIENTS_MAX, Sorted, Tariff, sort_recipients
from tumira.pricing.gsm7 import is_blank
from tumira.pricing.phone_numbers import CHANNEL, Entry, country_of, explain, read_recipients
from tumira.pricing.quote import REFERENCE_MAX, Quote, ValidRequest, quote
from tumira.pricing.store import get_tariff
from tumira.sending.batcher import Batcher
from tumira.sending.types import Answered, Call, IdempotencyKey, InvalidSend, Priced, Refused, Send


class Draft(Struct, frozen=True):
    recipients: str
    message: str
    reference: str


class Review(Struct, frozen=True):
    """The review of a draft; without refusals it can be sent, and has a quote."""

    tariff: Tariff
    entries: Sequence[Entry]
    quote: Quote | None
    refusals: Sequence[Refusal]

    @property
    def rejected(self) -> Sequence[tuple[str, str]]:
        """Return the rejected entries as typed, and why; none if there are too many entries."""
        if len(self.entries) > RECIPIENTS_MAX:
            return ()
        written = {entry.number: entry.written for entry in reversed(self.entries)}
        return [(written[one.to], explain(self.tariff, one.to, one.code)) for one in self._sorted.rejected]

    @property
    def segment_cost(self) -> Decimal:
        """Return the cost of one segment to all accepted recipients."""
        return sum((one.price_usd for one in self._sorted.accepted), Decimal(0))

    @property
    def _sorted(self) -> Sorted:
        return sort_recipients(self.tariff, CHANNEL, [entry.number for entry in self.entries])


async def read_aside(tariff: Tariff, text: str, phone: str) -> Sequence[Entry]:
    """Find the numbers in a thread: the largest form takes half a second.

    Local numbers are completed for the country of the account's own number.
    """
    return await asyncio.to_thread(read_recipients, tariff, text, country_of(tariff, phone))


async def review(
    database: Database,
    batcher: Batcher,
    account_id: AccountId,
    draft: Draft,
    *,
    balance: Decimal,
    suspended: bool,
) -> Review:
    """Collect every refusal of a draft, and price it if possible."""
    found = await examine(database, account_id, draft)
    refusals = list(found.refusals)
    if suspended:
        refusals.append(AccountSuspended())
    if found.quote is not None and found.quote.total_cost > balance:
        refusals.append(InsufficientBalance.of(found.quote.total_cost, balance))
    if not refusals:
        refusals.extend(await _dry_run(batcher, account_id, found.entries, draft))
    return Review(found.tariff, found.entries, found.quote, refusals)


async def examine(database: Database, account_id: AccountId, draft: Draft) -> Review:
    """Collect what is wrong with a draft itself."""
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
        policy = await template_store.get_policy(connection)
        account = await accounts.find(connection, account_id)
    assert account is not None
    entries = await read_aside(tariff, draft.recipients, account.phone)
    faults = _faults(entries, draft)
    refusals: list[Refusal] = []
    priced = quote(tariff, _request(entries, draft))
    if isinstance(priced, TooManyRecipients):
        refusals.append(priced)
    # Checked separately, so that a fault of the recipients does not hide one of the text.
    too_long = quote(tariff, _request([], draft))
    if isinstance(too_long, Refusal):
        refusals.append(too_long)
    elif not is_blank(draft.message):
        rejected = check_text(policy, account_id, draft.message)
        refusals.extend([] if rejected is None else [rejected])
    if isinstance(priced, Quote) and entries and not priced.numbers:
        faults.append(_fault("to", FieldCode.INVALID_VALUE))
    if faults:
        refusals.append(ValidationFailed(details=faults))
    return Review(tariff, entries, priced if isinstance(priced, Quote) else None, refusals)


def _faults(entries: Sequence[Entry], draft: Draft) -> list[Mapping[str, str]]:
    faults: list[Mapping[str, str]] = []
    if not entries:
        faults.append(_fault("to", FieldCode.EMPTY))
    if is_blank(draft.message):
        faults.append(_fault("body", FieldCode.EMPTY))
    if len(draft.reference) > REFERENCE_MAX:
        faults.append(_fault("reference", FieldCode.TOO_LONG))
    return faults


def _fault(field: str, code: FieldCode) -> Mapping[str, str]:
    return {"field": field, "code": code.value}


def _request(entries: Sequence[Entry], draft: Draft, *, dry_run: bool = False) -> ValidRequest:
    return ValidRequest(
        CHANNEL, [entry.number for entry in entries], draft.message, draft.reference or None, dry_run
    )


async def _dry_run(
    batcher: Batcher, account_id: AccountId, entries: Sequence[Entry], draft: Draft
) -> Sequence[Refusal]:
    """Make a dry run for limits that only the transaction knows, such as the day's spending."""
    verdict = classify_early(draft.message)
    request = _request(entries, draft, dry_run=True)
    decision = await batcher.ask(Call(account_id, None, Scope.SEND, Send(request, verdict=verdict)))
    return [decision.refusal] if isinstance(decision, Refused) else []


def write_terms(priced: Quote) -> str:
    """Write the terms that the customer confirms, so that they can be compared afterwards."""
    legs = "".join(f"; {leg.count} to {leg.country} at {money.write(leg.cost)}" for leg in priced.legs)
    return f"{money.write(priced.total_cost)}{legs}; {len(priced.rejected)} rejected"


async def send(
    batcher: Batcher, account_id: AccountId, token: str, draft: Draft, review: Review
) -> str | Refusal:
    """Send a draft and return its batch's id, the same for every call with this token.

    `ValidationFailed` if the cost is no longer the reviewed one; then nothing was sent.
    """
    assert review.quote is not None
    asked = Send(
        _request(review.entries, draft),
        _idempotency(token, draft),
        classify_early(draft.message),
        agreed_cost=review.quote.total_cost,
    )
    return await _ask(batcher, account_id, asked)


async def find_sent(batcher: Batcher, account_id: AccountId, token: str, draft: Draft) -> str | Refusal:
    """Return the batch that was sent earlier with this token; `ValidationFailed` if there is none."""
    # An earlier answer comes before the refusal of an invalid send.
    return await _ask(batcher, account_id, InvalidSend(ValidationFailed(), _idempotency(token, draft)))


async def _ask(batcher: Batcher, account_id: AccountId, asked: Send | InvalidSend) -> str | Refusal:
    decision = await batcher.ask(Call(account_id, None, Scope.SEND, asked))
    if isinstance(decision, Refused):
        return decision.refusal
    if isinstance(decision, Priced):
        return ValidationFailed()
    assert isinstance(decision, Answered)
    return str(json.loads(decision.response)["batch_id"])


def _idempotency(token: str, draft: Draft) -> IdempotencyKey:
    # Drafts are compared by what was typed, because its meaning depends on the tariff.
    typed = [draft.recipients, draft.message, draft.reference]
    fingerprint = sha256(json.dumps(typed, separators=(",", ":")).encode()).digest()
    return IdempotencyKey(write_key(token), fingerprint)


def write_key(token: str) -> str:
    """Write the Idempotency-Key of a token."""
    return f"dashboard:{token}"
