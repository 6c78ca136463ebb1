"""How are the messages of a file checked, agreed to, and sent, each of them once?

A file is checked as a whole and kept with its verdicts. Once its owner has agreed to the price, workers
carry it out chunk by chunk. A chunk becomes a batch with its own debit in one transaction, which also notes
that it has, so whoever takes over from a worker that died goes on exactly where that one had come to.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from msgspec import structs

from tumira.actions import screen_text
from tumira.actions.deliberation import local_day, over_limit, spend
from tumira.actions.tell_events import tell_low_balances
from tumira.errors import (
    AccountSuspended,
    InsufficientBalance,
    Refusal,
    ServiceUnavailable,
    SpendLimitReached,
)
from tumira.ids import AccountId, BatchId, UploadId, message_ids, new_id
from tumira.rules import money, turns
from tumira.rules.destinations import Tariff, sort_recipients
from tumira.rules.quotes import Leg, Quote, SendRequest
from tumira.rules.recipients import CHANNEL
from tumira.rules.segments import measure
from tumira.rules.sheets import Sheet, SheetFault, read_sheet
from tumira.rules.templates import Policy
from tumira.rules.uploads import Checked, Good, MessageFault, check
from tumira.store import acceptance, accounts, calls, prices, templates, uploads
from tumira.store.acceptance import Debit, Flow, NewBatch
from tumira.store.accounts import Held
from tumira.store.calls import Surroundings
from tumira.store.database import BUSY, Database
from tumira.store.sql import Connection
from tumira.store.uploads import CHUNK_MAX, SENDING, SENT, Chunk, Fault, NewChunk, NewUpload, Upload

# Of files that were checked and never sent, each up to ten thousand rows.
CHECKED_KEPT: Final = 20
ACCOUNT_WAIT_MS: Final = 5_000
_NUL: Final = "\x00"

# A file takes seconds of one core; more than two at a time would only slow each other and everybody else.
_checking: Final = asyncio.Semaphore(2)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody uploaded, and what they want to be sent."""

    file_name: str
    data: bytes
    message: str
    country: str | None
    reference: str | None


async def check_file(
    database: Database, account_id: AccountId, wanted: Wanted
) -> UploadId | SheetFault | MessageFault:
    """Check every row of a file and keep what was found, or say why it cannot be read at all."""
    async with database.connection() as connection:
        tariff = await prices.get_tariff(connection)
        policy = await templates.get_policy(connection)
    async with _checking:
        upload = await asyncio.to_thread(_check, tariff, policy, account_id, wanted)
    if not isinstance(upload, NewUpload):
        return upload
    async with database.transaction() as connection:
        await uploads.insert(connection, upload)
        await uploads.delete_surplus(connection, account_id, CHECKED_KEPT)
    return upload.id


def _check(
    tariff: Tariff, policy: Policy, account_id: AccountId, wanted: Wanted
) -> NewUpload | SheetFault | MessageFault:
    sheet = read_sheet(wanted.data)
    if isinstance(sheet, SheetFault):
        return sheet
    checked = check(
        tariff,
        sheet,
        wanted.message,
        wanted.country,
        lambda text: screen_text.screen(policy, account_id, text),
    )
    if isinstance(checked, MessageFault):
        return checked
    return _new_upload(account_id, wanted, sheet, checked)


def _new_upload(account_id: AccountId, wanted: Wanted, sheet: Sheet, checked: Checked) -> NewUpload:
    # One text for all stands once, also where its places were filled with the same in every row.
    is_one_text = checked.texts == 1
    message = checked.good[0].text if is_one_text and checked.good else wanted.message
    return NewUpload(
        id=UploadId(new_id(time.time_ns() // 1_000_000)),
        account_id=account_id,
        file_name=wanted.file_name,
        columns=[_storable(name) for name in sheet.columns],
        message=message,
        reference=wanted.reference,
        rows=len(sheet.rows),
        chunks=[
            _new_chunk(checked.good[start : start + CHUNK_MAX], own_texts=not is_one_text)
            for start in range(0, len(checked.good), CHUNK_MAX)
        ],
        faults=[
            Fault(
                bad.line,
                [_storable(cell) for cell in bad.cells],
                bad.code,
                _storable(bad.reason),
                bad.suggestion,
            )
            for bad in checked.bad
        ],
    )


def _new_chunk(good: Sequence[Good], *, own_texts: bool) -> NewChunk:
    return NewChunk(
        lines=[one.line for one in good],
        recipients=[one.number for one in good],
        bodies=[one.text for one in good] if own_texts else None,
        cost=sum((one.cost for one in good), Decimal(0)),
    )


def _storable(text: str) -> str:
    return text.replace(_NUL, "")


@dataclass(frozen=True, slots=True)
class Part:
    """What goes to one country: how many messages, how many segments in all, and what they cost."""

    country: str
    count: int
    segments: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class Offer:
    """What the rest of a file costs now; `unreachable` of its numbers cannot be sent to any more."""

    parts: Sequence[Part]
    count: int
    total_cost: Decimal
    unreachable: int
    costs: Mapping[int, Decimal]


@dataclass(frozen=True, slots=True)
class _Parcel:
    """A chunk, priced; messages of one leg have the same country and length."""

    quote: Quote
    leg_segments: Sequence[int]
    unreachable: int


async def price_rest(connection: Connection, upload: Upload) -> Offer:
    """Price what was not sent yet of a file by today's prices."""
    tariff = await prices.get_tariff(connection)
    chunks = await uploads.list_unsent(connection, upload.id)
    return await asyncio.to_thread(_offer, tariff, upload.message, chunks)


def _offer(tariff: Tariff, message: str, chunks: Sequence[Chunk]) -> Offer:
    parts: dict[str, Part] = {}
    costs: dict[int, Decimal] = {}
    unreachable = count = 0
    for chunk in chunks:
        parcel = _price(tariff, message, chunk)
        costs[chunk.number] = parcel.quote.total_cost
        unreachable += parcel.unreachable
        count += len(parcel.quote.numbers)
        for leg, segments in zip(parcel.quote.legs, parcel.leg_segments, strict=True):
            part = parts.get(leg.country, Part(leg.country, 0, 0, Decimal(0)))
            parts[leg.country] = Part(
                leg.country,
                part.count + leg.count,
                part.segments + leg.count * segments,
                part.cost + leg.count * leg.cost,
            )
    return Offer([*parts.values()], count, sum(costs.values(), Decimal(0)), unreachable, costs)


def _price(tariff: Tariff, message: str, chunk: Chunk) -> _Parcel:
    reached = {one.number: one for one in sort_recipients(tariff, CHANNEL, chunk.recipients).accepted}
    texts = chunk.bodies or [message] * len(chunk.recipients)
    lengths = {text: measure(text).segments for text in set(texts)}
    places: dict[tuple[str, int], int] = {}
    prices_usd: list[Decimal] = []
    numbers: list[str] = []
    leg_of: list[int] = []
    for number, text in zip(chunk.recipients, texts, strict=True):
        recipient = reached.get(number)
        if recipient is None:
            continue
        leg = places.setdefault((recipient.country, lengths[text]), len(places))
        if leg == len(prices_usd):
            prices_usd.append(recipient.price_usd)
        numbers.append(number)
        leg_of.append(leg)
    counts = [0] * len(places)
    for leg in leg_of:
        counts[leg] += 1
    legs = [
        Leg(country, prices_usd[leg] * segments, counts[leg]) for (country, segments), leg in places.items()
    ]
    leg_segments = [segments for _, segments in places]
    return _Parcel(
        Quote(
            numbers=numbers,
            leg_of=leg_of,
            legs=legs,
            rejected=[],
            segments=max(leg_segments, default=1),
            total_cost=sum((leg.cost * leg.count for leg in legs), Decimal(0)),
            tariff_version=tariff.version,
        ),
        leg_segments,
        len(chunk.recipients) - len(numbers),
    )


@dataclass(frozen=True, slots=True)
class Begun:
    """The file is being sent, or was sent before; however often this is asked for, it is sent once."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Nothing was sent: it would cost something else than was agreed to, or not reach everybody any more."""


async def confirm(
    database: Database, account_id: AccountId, upload_id: UploadId, agreed: Decimal
) -> Begun | Changed | Refusal | None:
    """Have the rest of a file sent at the agreed price; None if the account has no such file."""
    try:
        async with database.transaction() as connection:
            await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
            upload = await uploads.hold(connection, account_id, upload_id)
            return None if upload is None else await _confirm(connection, upload, agreed)
    except BUSY:
        return ServiceUnavailable(retry_after_s=1)


async def _confirm(connection: Connection, upload: Upload, agreed: Decimal) -> Begun | Changed | Refusal:
    if upload.state in {SENDING, SENT}:
        return Begun()
    offer = await price_rest(connection, upload)
    if offer.unreachable or not offer.count or offer.total_cost != agreed:
        return Changed()
    account = await accounts.hold(connection, upload.account_id)
    _, surroundings = await calls.read(connection, [], [])
    # What other files were promised is as good as spent, or each of them would stop half-way.
    promised = await uploads.sum_promised(connection, upload.account_id)
    refusal = _refuse(account, offer.total_cost, promised, surroundings)
    if refusal is not None:
        return refusal
    await uploads.set_costs(connection, upload.id, offer.costs)
    await uploads.mark_sending(connection, upload.id)
    return Begun()


def _refuse(account: Held, cost: Decimal, promised: Decimal, surroundings: Surroundings) -> Refusal | None:
    if account.suspended:
        return AccountSuspended()
    # A file is one call to its owner; of the day, what was promised counts too.
    limit = over_limit(account, cost, surroundings)
    if limit is None and promised:
        limit = over_limit(structs.replace(account, call_limit=None), cost + promised, surroundings)
    if limit is not None:
        return limit
    available = max(account.balance - promised, Decimal(0))
    return InsufficientBalance.of(cost, available) if cost > available else None


async def send_next_chunk(database: Database, after: UploadId) -> UploadId | None:
    """Send one chunk of the next file that waits, and return which; None if nothing waits after this one."""
    async with database.transaction() as connection:
        upload = await uploads.claim_sending(connection, after)
        if upload is None:
            return None
        chunk = await uploads.find_next_chunk(connection, upload.id)
        if chunk is not None:
            tariff = await prices.get_tariff(connection)
            parcel = await asyncio.to_thread(_price, tariff, upload.message, chunk)
            problem = await _send(connection, upload, chunk, parcel)
            if problem is not None:
                await uploads.mark_stopped(connection, upload.id, problem)
                return upload.id
        await uploads.mark_sent(connection, upload.id)
        return upload.id


async def _send(connection: Connection, upload: Upload, chunk: Chunk, parcel: _Parcel) -> str | None:
    """Send one chunk of a file that we hold, or say in words why not."""
    cost = parcel.quote.total_cost
    if parcel.unreachable or cost != chunk.cost:
        return "The prices have changed since you confirmed. Press Resume to see what the rest costs now."
    await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
    account = await accounts.hold(connection, upload.account_id)
    # Read now that the account is ours: the turns of its messages follow those of its last ones.
    _, surroundings = await calls.read(connection, [], [account.id])
    refusal = _refuse(account, cost, Decimal(0), surroundings)
    if refusal is not None:
        return _say(refusal, len(chunk.recipients))
    batch, next_turns = _new_batch(upload, chunk, parcel, account, surroundings)
    spend(account, cost, local_day(surroundings))
    debit = Debit(account.id, batch.id, cost, None, None, b"")
    if batch.texts is None:
        await acceptance.accept(connection, [(account, cost)], next_turns, [batch], [debit])
    else:
        await acceptance.accept_texts(connection, account, next_turns, batch, debit)
    await uploads.mark_chunk_sent(connection, upload.id, chunk.number, batch.id)
    if account.fell_low:
        await tell_low_balances(connection, [account], surroundings.now)
    return None


def _new_batch(
    upload: Upload, chunk: Chunk, parcel: _Parcel, account: Held, surroundings: Surroundings
) -> tuple[NewBatch, Mapping[Flow, int]]:
    batch_id = BatchId(new_id(surroundings.now_us // 1000))
    # By the size of the file, so that its last few messages do not pass for somebody's passcodes.
    lane = turns.lane(upload.recipients)
    next_turns: dict[Flow, int] = {}
    runs = []
    for leg, segments in zip(parcel.quote.legs, parcel.leg_segments, strict=True):
        flow = (account.id, leg.country, lane)
        clock = surroundings.clocks.get((leg.country, lane), 0)
        next_turn = next_turns.get(flow, surroundings.next_turns.get(flow, 0))
        run = turns.run(clock, next_turn, segments, account.weight, leg.count)
        next_turns[flow] = run.next_turn
        runs.append(iter(range(run.first, run.next_turn, run.step)))
    quote = parcel.quote
    batch = NewBatch(
        id=batch_id,
        account_id=account.id,
        created_at=surroundings.now,
        request=SendRequest(CHANNEL, quote.numbers, upload.message, upload.reference, dry_run=False),
        quote=quote,
        lane=lane,
        message_ids=message_ids(batch_id, len(quote.numbers)),
        turns=[next(runs[leg]) for leg in quote.leg_of],
        texts=chunk.bodies,
        leg_segments=parcel.leg_segments,
    )
    return batch, next_turns


def _say(refusal: Refusal, count: int) -> str:
    detail = refusal.details[0] if refusal.details else {}
    match refusal:
        case AccountSuspended():
            return "The account was suspended. Ask the operator why, and press Resume when it may send again."
        case InsufficientBalance():
            return (
                f"The next {count:,} messages cost {_usd(detail['required'])} and the balance is "
                f"{_usd(detail['available'])}. Top up, and press Resume."
            )
        case SpendLimitReached() if "call_limit" in detail:
            return (
                f"The next {count:,} messages cost {_usd(detail['required'])}, more than the limit "
                "for a call. Raise it, and press Resume."
            )
        case SpendLimitReached():
            return (
                f"With the next {count:,} messages more than the limit for a day would be spent. Raise the "
                "limit or wait until midnight, and press Resume."
            )
    return f"{refusal.message} Press Resume to try again."


def _usd(amount: str) -> str:
    return f"US${money.write(Decimal(amount)).removesuffix('00')}"
