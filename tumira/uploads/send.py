"""Sends a checked file, each message once.

Once its owner has agreed to the price, workers send a file chunk by chunk. A chunk becomes a batch with its
own debit in one transaction, which also marks the chunk as sent, so after a crash another worker continues
exactly where the first one stopped. Passcodes over a limit of the guard are left out.

The money of a file that was scheduled is held. Each chunk releases its part and is charged in the same
transaction; what is left at the end goes back to the balance.
"""

import asyncio
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from msgspec import structs

from tumira import audit_log
from tumira.accounts import holds
from tumira.accounts import store as accounts
from tumira.accounts.store import LockedAccount
from tumira.audit_log import Actor
from tumira.content import near_line, template_store
from tumira.content.classifier import classify
from tumira.content.near_line_store import SAMPLES_PER_DAY, MarkedSend
from tumira.content.store import digest_of
from tumira.core import money
from tumira.core.errors import (
    AccountSuspended,
    InsufficientBalance,
    Refusal,
    ServiceUnavailable,
    SpendLimitReached,
)
from tumira.core.ids import AccountId, ScheduleId, UploadId
from tumira.core.translation import _, mark
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import BUSY, Database
from tumira.pricing.phone_numbers import CHANNEL
from tumira.pricing.quote import ValidRequest
from tumira.pricing.store import get_tariff
from tumira.sending import fairness, lookups
from tumira.sending.charge import Charges
from tumira.sending.code_guard import range_of
from tumira.sending.limits import over_balance, over_limit, refuse_charge
from tumira.sending.owner_notices import NoticeKind, OwnerNotice, notify_owners
from tumira.uploads import chunks
from tumira.uploads import store as uploads
from tumira.uploads.chunks import Chunk
from tumira.uploads.price import PricedChunk, price_chunk, price_rest
from tumira.uploads.rows import RowCode, RowFault
from tumira.uploads.screen import (
    ACCOUNT_WAIT_MS,
    cells_of,
    find_passcodes,
    leave_out,
    list_opted_out,
    list_refused,
    screen_rest,
)
from tumira.uploads.store import CHECKED, SCHEDULED, SENDING, SENT, Upload

_STOPPED: Final = mark(
    "Too many passcodes went to this number, or to its neighbours. See Settings, Passcode guard."
)


@dataclass(frozen=True, slots=True)
class Begun:
    """The file is being sent, was sent before, or is scheduled; repeated confirmations send it once."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Nothing was sent: price, reach or templates have changed since the owner agreed."""


@dataclass(frozen=True, slots=True)
class NoLongerAllowed:
    """Nothing was sent: `count` rows are no longer allowed and were left out."""

    count: int


async def confirm(
    database: Database,
    account_id: AccountId,
    upload_id: UploadId,
    agreed: Decimal,
    by: Actor | None = None,
) -> Begun | Changed | NoLongerAllowed | Refusal | None:
    """Send the rest of a file at the agreed price; None if the account has no such file.

    The account's history names who sent it, unless an approval does so.
    """
    try:
        refused = await screen_rest(database, account_id, upload_id)
        if refused:
            return NoLongerAllowed(refused)
        async with database.transaction() as connection:
            await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
            upload = await uploads.hold(connection, account_id, upload_id)
            return None if upload is None else await _confirm(connection, upload, agreed, by)
    except BUSY:
        return ServiceUnavailable(retry_after_s=1)


async def _confirm(
    connection: Connection, upload: Upload, agreed: Decimal, by: Actor | None
) -> Begun | Changed | Refusal:
    if upload.state in {SCHEDULED, SENDING, SENT}:
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
    if by is not None:
        what = "file sent" if upload.state == CHECKED else "file resumed"
        detail = f"{upload.file_name}: {offer.count} messages, {money.write(offer.total_cost)} USD"
        await audit_log.record(connection, upload.account_id, by, what, detail)
    return Begun()


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
        hold = await holds.find_of_file(connection, upload.id)
        chunk = await chunks.find_next(connection, upload.id)
        if chunk is not None and upload.policy_version != await template_store.get_version(connection):
            policy = await template_store.get_policy(connection)
            faults = await asyncio.to_thread(list_refused, policy, upload, chunk)
            chunk = await leave_out(connection, upload, chunk, faults)
        if chunk is not None:
            chunk = await leave_out(
                connection, upload, chunk, await list_opted_out(connection, upload, chunk)
            )
        if chunk is not None and chunk.recipients:
            tariff = await get_tariff(connection)
            priced = await asyncio.to_thread(price_chunk, tariff, upload.message, chunk)
            sent = await _send(connection, upload, chunk, priced, hold)
            if isinstance(sent, str):
                await uploads.mark_stopped(connection, upload.id, sent)
                if hold is not None:
                    await holds.release(connection, hold[0])
                    await _tell_stopped(connection, upload, sent)
                return upload.id
            marked = sent
        is_done = await uploads.mark_sent(connection, upload.id)
        if is_done and hold is not None:
            await holds.release(connection, hold[0])
    await near_line.record(database, marked)
    return upload.id


async def _tell_stopped(connection: Connection, upload: Upload, problem: str) -> None:
    """Notify the owner, who is not there when a scheduled file is sent."""
    text = _("Your scheduled file {name} stopped. {problem}").format(name=upload.file_name, problem=problem)
    notice = OwnerNotice(upload.account_id, _("Your scheduled file stopped"), text)
    now = await clock.read_now(connection)
    await notify_owners(connection, NoticeKind.SCHEDULE, [notice], now)


async def _send(
    connection: Connection,
    upload: Upload,
    chunk: Chunk,
    priced: PricedChunk,
    hold: tuple[ScheduleId, Decimal] | None,
) -> Sequence[MarkedSend] | str:
    """Send one chunk of a locked file and return its texts near the line, or a sentence that says why not."""
    cost = priced.quote.total_cost
    if priced.unreachable or cost != chunk.cost:
        return _(
            "The prices have changed since you confirmed. Press Resume to see the new price of the rest."
        )
    await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
    if hold is not None:
        schedule_id, held = hold
        # The account stays locked until the commit, so nobody else can spend it.
        await holds.release(connection, schedule_id, min(held, cost))
    account = await accounts.lock(connection, upload.account_id)
    codes = find_passcodes(upload, chunk)
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
        chunk = await leave_out(connection, upload, chunk, _stopped_rows(upload, chunk, guarded.stopped))
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


def _stopped_rows(upload: Upload, chunk: Chunk, stopped: Container[str]) -> Sequence[RowFault]:
    return [
        RowFault(line, cells_of(upload, number), RowCode.RECIPIENT_LIMIT.value, _(_STOPPED), None)
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
