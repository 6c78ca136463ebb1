"""Search of an account's batches, and the details of one of them.

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
from tumira.sending.batches import Message
from tumira.sending.lifecycle import BATCH_STATUSES, MESSAGE_STATUSES
from tumira.sending.recipients import SentMessage

LOOK_MAX: Final = 10_000
# Lower, because searching a message in the pages that may hold it takes many times as long.
LOOK_MESSAGES_MAX: Final = 2_000
# Where few rows match, the next query reads this many times more.
_LOOK_FACTOR: Final = 4
MESSAGES_MAX: Final = 1_000
WEEKS_AT_FIRST: Final = 4
# While the page is not full, the next query reads this many times more weeks.
_WEEKS_FACTOR: Final = 4

LOWEST: Final = UUID(int=0)
HIGHEST: Final = UUID(int=(1 << 128) - 1)

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


@dataclass(frozen=True, slots=True)
class Found:
    """A batch, and its message to the searched number, if there was one."""

    id: BatchId
    reference: str | None
    status: str
    recipients: int
    pending: int
    segments: int
    total_cost: Decimal
    refunded: Decimal
    created_at: datetime
    completed_at: datetime | None
    message_id: MessageId | None
    message_status: str | None


@dataclass(frozen=True, slots=True)
class Results:
    """A page of batches; if there may be older ones, they are before the batch `older`.

    `stopped_at` is how far back the search got before it had read the maximum of rows.
    """

    batches: Sequence[Found]
    older: BatchId | None
    stopped_at: datetime | None


_COLUMNS: Final = (
    "id, reference, status, recipients, pending, segments, total_cost, refunded, created_at, completed_at"
)
_NAMES: Final = _COLUMNS.split(", ")
_FITS: Final = "status = ANY(%(statuses)s::text[]) AND refunded >= %(refunded_min)s"


class Way(Struct, frozen=True):
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
def _walk(way: Way, weeks: Sequence[str]) -> Statement:
    columns = f"{_COLUMNS}, account_id"
    together = " UNION ALL ".join(f"SELECT {columns} FROM {week}" for week in weeks)  # noqa: S608 - as below
    return Statement(f"""
SELECT {_COLUMNS}, fits, place = %(look_max)s AS is_last
  FROM (SELECT {columns}, {_FITS} AS fits, row_number() OVER (ORDER BY {way.order}) AS place
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
RECENT: Final = Way(_OF_ACCOUNT, _NEWEST)
OPEN: Final = Way(f"completed_at IS NULL AND {_OF_ACCOUNT}", _NEWEST)
REFUNDED: Final = Way(f"refunded > 0 AND {_OF_ACCOUNT}", _NEWEST)
OF_REFERENCE: Final = Way(
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
    found: list[Found] = []
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


def _found(row: asyncpg.Record, sent: SentMessage | None) -> Found:
    message = (None, None) if sent is None else (sent.id, sent.status)
    return Found(*(row[name] for name in _NAMES), *message)


def _way(wanted: Search) -> tuple[Way, Mapping[str, Any]]:
    """Choose the most selective index."""
    bounds = {"since": wanted.since, "before": wanted.before}
    if wanted.reference is not None:
        return OF_REFERENCE, {**bounds, "reference": wanted.reference}
    if wanted.standing in {BatchFilter.QUEUED, BatchFilter.PROCESSING}:
        return OPEN, bounds
    return REFUNDED if wanted.standing is BatchFilter.REFUNDED else RECENT, bounds


SQL_BATCHES_OF: Final = Statement(f"""
SELECT {_COLUMNS}, {_FITS} AND reference IS NOT DISTINCT FROM coalesce(%(reference)s, reference) AS fits
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
    found: list[Found] = []
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


@dataclass(frozen=True, slots=True)
class BatchDetails:
    """A batch with its text, which is None once erased."""

    id: BatchId
    reference: str | None
    status: str
    recipients: int
    pending: int
    segments: int
    total_cost: Decimal
    refunded: Decimal
    created_at: datetime
    completed_at: datetime | None
    body: str | None
    # Whether it came from a file whose rows have their own texts.
    has_places: bool


SQL_FIND: Final = Statement(f"""
SELECT {_COLUMNS}, body,
       EXISTS (SELECT FROM upload_chunks WHERE batch_id = %(batch_id)s AND bodies IS NOT NULL) AS has_places
  FROM batches
 WHERE id = %(batch_id)s
   AND account_id = %(account_id)s
""")  # noqa: S608 - only constants are put in


async def find(connection: Connection, account_id: AccountId, batch_id: BatchId) -> BatchDetails | None:
    """Return an account's batch; None for an unknown one and for another account's."""
    row = await SQL_FIND.row(connection, account_id=account_id, batch_id=batch_id)
    return None if row is None else BatchDetails(*row)


# The messages of a batch are found by the primary key.
SQL_COUNT: Final = Statement("""
SELECT status, count(*) AS count
  FROM messages
 WHERE id BETWEEN %(low)s AND %(high)s
   AND batch_id = %(batch_id)s
   AND account_id = %(account_id)s
 GROUP BY status
""")


async def count_messages(
    connection: Connection, account_id: AccountId, batch_id: BatchId
) -> Mapping[str, int]:
    """Count the messages of an account's batch by status."""
    low, high = message_bounds(batch_id)
    rows = await SQL_COUNT.rows(connection, low=low, high=high, batch_id=batch_id, account_id=account_id)
    return dict.fromkeys(MESSAGE_STATUSES, 0) | {row["status"]: row["count"] for row in rows}


# A batch has a thousand messages at most, so skipping other statuses is cheap.
SQL_LIST_MESSAGES: Final = Statement("""
SELECT id, recipient, country, status, segments, cost, sent_at, delivered_at, failure_reason, refunded_at
  FROM messages
 WHERE id BETWEEN %(low)s AND %(high)s
   AND batch_id = %(batch_id)s
   AND account_id = %(account_id)s
   AND status = ANY(%(statuses)s::text[])
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_messages(
    connection: Connection,
    account_id: AccountId,
    batch_id: BatchId,
    count_max: int,
    *,
    status: str | None = None,
    after: MessageId | None = None,
) -> tuple[Sequence[Message], bool]:
    """Return messages of an account's batch in the order of its recipients, and whether there are more."""
    assert 0 < count_max <= MESSAGES_MAX
    low, high = message_bounds(batch_id)
    if after is not None:
        low = max(low, UUID(int=min(after.int + 1, HIGHEST.int)))
    rows = await SQL_LIST_MESSAGES.rows(
        connection,
        low=low,
        high=high,
        batch_id=batch_id,
        account_id=account_id,
        statuses=[*MESSAGE_STATUSES] if status is None else [status],
        count_max=count_max + 1,
    )
    return [Message(*row) for row in rows[:count_max]], len(rows) > count_max
