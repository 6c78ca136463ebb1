"""Which messages went to a number?

Nothing stands in the order of numbers, because every message would be written to some page of its own there.
Each week has an index of summaries instead, one for every 32 pages, which tells the pages that may hold a
number and is read whole. What it leads to comes in no order, so a search that finds too much at once looks
at half of the time, again and again, until it finds few enough to put in order.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import lru_cache
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import AccountId, BatchId, MessageId, first_id
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.partitions import Week
from tumira.postgres.statement import Statement

# To look costs about as much as the pages of so many messages.
LOOK_MIN: Final = 100
# A look at each week, and two for every bit of an id.
LOOKS_MAX: Final = 2_000


class Sent(Struct, frozen=True):
    """A message to the number."""

    id: MessageId
    batch_id: BatchId
    account_id: AccountId
    status: str


SQL_REACH: Final = Statement("SELECT up_to, clock_timestamp() AS now FROM number_retention")


async def list_sent(
    connection: Connection,
    number: str,
    bounds: tuple[UUID, UUID],
    count_max: int,
    *,
    account_id: AccountId | None = None,
    newest_first: bool = True,
) -> Sequence[Sent]:
    """Return messages to a number, from one account or all, with ids from the first bound to below the other.

    They are in order, and the first `count_max` that there are in that order.
    """
    assert count_max > 0
    found: list[Sent] = []
    async with _by_summaries(connection):
        spans = await _spans(connection, bounds, newest_first=newest_first)
        for _ in range(LOOKS_MAX):
            if not spans or len(found) >= count_max:
                break
            week = spans.pop()
            look_max = max(LOOK_MIN, count_max - len(found))
            seen = await _look(connection, week, number, account_id, look_max + 1)
            if len(seen) > look_max:
                spans.extend(_in_order(_halves(week), newest_first=not newest_first))
            else:
                found.extend(sorted(seen, key=lambda one: one.id, reverse=newest_first))
        else:
            raise AssertionError("a search that halves its way has an end")
    return found[:count_max]


@asynccontextmanager
async def _by_summaries(connection: Connection) -> AsyncIterator[None]:
    """Let no table be read whole; PostgreSQL believes that these summaries do not narrow anything down."""
    asking = connection.transaction()
    await asking.start()
    try:
        await connection.execute(
            "SET LOCAL enable_seqscan = off; SET LOCAL max_parallel_workers_per_gather = 0"
        )
        yield
    finally:
        # Nothing was written. Undone, the settings are what they were, also inside a longer transaction.
        await asking.rollback()


async def _spans(connection: Connection, bounds: tuple[UUID, UUID], *, newest_first: bool) -> list[Week]:
    """Return the weeks to look at, each cut down to the bounds, the first one last."""
    reach = await SQL_REACH.row(connection)
    assert reach is not None
    now: datetime = reach["now"]
    # Older numbers are whole no more, and the weeks ahead are empty.
    low = max(bounds[0], reach["up_to"])
    high = min(bounds[1], first_id(int((now + partitions.AHEAD).timestamp() * 1000)))
    cut = [
        Week(week.name, week.parent, max(low, week.low), min(high, week.high))
        for week in await partitions.list_weeks(connection, "messages")
        if week.low < high and low < week.high
    ]
    return _in_order([week for week in cut if week.low < week.high], newest_first=not newest_first)


def _in_order(weeks: Iterable[Week], *, newest_first: bool) -> list[Week]:
    return sorted(weeks, key=lambda week: week.low, reverse=newest_first)


def _halves(week: Week) -> Sequence[Week]:
    middle = UUID(int=(week.low.int + week.high.int) // 2)
    return [
        Week(week.name, week.parent, week.low, middle),
        Week(week.name, week.parent, middle, week.high),
    ]


# The week is named, and its bounds are asked for in the words of the index, not in those of the primary key:
# PostgreSQL takes any two bounds of a key for narrow, and would walk through the whole week by that.
@lru_cache(maxsize=512)
def look_at(week: str) -> Statement:
    """Return the statement that looks for a number in one week."""
    return Statement(f"""
SELECT id, batch_id, account_id, status
  FROM {week}
 WHERE recipient = %(number)s
   AND uuid_send(id) >= uuid_send(%(low)s::uuid)
   AND uuid_send(id) < uuid_send(%(high)s::uuid)
   AND account_id = coalesce(%(account_id)s::uuid, account_id)
 LIMIT %(count_max)s
""")  # noqa: S608 - the name of a table of ours, from the catalogue


async def _look(
    connection: Connection, week: Week, number: str, account_id: AccountId | None, count_max: int
) -> Sequence[Sent]:
    rows = await look_at(week.name).rows(
        connection,
        number=number,
        low=week.low,
        high=week.high,
        account_id=account_id,
        count_max=count_max,
    )
    return [Sent(*row) for row in rows]
