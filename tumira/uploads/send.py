"""Sends a checked file, each message once.

Once its owner has agreed to the price, workers send a file chunk by chunk. A chunk becomes a batch with its
own debit in one transaction, which also marks the chunk as sent, so after a crash another worker continues
exactly where the first one stopped.

Where templates have changed since the check, rows are checked again before the owner agrees and before they
are sent. Rows that are no longer allowed are left out, cost nothing, and are shown to the owner. So are
passcodes over a limit of the guard.
"""

import asyncio
from collections import Counter
from collections.abc import Container, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from msgspec import structs

from tumira.accounts import store as accounts
from tumira.accounts.store import LockedAccount
from tumira.content import near_line, template_store
from tumira.content.classifier import classify
from tumira.content.near_line_store import SAMPLES_PER_DAY, MarkedSend
from tumira.content.passcodes import is_passcode
from tumira.content.store import digest_of
from tumira.content.templates import Policy
from tumira.core import money
from tumira.core.errors import (
    AccountSuspended,
    InsufficientBalance,
    Refusal,
    ServiceUnavailable,
    SpendLimitReached,
)
from tumira.core.ids import AccountId, UploadId
from tumira.core.translation import _, mark
from tumira.postgres.connection import Connection
from tumira.postgres.pool import BUSY, Database
from tumira.pricing.phone_numbers import CHANNEL
from tumira.pricing.quote import ValidRequest
from tumira.pricing.store import get_tariff
from tumira.replies import opt_outs
from tumira.sending import fairness, lookups
from tumira.sending.charge import Charges
from tumira.sending.code_guard import range_of
from tumira.sending.limits import over_balance, over_limit, refuse_charge
from tumira.uploads import chunks
from tumira.uploads import store as uploads
from tumira.uploads.chunks import Chunk
from tumira.uploads.csv_file import find_number_column
from tumira.uploads.price import PricedChunk, price_chunk, price_rest
from tumira.uploads.rows import RowCode, RowFault
from tumira.uploads.store import SENDING, SENT, STOPPED, Upload

ACCOUNT_WAIT_MS: Final = 5_000

_BLOCKED: Final = mark("This text has been blocked since the file was checked.")
_NOT_ALLOWED: Final = mark(
    "This text is marketing, and the template that allowed it has been removed since the file was checked."
)

_OPTED_OUT: Final = mark("This recipient has opted out of your messages since the file was checked.")
_STOPPED: Final = mark(
    "Too many passcodes went to this number, or to its neighbours. See Settings, Passcode guard."
)


@dataclass(frozen=True, slots=True)
class Begun:
    """The file is being sent, or was sent before; repeated confirmations send it once."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Nothing was sent: price, reach or templates have changed since the owner agreed."""


@dataclass(frozen=True, slots=True)
class NoLongerAllowed:
    """Nothing was sent: `count` rows are no longer allowed and were left out."""

    count: int


async def confirm(
    database: Database, account_id: AccountId, upload_id: UploadId, agreed: Decimal
) -> Begun | Changed | NoLongerAllowed | Refusal | None:
    """Send the rest of a file at the agreed price; None if the account has no such file."""
    try:
        refused = await _screen_rest(database, account_id, upload_id)
        if refused:
            return NoLongerAllowed(refused)
        async with database.transaction() as connection:
            await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
            upload = await uploads.hold(connection, account_id, upload_id)
            return None if upload is None else await _confirm(connection, upload, agreed)
    except BUSY:
        return ServiceUnavailable(retry_after_s=1)


async def _confirm(connection: Connection, upload: Upload, agreed: Decimal) -> Begun | Changed | Refusal:
    if upload.state in {SENDING, SENT}:
        return Begun()
    if upload.policy_version != await template_store.get_version(connection):
        return Changed()
    offer = await price_rest(connection, upload)
    if offer.unreachable or not offer.count or offer.total_cost != agreed:
        return Changed()
    account = await accounts.lock(connection, upload.account_id)
    _calls, facts = await lookups.read(connection, [], [])
    # The cost of other confirmed files counts as spent, or each of them would stop half-way.
    promised = await chunks.sum_promised(connection, upload.account_id)
    refusal = _refuse(account, offer.total_cost, promised, facts.now)
    if refusal is not None:
        return refusal
    await chunks.set_costs(connection, upload.id, offer.costs)
    await uploads.mark_sending(connection, upload.id)
    return Begun()


async def _screen_rest(database: Database, account_id: AccountId, upload_id: UploadId) -> int:
    """Check the unsent rest of a file by the current templates; return how many rows were left out.

    Each chunk has its own transaction: a file of ten thousand texts takes a while.
    """
    refused = 0
    after = -1
    policy: Policy | None = None
    while True:
        async with database.transaction() as connection:
            await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
            upload = await uploads.hold(connection, account_id, upload_id)
            if upload is None or upload.state in {SENDING, SENT}:
                return refused
            if policy is None:
                if upload.policy_version == await template_store.get_version(connection):
                    return refused
                policy = await template_store.get_policy(connection)
            chunk = await chunks.find_next(connection, upload.id, after)
            if chunk is None:
                await uploads.set_policy_version(connection, upload.id, policy.version)
                if upload.state == STOPPED:
                    await uploads.mark_sent(connection, upload.id)
                return refused
            after = chunk.number
            faults = await asyncio.to_thread(_screen, policy, upload, chunk)
            left = await _leave_out(connection, upload, chunk, faults)
            refused += len(chunk.recipients) - len(left.recipients)


async def _leave_out(
    connection: Connection, upload: Upload, chunk: Chunk, faults: Sequence[RowFault]
) -> Chunk:
    """Remove the rows of a chunk that may not be sent any more, and return the rest."""
    if not faults:
        return chunk
    tariff = await get_tariff(connection)
    left = _without(chunk, {fault.line for fault in faults})
    # The agreed cost of the others stands, unless prices have changed; then nothing is sent.
    before = await asyncio.to_thread(price_chunk, tariff, upload.message, chunk)
    after = await asyncio.to_thread(price_chunk, tariff, upload.message, left)
    saved = before.quote.total_cost - after.quote.total_cost
    left = structs.replace(
        left,
        cost=max(chunk.cost - saved, Decimal(0)),
        leg_countries=[leg.country for leg in after.quote.legs],
        leg_segments=after.leg_segments,
        leg_counts=[leg.count for leg in after.quote.legs],
    )
    await chunks.leave_out(connection, upload.id, left, faults)
    return left


def _without(chunk: Chunk, lines: AbstractSet[int]) -> Chunk:
    places = [place for place, line in enumerate(chunk.lines) if line not in lines]
    return structs.replace(
        chunk,
        lines=[chunk.lines[place] for place in places],
        recipients=[chunk.recipients[place] for place in places],
        bodies=None if chunk.bodies is None else [chunk.bodies[place] for place in places],
        by_template=[line for line in chunk.by_template if line not in lines],
        near_line=[line for line in chunk.near_line if line not in lines],
    )


def _screen(policy: Policy, upload: Upload, chunk: Chunk) -> Sequence[RowFault]:
    """Return the rows of a chunk that the current templates do not allow.

    The classifier's verdict from the check still holds, so each text is only compared with templates.
    """
    texts = chunk.bodies or [upload.message] * len(chunk.recipients)
    by_template = frozenset(chunk.by_template)
    # The texts of all rows, whether each needs a template, and why it may not be sent any more.
    reasons: dict[tuple[str, bool], str | None] = {}
    faults = []
    for line, number, text in zip(chunk.lines, chunk.recipients, texts, strict=True):
        needs_template = line in by_template
        key = (text, needs_template)
        if key not in reasons:
            if policy.blocks(upload.account_id, text):
                reasons[key] = _BLOCKED
            elif needs_template and not policy.allows(upload.account_id, text):
                reasons[key] = _NOT_ALLOWED
            else:
                reasons[key] = None
        reason = reasons[key]
        if reason is not None:
            cells = _cells(upload, number)
            faults.append(RowFault(line, cells, RowCode.NO_LONGER_ALLOWED.value, reason, None))
    return faults


async def _opted_out(connection: Connection, upload: Upload, chunk: Chunk) -> Sequence[RowFault]:
    """Return the rows of a chunk whose recipients have opted out since the check."""
    opted_out = await opt_outs.find_among(connection, upload.account_id, chunk.recipients)
    codes = frozenset(_find_passcodes(upload, chunk))
    barred, barred_codes = (opted_out.bar(upload.account_id, is_passcode=one) for one in (False, True))
    return [
        RowFault(line, _cells(upload, number), RowCode.NO_LONGER_ALLOWED.value, _(_OPTED_OUT), None)
        for line, number in zip(chunk.lines, chunk.recipients, strict=True)
        if number in (barred_codes if number in codes else barred)
    ]


def _cells(upload: Upload, number: str) -> Sequence[str]:
    """Write the row of a number as far as it is stored, with the number in its column of the download."""
    place = find_number_column(upload.columns)
    return [number if column == place else "" for column in range(len(upload.columns))]


def _refuse(account: LockedAccount, cost: Decimal, promised: Decimal, now: datetime) -> Refusal | None:
    """Refuse a file that the account may not send or cannot pay beside the files that it has promised to."""
    if account.suspended:
        return AccountSuspended()
    # A file is one call to its owner, and the promised files count to the day.
    return (
        over_limit(account, cost, now)
        or over_limit(structs.replace(account, call_limit=None), cost + promised, now)
        or over_balance(structs.replace(account, balance=max(account.balance - promised, Decimal(0))), cost)
    )


async def send_next_chunk(database: Database, after: UploadId) -> UploadId | None:
    """Send one chunk of the next waiting file, and return its id; None if no file waits after this one."""
    marked: Sequence[MarkedSend] = ()
    async with database.transaction() as connection:
        upload = await uploads.claim_sending(connection, after)
        if upload is None:
            return None
        chunk = await chunks.find_next(connection, upload.id)
        if chunk is not None and upload.policy_version != await template_store.get_version(connection):
            policy = await template_store.get_policy(connection)
            faults = await asyncio.to_thread(_screen, policy, upload, chunk)
            chunk = await _leave_out(connection, upload, chunk, faults)
        if chunk is not None:
            chunk = await _leave_out(connection, upload, chunk, await _opted_out(connection, upload, chunk))
        if chunk is not None and chunk.recipients:
            tariff = await get_tariff(connection)
            priced = await asyncio.to_thread(price_chunk, tariff, upload.message, chunk)
            sent = await _send(connection, upload, chunk, priced)
            if isinstance(sent, str):
                await uploads.mark_stopped(connection, upload.id, sent)
                return upload.id
            marked = sent
        await uploads.mark_sent(connection, upload.id)
    await near_line.record(database, marked)
    return upload.id


async def _send(
    connection: Connection, upload: Upload, chunk: Chunk, priced: PricedChunk
) -> Sequence[MarkedSend] | str:
    """Send one chunk of a locked file and return its texts near the line, or a sentence that says why not."""
    cost = priced.quote.total_cost
    if priced.unreachable or cost != chunk.cost:
        return _(
            "The prices have changed since you confirmed. Press Resume to see the new price of the rest."
        )
    await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
    account = await accounts.lock(connection, upload.account_id)
    codes = _find_passcodes(upload, chunk)
    # Read under the account's lock: the turns of its messages follow those of its last ones.
    ranges = {(account.id, range_of(number)) for number in codes}
    _calls, facts = await lookups.read(connection, [], [account.id], priced.quote.numbers, ranges)
    refusal = refuse_charge(account, cost, facts.now)
    if refusal is not None:
        return _say(refusal, len(chunk.recipients))
    charges = Charges(facts)
    guarded = charges.guard(account, codes)
    charges.count_codes(account, guarded)
    if guarded.stopped:
        chunk = await _leave_out(connection, upload, chunk, _stopped_rows(upload, chunk, guarded.stopped))
        if not chunk.recipients:
            await charges.write(connection)
            return []
        priced = price_chunk(await get_tariff(connection), upload.message, chunk)
    batch = charges.new_batch(
        account,
        ValidRequest(CHANNEL, priced.quote.numbers, upload.message, upload.reference, dry_run=False),
        priced.quote,
        # By the size of the file, so that its last few messages do not enter the lane of passcodes.
        fairness.lane(upload.recipients),
        is_passcode=bool(codes),
        texts=chunk.bodies,
        leg_segments=priced.leg_segments,
        near_line=bool(chunk.near_line),
    )
    charges.charge(account, batch, None, lambda _: b"")
    await charges.write(connection)
    await chunks.mark_sent(connection, upload.id, chunk.number, batch.id)
    return _mark(upload, chunk, consents=account.review_consent)


def _find_passcodes(upload: Upload, chunk: Chunk) -> Sequence[str]:
    """Return the numbers of a chunk that get a passcode; a file of more than a few rows has none."""
    if upload.recipients > fairness.SMALL_MAX:
        return []
    texts = chunk.bodies or [upload.message] * len(chunk.recipients)
    return [number for number, text in zip(chunk.recipients, texts, strict=True) if is_passcode(text)]


def _stopped_rows(upload: Upload, chunk: Chunk, stopped: Container[str]) -> Sequence[RowFault]:
    return [
        RowFault(line, _cells(upload, number), RowCode.RECIPIENT_LIMIT.value, _(_STOPPED), None)
        for line, number in zip(chunk.lines, chunk.recipients, strict=True)
        if number in stopped
    ]


def _mark(upload: Upload, chunk: Chunk, *, consents: bool) -> Sequence[MarkedSend]:
    if not chunk.near_line:
        return []
    if not consents:
        return [MarkedSend(upload.account_id, len(chunk.near_line), 0.0, None)]
    lines = frozenset(chunk.near_line)
    texts = chunk.bodies or [upload.message] * len(chunk.lines)
    counts = Counter(text for line, text in zip(chunk.lines, texts, strict=True) if line in lines)
    # Only so many can be in a sample, and scoring all texts again would take long.
    sampled = frozenset(sorted(counts, key=digest_of)[:SAMPLES_PER_DAY])
    return [
        MarkedSend(upload.account_id, count, classify(text).score, text)
        if text in sampled
        else MarkedSend(upload.account_id, count, 0.0, None)
        for text, count in counts.items()
    ]


def _say(refusal: Refusal, count: int) -> str:
    detail = refusal.details[0] if refusal.details else {}
    match refusal:
        case AccountSuspended():
            return _("Your account was suspended. Contact support, and press Resume when it is active again.")
        case InsufficientBalance():
            return _(
                "The next {count} messages cost {required}, but your balance is {available}. Top up, then "
                "press Resume."
            ).format(
                count=f"{count:,}", required=_usd(detail["required"]), available=_usd(detail["available"])
            )
        case SpendLimitReached() if "call_limit" in detail:
            return _(
                "The next {count} messages cost {required}, more than your limit per send. Raise the limit "
                "in the settings, then press Resume."
            ).format(count=f"{count:,}", required=_usd(detail["required"]))
        case SpendLimitReached():
            return _(
                "The next {count} messages would exceed your daily limit. Raise the limit in the settings or "
                "wait until midnight, then press Resume."
            ).format(count=f"{count:,}")
    return _("{problem} Press Resume to try again.").format(problem=refusal.message)


def _usd(amount: str) -> str:
    return f"US${money.write(Decimal(amount)).removesuffix('00')}"
