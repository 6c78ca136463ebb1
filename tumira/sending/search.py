"""Which batches did an account send, and what became of one of them?

Each way to search walks down an index of its own, the newest first: through the last few weeks, and through
those before only as long as a page is not full. A number is looked for as `recipients` says. What the index
does not know is looked at row by row, but never at more than so many rows at once: a search that has found
too little by then says how far it got, and goes on from there when it is asked to.
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
from tumira.sending.recipients import Sent

LOOK_MAX: Final = 10_000
# Each message is looked for among the pages that may hold it, which takes many times as long.
LOOK_MESSAGES_MAX: Final = 2_000
# Where few of them fit, so many times more are looked at the next time.
_LOOK_FACTOR: Final = 4
MESSAGES_MAX: Final = 1_000
WEEKS_AT_FIRST: Final = 4
# As long as a page is not full, so many times more weeks are looked through the next time.
_WEEKS_FACTOR: Final = 4

LOWEST: Final = UUID(int=0)
HIGHEST: Final = UUID(int=(1 << 128) - 1)

_SMALLEST_REFUND: Final = Decimal("0.0001")


class Standing(StrEnum):
    """Where the batches that are looked for stand."""

    ANY = "any"
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    REFUNDED = "refunded"
    """Of some of its messages the price was paid back."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for; ids tell the time, so `since` and `before` also are the dates."""

    number: str | None = None
    reference: str | None = None
    standing: Standing = Standing.ANY
    since: UUID = LOWEST
    before: UUID = HIGHEST


@dataclass(frozen=True, slots=True)
class Found:
    """A batch, and its message to the number that was looked for, if one was."""

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
    """A page of batches; where there may be older ones, `older` is the batch before which they are.

    `stopped_at` tells how far back the search got before it had looked at too many others.
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
    """An index to walk down: the rows that it has of what is looked for, and their order."""

    stretch: str
    order: str

    def through(self, weeks: Sequence[str]) -> Statement:
        """Return the statement that walks through these weeks."""
        return _walk(self, tuple(weeks))


# The last row that was looked at is returned even if it does not fit: from there the search goes on.
#
# The weeks are named, because bounds of `id` would let PostgreSQL take the primary key, past everybody's
# batches; and whoever asks all weeks for their newest batch of an account pays for each of them.
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


# Planned without values, a plan depends on guesses: of bounds of `id` alone, that they are narrow; of one
# account among many, that it has few, and then any index does that begins with it. So each way is a stretch
# of one index, in an order that no other has.
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
    """Return an account's batches that fit, the newest first, at most `count_max`."""
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
            # One more than is shown tells whether there are more.
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
    """Go back in time by ever longer steps: who has sent a lot is soon served, and nobody asks often."""
    begin, count = 0, WEEKS_AT_FIRST
    while begin < len(weeks):
        yield weeks[begin : begin + count]
        begin, count = begin + count, count * _WEEKS_FACTOR


_STATUSES: Final[Mapping[Standing, Sequence[str]]] = {
    Standing.QUEUED: ["queued"],
    Standing.PROCESSING: ["processing"],
    Standing.COMPLETED: ["completed"],
}


def _fitting(wanted: Search) -> Mapping[str, Any]:
    return {
        "statuses": _STATUSES.get(wanted.standing, [*BATCH_STATUSES]),
        "refunded_min": _SMALLEST_REFUND if wanted.standing is Standing.REFUNDED else Decimal(0),
    }


def _found(row: asyncpg.Record, sent: Sent | None) -> Found:
    message = (None, None) if sent is None else (sent.id, sent.status)
    return Found(*(row[name] for name in _NAMES), *message)


def _way(wanted: Search) -> tuple[Way, Mapping[str, Any]]:
    """Choose the index that leads past the fewest other batches."""
    bounds = {"since": wanted.since, "before": wanted.before}
    if wanted.reference is not None:
        return OF_REFERENCE, {**bounds, "reference": wanted.reference}
    if wanted.standing in {Standing.QUEUED, Standing.PROCESSING}:
        return OPEN, bounds
    return REFUNDED if wanted.standing is Standing.REFUNDED else RECENT, bounds


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
    """Look for messages to the number, the newest first, and from each for its batch."""
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
    connection: Connection, account_id: AccountId, wanted: Search, sent: Sequence[Sent]
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
class Batch:
    """A batch with its text, which is None once it was erased."""

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
    # Whether it came from a file, each of whose rows has a text of its own.
    has_places: bool


SQL_FIND: Final = Statement(f"""
SELECT {_COLUMNS}, body,
       EXISTS (SELECT FROM upload_chunks WHERE batch_id = %(batch_id)s AND bodies IS NOT NULL) AS has_places
  FROM batches
 WHERE id = %(batch_id)s
   AND account_id = %(account_id)s
""")  # noqa: S608 - only constants are put in


async def find(connection: Connection, account_id: AccountId, batch_id: BatchId) -> Batch | None:
    """Return an account's batch; None for an unknown one and for somebody else's."""
    row = await SQL_FIND.row(connection, account_id=account_id, batch_id=batch_id)
    return None if row is None else Batch(*row)


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
    """Return how many messages of an account's batch stand where, for every status."""
    low, high = message_bounds(batch_id)
    rows = await SQL_COUNT.rows(connection, low=low, high=high, batch_id=batch_id, account_id=account_id)
    return dict.fromkeys(MESSAGE_STATUSES, 0) | {row["status"]: row["count"] for row in rows}


# A batch has a thousand messages at most, so those of other statuses are soon passed over.
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
