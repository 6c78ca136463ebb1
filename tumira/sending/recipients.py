"""Search for the messages to a number.

There is no B-tree on numbers, because every insert would touch a page of its own there. Each week has a BRIN
index instead, with one summary for 32 pages, which is read whole and yields the pages that may hold a number.
Its results are unordered, so a search that finds too much at once halves its time span until it finds few
enough to sort.
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

# One search of a span costs about as much as reading the pages of this many messages.
LOOK_MIN: Final = 100
# One for each week, and two for every bit of an id.
LOOKS_MAX: Final = 2_000


class SentMessage(Struct, frozen=True):
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
) -> Sequence[SentMessage]:
    """Return the first `count_max` messages to a number, of one account or all, with ids in the bounds."""
    assert count_max > 0
    found: list[SentMessage] = []
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
            raise AssertionError("a search that halves its span must end")
    return found[:count_max]


@asynccontextmanager
async def _by_summaries(connection: Connection) -> AsyncIterator[None]:
    """Forbid sequential scans: PostgreSQL estimates that the summaries do not narrow anything down."""
    asking = connection.transaction()
    await asking.start()
    try:
        await connection.execute(
            "SET LOCAL enable_seqscan = off; SET LOCAL max_parallel_workers_per_gather = 0"
        )
        yield
    finally:
        # Nothing was written. The rollback restores the settings, also inside a longer transaction.
        await asking.rollback()


async def _spans(connection: Connection, bounds: tuple[UUID, UUID], *, newest_first: bool) -> list[Week]:
    """Return the weeks to search, each limited to the bounds, the first one last."""
    reach = await SQL_REACH.row(connection)
    assert reach is not None
    now: datetime = reach["now"]
    # Older numbers are masked, and the weeks ahead are empty.
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


# The week is named, and its bounds use the expression of the BRIN index, not the primary key: PostgreSQL
# estimates that two bounds of a key are narrow, and would walk through the whole week by it.
@lru_cache(maxsize=512)
def look_at(week: str) -> Statement:
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
) -> Sequence[SentMessage]:
    rows = await look_at(week.name).rows(
        connection,
        number=number,
        low=week.low,
        high=week.high,
        account_id=account_id,
        count_max=count_max,
    )
    return [SentMessage(*row) for row in rows]


class SentText(Struct, frozen=True):
    """What was sent to a number; the text is None once it is erased."""

    id: MessageId
    status: str
    text: str | None


SQL_LIST_TEXTS: Final = Statement("""
SELECT m.id, m.status, coalesce(m.body, b.body) AS text
  FROM messages m
  JOIN batches b ON b.id = m.batch_id
 WHERE m.id = ANY(%(ids)s::uuid[])
   AND m.id BETWEEN %(low)s AND %(high)s
   AND m.account_id = %(account_id)s
   AND b.id = ANY(%(batch_ids)s::uuid[])
   AND b.id BETWEEN %(batch_low)s AND %(batch_high)s
 ORDER BY m.id DESC
""")


async def list_texts(
    connection: Connection, account_id: AccountId, sent: Sequence[SentMessage]
) -> Sequence[SentText]:
    """Return the texts of an account's messages, newest first."""
    if not sent:
        return []
    ids, batch_ids = [one.id for one in sent], [one.batch_id for one in sent]
    rows = await SQL_LIST_TEXTS.rows(
        connection,
        account_id=account_id,
        ids=ids,
        low=min(ids),
        high=max(ids),
        batch_ids=batch_ids,
        batch_low=min(batch_ids),
        batch_high=max(batch_ids),
    )
    return [SentText(*row) for row in rows]
