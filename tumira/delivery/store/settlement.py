"""Writes the settlement of a group of messages, under locks taken in one order.

Messages first, then their batches, then the accounts that are refunded, then the event counters, then the
daily totals and the margins, each by key. Statements find rows by a list of ids and by its bounds, which
select the weekly partitions.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from tumira import events
from tumira.core.ids import AccountId, BatchId, MessageId
from tumira.delivery.store import margins
from tumira.delivery.store.margins import MarginRow
from tumira.delivery.store.queue import batch_high, batch_low
from tumira.events import NewEvent
from tumira.postgres.columns import Times, by_place, column, columns, named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending import daily_totals
from tumira.sending.daily_totals import DayKey


class LockedMessage(Struct, frozen=True):
    """A message under a row lock."""

    id: MessageId
    batch_id: BatchId
    account_id: AccountId
    country: str
    recipient: str
    status: str
    segments: int
    cost: Decimal
    # When we came to hold it, by the database's clock.
    held_at: datetime
    # None for a message from before networks were stored.
    network: str | None


_LOCKED: Final = """
SELECT id, batch_id, account_id, country, recipient, status, segments, cost,
       clock_timestamp() AS held_at, network
  FROM messages
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
 ORDER BY id
   FOR NO KEY UPDATE
"""

SQL_LOCK: Final = Statement(_LOCKED)
SQL_LOCK_FREE: Final = Statement(_LOCKED + "SKIP LOCKED")


async def lock_messages(
    connection: Connection, ids: Sequence[UUID], *, skip_locked: bool = False
) -> Mapping[UUID, LockedMessage]:
    statement = SQL_LOCK_FREE if skip_locked else SQL_LOCK
    rows = await statement.rows(connection, ids=ids, low=min(ids), high=max(ids))
    return {row[0]: LockedMessage(*row) for row in rows}


SQL_STATES: Final = Statement("""
SELECT message_id, number, state, error
  FROM parts
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND message_id BETWEEN %(low)s AND %(high)s
   AND state IS NOT NULL
 ORDER BY received_at
""")


async def list_states(
    connection: Connection, ids: Sequence[UUID]
) -> Sequence[tuple[UUID, int, str, str | None]]:
    rows = await SQL_STATES.rows(connection, ids=ids, low=min(ids), high=max(ids))
    return [tuple(row) for row in rows]


SQL_NUMBERS: Final = Statement("""
SELECT DISTINCT message_id, number
  FROM parts
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND message_id BETWEEN %(low)s AND %(high)s
""")


async def list_numbers(connection: Connection, ids: Sequence[UUID]) -> Sequence[tuple[UUID, int]]:
    rows = await SQL_NUMBERS.rows(connection, ids=ids, low=min(ids), high=max(ids))
    return [tuple(row) for row in rows]


SQL_LOCK_BATCHES: Final = Statement("""
SELECT
  FROM batches
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
 ORDER BY id
   FOR NO KEY UPDATE
""")


async def lock_batches(connection: Connection, ids: Sequence[BatchId]) -> None:
    await SQL_LOCK_BATCHES.rows(connection, ids=ids, low=min(ids), high=max(ids))


class MessageChange(Struct):
    """The new status of a locked message; a time that is None stays as it was."""

    message: LockedMessage
    status: str
    sent_at: datetime | None = None
    delivered_at: datetime | None = None
    refunded_at: datetime | None = None
    reason: str | None = None


class NewPart(Struct, gc=False):
    message_id: MessageId
    number: int
    attempt: int
    carrier_id: int
    reference: int | None
    carrier_ref: str
    carrier_key: str
    claimed_at: datetime
    submitted_at: datetime
    answered_at: datetime
    state: str | None = None
    error: str | None = None
    receipt: str | None = None
    received_at: datetime | None = None
    # The amount, its currency, and the same in US dollars.
    cost: tuple[Decimal, str, Decimal] | None = None
    # The name or number under which it was submitted.
    sender: str | None = None


# What many segments share, beside their cost, and the rest.
_SHARED: Final = ("number", "attempt", "carrier_id", "sender")
_OWN: Final = [name for name in NewPart.__struct_fields__ if name not in {*_SHARED, "cost"}]


class PartReport(Struct, frozen=True):
    message_id: MessageId
    number: int
    attempt: int
    state: str
    error: str | None
    receipt: str
    received_at: datetime


class BatchChange(Struct, frozen=True):
    id: BatchId
    settled: int
    refunded: Decimal


# What many rows share is passed once, and named by its place (`by_place`). Rows are locked in the order of
# their ids, as by all writers: the changes are sorted, and a connection with `IN_KEY_ORDER` finds them in the
# order of their keys. A message in another status is not moved.
_MOVE: Final = """
moved AS (
    UPDATE messages
       SET status = (%(statuses)s::text[])[coalesce(change.kind, 1)],
           sent_at = coalesce(messages.sent_at, (%(times)s::timestamptz[])[change.sent_at]),
           delivered_at = coalesce(messages.delivered_at, (%(times)s::timestamptz[])[change.delivered_at]),
           refunded_at = coalesce(messages.refunded_at, (%(times)s::timestamptz[])[change.refunded_at]),
           failure_reason = change.reason
      FROM unnest(%(ids)s::uuid[], %(change_kinds)s::integer[], %(sent_ats)s::integer[],
                  %(delivered_ats)s::integer[], %(refunded_ats)s::integer[], %(reasons)s::text[])
           AS change (id, kind, sent_at, delivered_at, refunded_at, reason)
     WHERE messages.id = change.id
       AND messages.id = ANY(%(ids)s::uuid[])
       AND messages.id BETWEEN %(low)s AND %(high)s
       AND messages.status = (%(olds)s::text[])[coalesce(change.kind, 1)]
 RETURNING 1
)"""

# Only after the messages are locked.
_AFTER: Final = "(SELECT count(*) FROM moved) >= 0"

# With NULL all of the messages were in flight.
_LET_GO: Final = f"""
let_go AS (
    DELETE FROM in_flight
     WHERE message_id = ANY(coalesce(%(landed_ids)s::uuid[], %(ids)s::uuid[]))
       AND {_AFTER}
 RETURNING 1
)"""  # noqa: S608 - only a constant is put in

_PARTS: Final = """
    INSERT INTO parts (message_id, number, attempt, carrier_id, reference, carrier_ref, carrier_key,
                       claimed_at, submitted_at, answered_at, state, error, receipt, received_at, cost,
                       currency, cost_usd, sender)
    SELECT message_id, (%(numbers)s::smallint[])[kind], (%(attempts)s::smallint[])[kind],
           (%(carrier_ids)s::integer[])[kind], reference, carrier_ref, coalesce(carrier_key, carrier_ref),
           (%(times)s::timestamptz[])[claimed_at], (%(times)s::timestamptz[])[submitted_at],
           (%(times)s::timestamptz[])[answered_at], state, error, receipt,
           (%(times)s::timestamptz[])[received_at], (%(costs)s::numeric[])[kind],
           (%(currencies)s::text[])[kind], (%(costs_usd)s::numeric[])[kind], (%(senders)s::text[])[kind]
      FROM (SELECT *, coalesce(place, 1) AS kind
              FROM unnest(%(part_message_id)s::uuid[], %(part_kinds)s::integer[],
                          %(part_reference)s::smallint[], %(part_carrier_ref)s::text[],
                          %(part_carrier_key)s::text[], %(part_claimed_at)s::integer[],
                          %(part_submitted_at)s::integer[], %(part_answered_at)s::integer[],
                          %(part_state)s::text[], %(part_error)s::text[], %(part_receipt)s::text[],
                          %(part_received_at)s::integer[])
                   AS given (message_id, place, reference, carrier_ref, carrier_key, claimed_at, submitted_at,
                             answered_at, state, error, receipt, received_at)) AS part
"""
_TAKE: Final = f"taken AS ({_PARTS})"

_REPORT: Final = """
reported AS (
    UPDATE parts
       SET state = report.state, error = report.error, receipt = report.receipt,
           received_at = (%(times)s::timestamptz[])[report.received_at]
      FROM unnest(%(report_message_id)s::uuid[], %(report_number)s::smallint[],
                  %(report_attempt)s::smallint[], %(report_state)s::text[], %(report_error)s::text[],
                  %(report_receipt)s::text[], %(report_received_at)s::integer[])
           AS report (message_id, number, attempt, state, error, receipt, received_at)
     WHERE parts.message_id = report.message_id
       AND parts.number = report.number
       AND parts.attempt = report.attempt
       AND parts.message_id = ANY(%(report_message_id)s::uuid[])
       AND parts.message_id BETWEEN %(low)s AND %(high)s
)"""

# A batch that was completed before stays so when a late receipt refunds one of its messages.
_CLOSE: Final = f"""
closed AS (
    UPDATE batches
       SET pending = pending - change.settled,
           refunded = batches.refunded + change.refunded,
           status = CASE WHEN pending = change.settled THEN 'completed' ELSE status END,
           completed_at = CASE WHEN pending = change.settled AND change.settled > 0
                               THEN clock_timestamp() ELSE completed_at END
      FROM unnest(%(batch_id)s::uuid[], %(batch_settled)s::integer[], %(batch_refunded)s::numeric[])
           AS change (id, settled, refunded)
     WHERE batches.id = change.id
       AND batches.id = ANY(%(batch_id)s::uuid[])
       AND batches.id BETWEEN %(batch_low)s AND %(batch_high)s
       AND {_AFTER}
 RETURNING batches.id, batches.account_id, batches.created_at, batches.pending, batches.total_cost,
           batches.refunded
)"""  # noqa: S608 - only a constant is put in

_COUNTS: Final = "(SELECT count(*) FROM moved) AS moved, (SELECT count(*) FROM let_go) AS let_go"
_CLOSED: Final = f"SELECT * FROM (SELECT {_COUNTS}) AS counts LEFT JOIN closed ON true"  # noqa: S608 - as above

SQL_RECORD: Final = Statement(f"WITH {_MOVE}, {_LET_GO}, {_TAKE} SELECT {_COUNTS}")
SQL_RECORD_AND_ADD: Final = Statement(
    f"WITH {_MOVE}, {_LET_GO}, {_TAKE}, {margins.adding(_AFTER)} SELECT {_COUNTS}"
)
SQL_SETTLE: Final = Statement(f"WITH {_MOVE}, {_LET_GO}, {_REPORT}, {_CLOSE} {_CLOSED}")
SQL_RECORD_AND_SETTLE: Final = Statement(f"WITH {_MOVE}, {_LET_GO}, {_TAKE}, {_REPORT}, {_CLOSE} {_CLOSED}")


class ClosedBatch(Struct, frozen=True, gc=False):
    """A batch after the change."""

    id: BatchId
    account_id: AccountId
    created_at: datetime
    # Messages that are not final; with none the batch is completed.
    pending: int
    total_cost: Decimal
    refunded: Decimal


class Written(Struct, frozen=True):
    """How many messages were still in their old status, how many were in flight, and the batches."""

    moved: int
    landed: int
    batches: Sequence[ClosedBatch] = ()


async def write(
    connection: Connection,
    changes: Collection[MessageChange],
    landed: Sequence[UUID],
    parts: Collection[NewPart],
    reports: Collection[PartReport],
    batches: Sequence[BatchChange],
    totals: Sequence[MarginRow] = (),
) -> Written:
    """Write the decisions about messages; `landed` are those no longer in flight.

    `totals` come with new segments alone, if nothing is written later.
    Messages that are not locked yet are locked here, by id, and then their batches: the connection has the
    settings `KEY_LOOKUPS` and `IN_KEY_ORDER` then.
    """
    if not changes and not landed and not parts and not reports:
        return Written(0, 0)
    times = Times()
    parameters = _changes(changes, times)
    ids = parameters["ids"]
    if reports:
        ids = [*ids, *(report.message_id for report in reports)]
    parameters |= {
        "low": min(ids, default=None),
        "high": max(ids, default=None),
        "landed_ids": None if changes and len(landed) == len(changes) else landed,
    }
    statement = SQL_SETTLE
    if parts:
        statement = SQL_RECORD_AND_SETTLE if reports or batches else SQL_RECORD
        parameters |= _parts(parts, times)
    if totals:
        assert statement is SQL_RECORD
        statement = SQL_RECORD_AND_ADD
        parameters |= margins.parameters(totals)
    elif statement is not SQL_RECORD:
        parameters |= times.columns(PartReport, reports, "report_") | columns(BatchChange, batches, "batch_")
        batch_ids = parameters["batch_id"]
        parameters["batch_low"] = batch_low(min(batch_ids)) if batch_ids else None
        parameters["batch_high"] = batch_high(max(batch_ids)) if batch_ids else None
    parameters["times"] = times.values
    rows = await statement.rows(connection, **parameters)
    moved, let_go = rows[0][:2]
    return Written(moved, let_go, [ClosedBatch(*row[2:]) for row in rows] if batches else ())


def _parts(parts: Collection[NewPart], times: Times) -> dict[str, Any]:
    found = times.columns(NewPart, parts, "part_", _OWN)
    if found["part_carrier_key"] == found["part_carrier_ref"]:
        found["part_carrier_key"] = []
    found["part_kinds"], kinds = by_place(map(attrgetter(*_SHARED, "cost"), parts))
    costs = [cost or (None, None, None) for *_, cost in kinds]
    return (
        found
        | named_columns("numbers attempts carrier_ids senders", kinds)
        | named_columns("costs currencies costs_usd", costs)
    )


def _changes(changes: Collection[MessageChange], times: Times) -> dict[str, Any]:
    by_id = sorted(changes, key=_message_id)
    change_kinds, moves = by_place((change.message.status, change.status) for change in by_id)
    return {
        "ids": [change.message.id for change in by_id],
        "change_kinds": change_kinds,
        **named_columns("olds statuses", moves),
        "sent_ats": times.places(change.sent_at for change in by_id),
        "delivered_ats": times.places(change.delivered_at for change in by_id),
        "refunded_ats": times.places(change.refunded_at for change in by_id),
        "reasons": column([change.reason for change in by_id]),
    }


def _message_id(change: MessageChange) -> MessageId:
    return change.message.id


# The event counters are locked before the daily totals and the margins.
SQL_TELL: Final = Statement(f"WITH {events.RECORD}, {daily_totals.COUNT} SELECT 0")
SQL_TELL_AND_ADD: Final = Statement(
    f"WITH {events.RECORD}, {daily_totals.COUNT}, {margins.adding(events.AFTER_COUNTERS)} SELECT 0"
)


async def tell(
    connection: Connection,
    new: Sequence[NewEvent],
    at: datetime,
    ended: Mapping[DayKey, Mapping[str, int]],
    totals: Sequence[MarginRow] = (),
) -> None:
    """Write events with the next numbers of their accounts, and add to the totals of the day."""
    if totals:
        counted = daily_totals.parameters(ended) | margins.parameters(totals)
        await SQL_TELL_AND_ADD.value(connection, **events.parameters(new, at), **counted)
    elif ended:
        counted = daily_totals.parameters(ended)
        await SQL_TELL.value(connection, **events.parameters(new, at), **counted)
    else:
        await events.record_events(connection, new, at)


# A late answer may come for a segment that another one has recorded already.
SQL_ADD_PARTS_ONCE: Final = Statement(
    _PARTS + "ON CONFLICT (message_id, number, attempt) DO NOTHING RETURNING message_id, number, attempt"
)


async def add_parts_once(
    connection: Connection, parts: Mapping[tuple[UUID, int, int], NewPart]
) -> Sequence[NewPart]:
    """Record segments that a carrier took, unless they are recorded already; return those that were not."""
    times = Times()
    parameters = _parts(parts.values(), times)
    rows = await SQL_ADD_PARTS_ONCE.rows(connection, **parameters, times=times.values)
    return [parts[tuple(row)] for row in rows]
