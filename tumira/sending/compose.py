"""Messages composed in the dashboard: reviewed with their price, and sent exactly once."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Final

from msgspec import Struct, structs
from structlog.contextvars import get_contextvars

from tumira.accounts import message_settings
from tumira.accounts import store as accounts
from tumira.accounts.api_keys import Scope
from tumira.accounts.store import Account
from tumira.audit_log import Actor
from tumira.content import template_store
from tumira.content.check import check_text, classify_early
from tumira.core import money
from tumira.core.errors import (
    AccountSuspended,
    FieldCode,
    InsufficientBalance,
    RecipientCode,
    Refusal,
    TooManyRecipients,
    ValidationFailed,
)
from tumira.core.ids import AccountId
from tumira.postgres.pool import Database
from tumira.pricing.destinations import NOBODY, RECIPIENTS_MAX, Recipient, Sorted, Tariff, sort_recipients
from tumira.pricing.gsm7 import is_blank
from tumira.pricing.phone_numbers import CHANNEL, Entry, country_of, explain, read_recipients, suggest
from tumira.pricing.quote import REFERENCE_MAX, Quote, ValidRequest, quote
from tumira.pricing.store import get_tariff
from tumira.replies import opt_outs
from tumira.sending import code_guard, lookups
from tumira.sending.batcher import Batcher
from tumira.sending.code_guard import carries_passcode, range_of
from tumira.sending.types import Answered, Call, IdempotencyKey, InvalidSend, Priced, Refused, Send

# The number that was meant is looked for as far as a page shows it.
SUGGESTED_MAX: Final = 50


class Draft(Struct, frozen=True):
    recipients: str
    message: str
    reference: str


class LeftOut(Struct, frozen=True):
    """A recipient as typed that cannot be sent to, why, and the number that was probably meant."""

    written: str
    reason: str
    suggestion: str | None


class Review(Struct, frozen=True):
    """The review of a draft; without refusals it can be sent, and has a quote."""

    tariff: Tariff
    entries: Sequence[Entry]
    quote: Quote | None
    refusals: Sequence[Refusal]
    # The country of the account's own number, for which local numbers are completed.
    country: str | None
    # Recipients that may not get this text, with the reason.
    barred: Mapping[str, RecipientCode] = NOBODY

    @property
    def rejected(self) -> Sequence[LeftOut]:
        """Return the recipients that are left out; none if there are too many entries."""
        written = {entry.number: entry.written for entry in reversed(self.entries)}
        return [
            LeftOut(
                written[one.to],
                explain(self.tariff, one.to, one.code),
                suggest(self.tariff, written[one.to], self.country) if place < SUGGESTED_MAX else None,
            )
            for place, one in enumerate(self._sorted.rejected)
        ]

    @property
    def accepted(self) -> Sequence[Recipient]:
        """Return the recipients that can be sent to; none if there are too many entries."""
        return self._sorted.accepted

    @property
    def _sorted(self) -> Sorted:
        numbers = [] if len(self.entries) > RECIPIENTS_MAX else [entry.number for entry in self.entries]
        return sort_recipients(self.tariff, CHANNEL, numbers, self.barred)


async def review(
    database: Database,
    batcher: Batcher,
    account_id: AccountId,
    draft: Draft,
    *,
    balance: Decimal,
    suspended: bool,
    is_later: bool = False,
) -> Review:
    """Collect every refusal of a draft, and price it if possible.

    What is sent later is held to the limits of that day.
    """
    found = await examine(database, account_id, draft)
    refusals = list(found.refusals)
    if suspended:
        refusals.append(AccountSuspended())
    if found.quote is not None and found.quote.total_cost > balance:
        refusals.append(InsufficientBalance.of(found.quote.total_cost, balance))
    if not refusals and not is_later:
        refusals.extend(await _dry_run(batcher, account_id, found.entries, draft))
    return structs.replace(found, refusals=refusals)


async def examine(database: Database, account_id: AccountId, draft: Draft) -> Review:
    """Collect what is wrong with a draft itself."""
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
        policy = await template_store.get_policy(connection)
        account = await accounts.find(connection, account_id)
    assert account is not None
    country = country_of(tariff, account.phone)
    # In a thread: the largest form takes 50 ms.
    entries = await asyncio.to_thread(read_recipients, tariff, draft.recipients, country)
    numbers = [entry.number for entry in entries[:RECIPIENTS_MAX]]
    async with database.connection() as connection:
        opted_out = await opt_outs.find_among(connection, account_id, numbers)
    request = _request(entries, draft)
    is_passcode = carries_passcode(request)
    barred = opted_out.bar(account_id, is_passcode=is_passcode)
    faults = _faults(entries, draft)
    refusals: list[Refusal] = []
    priced = quote(tariff, request, barred)
    if isinstance(priced, TooManyRecipients):
        refusals.append(priced)
    elif isinstance(priced, Quote) and is_passcode:
        barred = {**barred, **await _find_stopped(database, account, priced.numbers)}
        priced = quote(tariff, request, barred)
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
    return Review(tariff, entries, priced if isinstance(priced, Quote) else None, refusals, country, barred)


async def _find_stopped(
    database: Database, account: Account, numbers: Sequence[str]
) -> Mapping[str, RecipientCode]:
    """Return the numbers to which no passcode would be sent now."""
    async with database.connection() as connection:
        limits = await message_settings.get_passcode_limits(connection, account.id)
        keys = {(account.id, range_of(number)) for number in numbers}
        _calls, facts = await lookups.read(connection, [], [], ranges=keys)
    if not limits.is_on:
        return NOBODY
    effective = limits.effective(account.rate_limit)
    return code_guard.decide(account.id, effective, numbers, facts.ranges, facts.now_us).barred


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
    decision = await batcher.ask(_call(account_id, Send(request, verdict=verdict)))
    return [decision.refusal] if isinstance(decision, Refused) else []


def write_terms(priced: Quote) -> str:
    """Write the terms that the customer confirms, so that they can be compared afterwards."""
    legs = "".join(f"; {leg.count} to {leg.country} at {money.write(leg.cost)}" for leg in priced.legs)
    return f"{money.write(priced.total_cost)}{legs}; {len(priced.rejected)} rejected"


async def send(
    batcher: Batcher,
    account_id: AccountId,
    token: str,
    draft: Draft,
    review: Review,
    by: Actor | None = None,
) -> str | Refusal:
    """Send a draft and return its batch's id, the same for every call with this token.

    The account's history names who sent it, unless an approval does so.
    `ValidationFailed` if the cost is no longer the reviewed one; then nothing was sent.
    """
    assert review.quote is not None
    asked = Send(
        _request(review.entries, draft),
        _idempotency(token, draft),
        classify_early(draft.message),
        agreed_cost=review.quote.total_cost,
        by=by,
    )
    return await _ask(batcher, account_id, asked)


async def find_sent(batcher: Batcher, account_id: AccountId, token: str, draft: Draft) -> str | Refusal:
    """Return the batch that was sent earlier with this token; `ValidationFailed` if there is none."""
    # An earlier answer comes before the refusal of an invalid send.
    return await _ask(batcher, account_id, InvalidSend(ValidationFailed(), _idempotency(token, draft)))


async def _ask(batcher: Batcher, account_id: AccountId, asked: Send | InvalidSend) -> str | Refusal:
    decision = await batcher.ask(_call(account_id, asked))
    if isinstance(decision, Refused):
        return decision.refusal
    if isinstance(decision, Priced):
        return ValidationFailed()
    assert isinstance(decision, Answered)
    return str(json.loads(decision.response)["batch_id"])


def _call(account_id: AccountId, asked: Send | InvalidSend) -> Call:
    return Call(account_id, None, Scope.SEND, asked, get_contextvars().get("request_id", ""))


def _idempotency(token: str, draft: Draft) -> IdempotencyKey:
    # Drafts are compared by what was typed, because its meaning depends on the tariff.
    typed = [draft.recipients, draft.message, draft.reference]
    fingerprint = sha256(json.dumps(typed, separators=(",", ":")).encode()).digest()
    return IdempotencyKey(write_key(token), fingerprint)


def write_key(token: str) -> str:
    """Write the Idempotency-Key of a token."""
    return f"dashboard:{token}"
