"""The work of web and worker, measured straight on a database of some size."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final

from tests.load.growth_fill import BIG, CARRIER, STEADY
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import send_call
from tumira.accounts import store as accounts
from tumira.api.schemas import write_sent
from tumira.carriers import store as carriers
from tumira.core.ids import AccountId, BatchId, MessageId, first_id, made_at_ms, message_ids, new_id
from tumira.delivery.lanes import Room
from tumira.delivery.outcomes import Reported, Taken
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.settle import settle
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.delivery.store.settlement import NewPart
from tumira.operations.maintenance import MAINTENANCE_TASKS, MaintenanceTask
from tumira.postgres.pool import KEY_LOOKUPS, PLANNED_ONCE, Database
from tumira.pricing.legs import split_by_network
from tumira.pricing.quote import Leg, Quote, ValidRequest
from tumira.sending import batches, insert
from tumira.sending import search as search_batches
from tumira.sending.batcher import Batcher
from tumira.sending.insert import Debit, NewBatch
from tumira.sending.search import BatchFilter, Search
from tumira.sending.types import Answered

BODY: Final = "Your code is 493817. Do not share it with anyone, ever."
RECIPIENTS: Final = 1_000
CALLS: Final = 20
SINGLES: Final = 2_048
TOGETHER: Final = 64
CALLERS: Final = 16
CLAIM: Final = 500
GROUP: Final = 250
LOOK_UPS: Final = 200
FOLLOWED: Final = 20
PAGES: Final = 20
SEARCHES: Final = 5
PAGE: Final = 25
WORKER: Final = "growth"
LARGE: Final = "^(messages|batches|parts|events|incidents|transfers)(_|$)"

# A message of a batch of a hundred.
SQL_SAMPLE: Final = """
SELECT message.id, message.batch_id, message.account_id, message.recipient
  FROM (SELECT id FROM batches WHERE id >= $1 AND recipients = 100 ORDER BY id LIMIT 1) AS batch
 CROSS JOIN LATERAL (SELECT * FROM messages WHERE id >= batch.id ORDER BY id LIMIT 1) AS message
"""

# What this connection has read so far: tables from end to end, and rows by indexes.
SQL_READ: Final = """
SELECT coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint
  FROM pg_stat_xact_user_tables
 WHERE relname ~ $1
"""


@dataclass(frozen=True, slots=True)
class Known:
    """A message that was there before."""

    id: MessageId
    batch_id: BatchId
    account_id: AccountId
    recipient: str


@dataclass(frozen=True, slots=True)
class Side:
    """A database of some size, as a web process and a worker see it."""

    name: str
    url: str
    web: Database
    worker: Database
    batcher: Batcher
    callers: Sequence[Caller]
    carrier_id: int
    known: Sequence[Known]
    middle: BatchId
    # What was claimed and is not settled yet.
    claimed: list[ClaimedMessage] = field(default_factory=list)


@asynccontextmanager
async def open_side(name: str, url: str) -> AsyncIterator[Side]:
    web, worker = Database(url, settings=PLANNED_ONCE), Database(url, settings=KEY_LOOKUPS)
    batcher = Batcher(web, write_sent)
    try:
        callers = [await new_caller(url, "10000000", 1_000_000) for _ in range(CALLERS)]
        async with web.connection() as connection:
            carrier_id = next(one.id for one in await carriers.list_active(connection) if one.name == CARRIER)
            oldest = made_at_ms(await connection.fetchval("SELECT id FROM batches ORDER BY id LIMIT 1"))
            span = int(datetime.now(UTC).timestamp() * 1000) - oldest
            ids = [first_id(oldest + int(span * random.random())) for _ in range(10 * LOOK_UPS)]
            rows = [await connection.fetchrow(SQL_SAMPLE, one) for one in ids]
            known = [Known(*row) for row in rows if row is not None]
            middle = first_id(oldest + span // 2)
        yield Side(name, url, web, worker, batcher, callers, carrier_id, known, BatchId(middle))
    finally:
        await batcher.close()
        await web.close()
        await worker.close()


Measured = dict[str, float]


def _number() -> str:
    return f"+26377{random.randrange(10_000_000):07}"


async def accept_many(side: Side) -> Measured:
    """Write calls with many recipients, one after the other, as `make bench` does."""
    caller = side.callers[0]
    connection = await side.web.connect()
    numbers = [[_number() for _ in range(RECIPIENTS)] for _ in range(CALLS)]
    try:
        began = time.perf_counter()
        for turn, to in enumerate(numbers):
            quote = Quote(
                to, [0] * RECIPIENTS, [Leg("ZW", Decimal("0.04"), RECIPIENTS)], [], 1, Decimal(40), 1
            )
            batch_id = BatchId(new_id(time.time_ns() // 1_000_000))
            new = NewBatch(
                batch_id,
                caller.id,
                datetime.now(UTC),
                ValidRequest("sms", to, BODY, None, dry_run=False),
                quote,
                1,
                message_ids(batch_id, RECIPIENTS),
                range(turn * RECIPIENTS * 1000, (turn + 1) * RECIPIENTS * 1000, 1000),
                *split_by_network(quote, None, {}),
                timedelta(days=1),
            )
            async with connection.transaction():
                await insert.insert_batch(connection, new)
                account = await accounts.lock(connection, caller.id)
                debit = Debit(caller.id, batch_id, Decimal(40), None, None, b"{}")
                await insert.write(connection, [(account, debit.amount)], {}, [], [debit], {})
        rate = CALLS * RECIPIENTS / (time.perf_counter() - began)
        return {"accept of 1,000 recipients, messages/s": rate}
    finally:
        await connection.close()


async def accept_single(side: Side) -> Measured:
    calls = [send_call(side.callers[place % CALLERS], [_number()], BODY) for place in range(SINGLES)]
    began = time.perf_counter()
    for first in range(0, SINGLES, TOGETHER):
        decisions = await asyncio.gather(
            *(side.batcher.ask(call) for call in calls[first : first + TOGETHER])
        )
        assert all(isinstance(decision, Answered) for decision in decisions)
    return {"accept of single sends in groups, calls/s": SINGLES / (time.perf_counter() - began)}


async def claim(side: Side) -> Measured:
    wanted = [ClaimRequest("ZW", CLAIM, 0, CLAIM, 0, 0)]
    side.claimed.clear()
    began = time.perf_counter()
    while True:
        async with side.worker.transaction() as connection:
            claimed = await queue.claim(
                connection,
                wanted,
                Room(CLAIM, 0, CLAIM),
                worker=WORKER,
                bind="growth/1",
                carrier_id=side.carrier_id,
            )
        if claimed is None:
            return {"claim, messages/s": len(side.claimed) / (time.perf_counter() - began)}
        side.claimed.extend(claimed)


async def settle_answers(side: Side) -> Measured:
    rate = await _settle(side, [_taken(side, one) for one in side.claimed])
    return {"settle answers, messages/s": rate}


async def settle_receipts(side: Side) -> Measured:
    rate = await _settle(side, [_reported(side, one) for one in side.claimed])
    return {"settle receipts, messages/s": rate}


async def _settle(side: Side, outcomes: Sequence[Taken | Reported]) -> float:
    began = time.perf_counter()
    for first in range(0, len(outcomes), GROUP):
        async with side.worker.transaction() as connection:
            await settle(connection, outcomes[first : first + GROUP], worker=WORKER)
    return len(outcomes) / (time.perf_counter() - began)


def _taken(side: Side, claimed: ClaimedMessage) -> Taken:
    """Say that the carrier took it, under an id that tells nothing of the order, which is the worst case."""
    reference = claimed.id.hex[-8:]
    now = datetime.now(UTC)
    part = NewPart(claimed.id, 1, 0, side.carrier_id, None, reference, reference, now, now, now)
    return Taken(claimed.id, part, complete=True)


def _reported(side: Side, claimed: ClaimedMessage) -> Reported:
    receipt = Receipt(claimed.id.hex[-8:], claimed.recipient[1:], "DELIVRD", "000", "stat:DELIVRD")
    return Reported(claimed.id, 1, 0, side.carrier_id, receipt, datetime.now(UTC))


async def _timed(count: int, work: Callable[[], Awaitable[object]]) -> float:
    """Return how many milliseconds a piece of work takes, on the average."""
    began = time.perf_counter()
    for _ in range(count):
        await work()
    return (time.perf_counter() - began) * 1000 / count


async def look_up(side: Side) -> Measured:
    async with side.web.connection() as connection:

        async def message() -> None:
            one = random.choice(side.known)
            assert await batches.find_message(connection, one.account_id, one.id) is not None

        async def batch(among: Sequence[Known]) -> None:
            one = random.choice(among)
            assert await batches.find(connection, one.account_id, one.batch_id) is not None
            assert (await batches.list_messages(connection, one.account_id, one.batch_id))[0]

        return {
            "look-up of a message, ms": await _timed(LOOK_UPS, message),
            # As somebody does who follows what was sent.
            "look-up of a batch with its messages, ms": await _timed(
                LOOK_UPS, partial(batch, side.known[:FOLLOWED])
            ),
            # Its pages may have to come from the disk.
            "look-up of a batch that nobody looked at for long, ms": await _timed(
                LOOK_UPS, partial(batch, side.known)
            ),
        }


async def show_pages(side: Side) -> Measured:
    searches: Mapping[str, Search] = {
        "first page": Search(),
        "a page in the middle": Search(before=side.middle),
        "refunded": Search(standing=BatchFilter.REFUNDED),
        "waiting": Search(standing=BatchFilter.QUEUED),
        "a common reference": Search(reference="passcode"),
        "a reference of one": Search(reference="invoice 3"),
    }
    found: Measured = {}
    async with side.web.connection() as connection:
        for owner, account_id in (("small", STEADY), ("big", BIG)):
            for name, search in searches.items():

                async def page(account_id: AccountId = account_id, search: Search = search) -> None:
                    await search_batches.search(connection, account_id, search, PAGE)

                await page()
                found[f"batches of a {owner} account: {name}, ms"] = await _timed(PAGES, page)
    return found


async def search_numbers(side: Side) -> Measured:
    own = [one for one in side.known if one.account_id == BIG]
    async with side.web.connection() as connection:

        async def there() -> None:
            one = random.choice(own)
            results = await search_batches.search(connection, BIG, Search(number=one.recipient), PAGE)
            assert one.batch_id in {batch.id for batch in results.batches}

        async def nowhere() -> None:
            results = await search_batches.search(connection, BIG, Search(number="+263771200001"), PAGE)
            assert len(results.batches) < PAGE

        await nowhere()
        return {
            "search by a number that got some, ms": await _timed(SEARCHES, there),
            "search by a number that got none, ms": await _timed(SEARCHES, nowhere),
        }


# In this order, because each leaves something for the next.
WORK: Final = (
    accept_many,
    accept_single,
    claim,
    settle_answers,
    settle_receipts,
    look_up,
    show_pages,
    search_numbers,
)


async def measure_chores(side: Side) -> Mapping[str, tuple[float, int, int]]:
    """Do each task; return its milliseconds, and what it read of large tables whole and by indexes."""
    found = {}
    for task in MAINTENANCE_TASKS:
        if not isinstance(task, MaintenanceTask):
            continue
        async with side.worker.transaction() as connection:
            before = await connection.fetchrow(SQL_READ, LARGE)
            began = time.perf_counter()
            await task.do(connection)
            took_ms = (time.perf_counter() - began) * 1000
            after = await connection.fetchrow(SQL_READ, LARGE)
            assert before is not None
            assert after is not None
            found[task.name] = (took_ms, after[0] - before[0], after[1] - before[1])
    return found
