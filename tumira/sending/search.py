"""Search of an account's batches.

Each kind of search walks down its own index, the newest first: through the last few weeks, and through older
ones only while the page is not full. `recipients` searches for a number. Conditions outside the index are
checked row by row, up to a maximum of rows: a search that has found too little by then returns how far it
got, and can be continued from there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from tumira.core.ids import AccountId, BatchId, MessageId, message_bounds
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending import recipients
from tumira.sending.batches import BATCH_COLUMNS, HIGHEST_ID, Batch
from tumira.sending.lifecycle import BATCH_STATUSES
from tumira.sending.recipients import SentMessage

LOOK_MAX: Final = 10_000
# Lower, because searching a message in the pages that may hold it takes many times as long.
LOOK_MESSAGES_MAX: Final = 2_000
# Where few rows match, the next query reads this many times more.
_LOOK_FACTOR: Final = 4
WEEKS_AT_FIRST: Final = 4
# While the page is not full, the next query reads this many times more weeks.
_WEEKS_FACTOR: Final = 4

# As much of a text as a list has room for.
WORDS_MAX: Final = 100

LOWEST: Final = UUID(int=0)
HIGHEST: Final = HIGHEST_ID

_SMALLEST_REFUND: Final = Decimal("0.0001")


class BatchFilter(StrEnum):
    ANY = "any"
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    REFUNDED = "refunded"
    """With at least one refunded message."""


@dataclass(frozen=True, slots=True)
class Search:
    """Search conditions; ids contain the time, so `since` and `before` are also dates."""

    number: str | None = None
    reference: str | None = None
    standing: BatchFilter = BatchFilter.ANY
    since: UUID = LOWEST
    before: UUID = HIGHEST


class FoundBatch(Batch, frozen=True):
    """A batch with the first words of its text, and its message to the searched number, if there was one."""

    # None once the text is erased.
    words: str | None
    message_id: MessageId | None
    message_status: str | None


@dataclass(frozen=True, slots=True)
class Results:
    """A page of batches; if there may be older ones, they are before the batch `older`.

    `stopped_at` is how far back the search got before it had read the maximum of rows.
    """

    batches: Sequence[FoundBatch]
    older: BatchId | None
    stopped_at: datetime | None


_WORDS: Final = f"left(body, {WORDS_MAX}) AS words"
_FITS: Final = "status = ANY(%(statuses)s::text[]) AND refunded >= %(refunded_min)s"


class IndexWalk(Struct, frozen=True):
    """An index to walk down: the condition on its rows, and their order."""

    stretch: str
    order: str

    def through(self, weeks: Sequence[str]) -> Statement:
        return _walk(self, tuple(weeks))


# The last row that was read is returned even if it does not match: the search continues from there.
#
# The weeks are named, because with bounds of `id` PostgreSQL might take the primary key, through the batches
# of all accounts; and a query over all weeks would pay for each of them.
@lru_cache(maxsize=1024)
def _walk(way: IndexWalk, weeks: Sequence[str]) -> Statement:
    columns = f"{BATCH_COLUMNS}, body, account_id"
    together = " UNION ALL ".join(f"SELECT {columns} FROM {week}" for week in weeks)  # noqa: S608 - as below
    return Statement(f"""
SELECT {BATCH_COLUMNS}, words, fits, place = %(look_max)s AS is_last
  FROM (SELECT {BATCH_COLUMNS}, account_id, {_WORDS}, {_FITS} AS fits,
               row_number() OVER (ORDER BY {way.order}) AS place
          FROM ({together}) AS batches
         WHERE {way.stretch}
         ORDER BY {way.order}
         LIMIT %(look_max)s) AS near
 WHERE fits OR place = %(look_max)s
 ORDER BY {way.order}
 LIMIT %(count_max)s
""")  # noqa: S608 - constants, and names of tables of ours from the catalogue


# A generic plan depends on estimates: that bounds of `id` are narrow, and that one account has few rows, so
# that any index on it will do. So each search is a range of one index, in an order that no other index has.
_OF_ACCOUNT: Final = (
    "(account_id, id) >= (%(account_id)s, %(since)s) AND (account_id, id) < (%(account_id)s, %(before)s)"
)
_NEWEST: Final = "account_id DESC, id DESC"
RECENT: Final = IndexWalk(_OF_ACCOUNT, _NEWEST)
OPEN: Final = IndexWalk(f"completed_at IS NULL AND {_OF_ACCOUNT}", _NEWEST)
REFUNDED: Final = IndexWalk(f"refunded > 0 AND {_OF_ACCOUNT}", _NEWEST)
OF_REFERENCE: Final = IndexWalk(
    "account_id = %(account_id)s AND reference IS NOT NULL"
    " AND (reference, id) >= (%(reference)s, %(since)s) AND (reference, id) < (%(reference)s, %(before)s)",
    "reference DESC, id DESC",
)


async def search(
    connection: Connection,
    account_id: AccountId,
    wanted: Search,
    count_max: int,
    look_max: int | None = None,
) -> Results:
    """Return an account's matching batches, the newest first, at most `count_max`."""
    if wanted.number is not None:
        look_max = look_max or LOOK_MESSAGES_MAX
        assert 0 < count_max < look_max
        return await _search_number(connection, account_id, wanted, wanted.number, count_max, look_max)
    look_max = look_max or LOOK_MAX
    assert 0 < count_max < look_max
    way, own = _way(wanted)
    found: list[FoundBatch] = []
    weeks = await partitions.names_within(connection, "batches", wanted.since, wanted.before)
    for stretch in _stretches(weeks):
        rows = await way.through(stretch).rows(
            connection,
            account_id=account_id,
            **_fitting(wanted),
            look_max=look_max,
            # One extra row shows whether there are more.
            count_max=count_max + 1 - len(found),
            **own,
        )
        found.extend(_found(row, None) for row in rows if row["fits"])
        if len(found) > count_max:
            return Results(found[:count_max], found[count_max - 1].id, None)
        if rows and rows[-1]["is_last"]:
            return Results(found, rows[-1]["id"], rows[-1]["created_at"])
    return Results(found, None, None)


def _stretches(weeks: Sequence[str]) -> Iterator[Sequence[str]]:
    """Go back in time by growing steps: a busy account is served early, and no account needs many queries."""
    begin, count = 0, WEEKS_AT_FIRST
    while begin < len(weeks):
        yield weeks[begin : begin + count]
        begin, count = begin + count, count * _WEEKS_FACTOR


_STATUSES: Final[Mapping[BatchFilter, Sequence[str]]] = {
    BatchFilter.QUEUED: ["queued"],
    BatchFilter.PROCESSING: ["processing"],
    BatchFilter.COMPLETED: ["completed"],
}


def _fitting(wanted: Search) -> Mapping[str, Any]:
    return {
        "statuses": _STATUSES.get(wanted.standing, [*BATCH_STATUSES]),
        "refunded_min": _SMALLEST_REFUND if wanted.standing is BatchFilter.REFUNDED else Decimal(0),
    }


def _found(row: asyncpg.Record, sent: SentMessage | None) -> FoundBatch:
    return FoundBatch(
        **{name: row[name] for name in Batch.__struct_fields__},
        words=row["words"],
        message_id=None if sent is None else sent.id,
        message_status=None if sent is None else sent.status,
    )


def _way(wanted: Search) -> tuple[IndexWalk, Mapping[str, Any]]:
    """Choose the most selective index."""
    bounds = {"since": wanted.since, "before": wanted.before}
    if wanted.reference is not None:
        return OF_REFERENCE, {**bounds, "reference": wanted.reference}
    if wanted.standing in {BatchFilter.QUEUED, BatchFilter.PROCESSING}:
        return OPEN, bounds
    return REFUNDED if wanted.standing is BatchFilter.REFUNDED else RECENT, bounds


SQL_BATCHES_OF: Final = Statement(f"""
SELECT {BATCH_COLUMNS}, {_WORDS},
       {_FITS} AND reference IS NOT DISTINCT FROM coalesce(%(reference)s, reference) AS fits
  FROM batches
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
   AND account_id = %(account_id)s
""")  # noqa: S608 - only constants are put in


async def _search_number(
    connection: Connection,
    account_id: AccountId,
    wanted: Search,
    number: str,
    count_max: int,
    look_max: int,
) -> Results:
    """Find messages to the number, the newest first, and the batch of each."""
    found: list[FoundBatch] = []
    # The messages of the batch itself are not before it, whatever their ids end in.
    before = message_bounds(BatchId(wanted.before))[0]
    looked, turn, older, stopped_at = 0, count_max + 1, None, None
    while looked < look_max:
        turn = min(turn, look_max - looked)
        sent = await recipients.list_sent(
            connection, number, (wanted.since, before), turn, account_id=account_id
        )
        batches = await _batches_of(connection, account_id, wanted, sent)
        for one in sent:
            batch = batches.get(one.batch_id)
            if batch is not None and batch["fits"]:
                found.append(_found(batch, one))
            stopped_at = stopped_at if batch is None else batch["created_at"]
        if len(found) > count_max:
            return Results(found[:count_max], found[count_max - 1].id, None)
        if len(sent) < turn:
            return Results(found, None, None)
        before, older = sent[-1].id, sent[-1].batch_id
        looked += turn
        turn *= _LOOK_FACTOR
    return Results(found, older, stopped_at)


async def _batches_of(
    connection: Connection, account_id: AccountId, wanted: Search, sent: Sequence[SentMessage]
) -> Mapping[BatchId, asyncpg.Record]:
    if not sent:
        return {}
    ids = sorted({one.batch_id for one in sent})
    rows = await SQL_BATCHES_OF.rows(
        connection,
        ids=ids,
        low=ids[0],
        high=ids[-1],
        account_id=account_id,
        reference=wanted.reference,
        **_fitting(wanted),
    )
    return {row["id"]: row for row in rows}
