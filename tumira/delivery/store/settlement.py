"""Writes the settlement of a group of messages, under locks taken in one order.

Messages first, then their batches, then the accounts that are refunded, then the event counters, then the
daily totals, each by key. Statements find rows by a list of ids and by its bounds, which select the weekly
partitions.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from tumira import events
from tumira.core.ids import AccountId, BatchId, MessageId
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
    refunded_at: datetime | None
    # When we came to hold it, by the database's clock.
    held_at: datetime
    # None for a message from before networks were stored.
    network: str | None


_LOCKED: Final = """
SELECT id, batch_id, account_id, country, recipient, status, segments, cost, refunded_at,
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


SQL_LOCK_ACCOUNTS: Final = Statement("""
SELECT id FROM accounts WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE
""")


async def lock_accounts(connection: Connection, ids: Sequence[AccountId]) -> None:
    await SQL_LOCK_ACCOUNTS.rows(connection, ids=ids)


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


# Times are passed once, and named by their places: they take long to encode, and many rows share one.
# In the order of their ids, as all writers lock messages: the changes are sorted, and a connection with
# `IN_KEY_ORDER` finds the rows in the order of their keys. A message in another status is not moved.
_MOVE: Final = """
moved AS (
    UPDATE messages
       SET status = change.status,
           sent_at = coalesce(messages.sent_at, (%(times)s::timestamptz[])[change.sent_at]),
           delivered_at = coalesce(messages.delivered_at, (%(times)s::timestamptz[])[change.delivered_at]),
           refunded_at = coalesce(messages.refunded_at, (%(times)s::timestamptz[])[change.refunded_at]),
           failure_reason = change.reason
      FROM unnest(%(ids)s::uuid[], %(olds)s::text[], %(statuses)s::text[], %(sent_ats)s::integer[],
                  %(delivered_ats)s::integer[], %(refunded_ats)s::integer[], %(reasons)s::text[])
           AS change (id, old, status, sent_at, delivered_at, refunded_at, reason)
     WHERE messages.id = change.id
       AND messages.id = ANY(%(ids)s::uuid[])
       AND messages.id BETWEEN %(low)s AND %(high)s
       AND messages.status = change.old
 RETURNING 1
)"""

# Only after the messages are locked.
_AFTER: Final = "(SELECT count(*) FROM moved) >= 0"

_LET_GO: Final = f"""
let_go AS (
    DELETE FROM in_flight WHERE message_id = ANY(%(landed_ids)s::uuid[]) AND {_AFTER} RETURNING 1
)"""  # noqa: S608 - only a constant is put in

_PARTS: Final = """
    INSERT INTO parts (message_id, number, attempt, carrier_id, reference, carrier_ref, carrier_key,
                       claimed_at, submitted_at, answered_at, state, error, receipt, received_at, cost,
                       currency, cost_usd, sender)
    SELECT message_id, number, attempt, carrier_id, reference, carrier_ref, carrier_key,
           (%(times)s::timestamptz[])[claimed_at], (%(times)s::timestamptz[])[submitted_at],
           (%(times)s::timestamptz[])[answered_at], state, error, receipt,
           (%(times)s::timestamptz[])[received_at], (%(costs)s::numeric[])[cost],
           (%(currencies)s::text[])[cost], (%(costs_usd)s::numeric[])[cost], sender
      FROM unnest(%(part_message_id)s::uuid[], %(part_number)s::smallint[], %(part_attempt)s::smallint[],
                  %(part_carrier_id)s::integer[], %(part_reference)s::smallint[],
                  %(part_carrier_ref)s::text[], %(part_carrier_key)s::text[], %(part_claimed_at)s::integer[],
                  %(part_submitted_at)s::integer[], %(part_answered_at)s::integer[], %(part_state)s::text[],
                  %(part_error)s::text[], %(part_receipt)s::text[], %(part_received_at)s::integer[],
                  %(part_cost)s::integer[], %(part_sender)s::text[])
           AS part (message_id, number, attempt, carrier_id, reference, carrier_ref, carrier_key, claimed_at,
                    submitted_at, answered_at, state, error, receipt, received_at, cost, sender)
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
) -> Written:
    """Write the decisions about messages; `landed` are those no longer in flight.

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
    parameters |= {"low": min(ids, default=None), "high": max(ids, default=None), "landed_ids": landed}
    statement = SQL_SETTLE
    if parts:
        statement = SQL_RECORD_AND_SETTLE if reports or batches else SQL_RECORD
        parameters |= _parts(parts, times)
    if statement is not SQL_RECORD:
        parameters |= times.columns(PartReport, reports, "report_") | columns(BatchChange, batches, "batch_")
        batch_ids = parameters["batch_id"]
        parameters["batch_low"] = batch_low(min(batch_ids)) if batch_ids else None
        parameters["batch_high"] = batch_high(max(batch_ids)) if batch_ids else None
    parameters["times"] = times.values
    rows = await statement.rows(connection, **parameters)
    moved, let_go = rows[0][:2]
    return Written(moved, let_go, [ClosedBatch(*row[2:]) for row in rows] if batches else ())


def _parts(parts: Collection[NewPart], times: Times) -> dict[str, Any]:
    """Return the columns of segments; costs as places too, because many segments share one."""
    found = times.columns(NewPart, parts, "part_")
    found["part_cost"], costs = by_place(found["part_cost"])
    return found | named_columns("costs currencies costs_usd", costs)


def _changes(changes: Collection[MessageChange], times: Times) -> dict[str, Any]:
    by_id = sorted(changes, key=_message_id)
    return {
        "ids": [change.message.id for change in by_id],
        "olds": [change.message.status for change in by_id],
        "statuses": [change.status for change in by_id],
        "sent_ats": times.places(change.sent_at for change in by_id),
        "delivered_ats": times.places(change.delivered_at for change in by_id),
        "refunded_ats": times.places(change.refunded_at for change in by_id),
        "reasons": column([change.reason for change in by_id]),
    }


def _message_id(change: MessageChange) -> MessageId:
    return change.message.id


# The event counters are locked before the daily totals.
SQL_TELL: Final = Statement(f"WITH {events.RECORD}, {daily_totals.COUNT} SELECT 0")


async def tell(
    connection: Connection, new: Sequence[NewEvent], at: datetime, ended: Mapping[DayKey, Mapping[str, int]]
) -> None:
    """Write events with the next numbers of their accounts, and count the ends of the day."""
    if ended:
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


SQL_REFUND: Final = Statement("""
WITH credited AS (
    UPDATE accounts
       SET balance = balance + credit.amount
      FROM unnest(%(account_ids)s::uuid[], %(totals)s::numeric[]) AS credit (account_id, amount)
     WHERE accounts.id = credit.account_id
       AND accounts.id = ANY(%(account_ids)s::uuid[])
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)
    SELECT account_id, 'revenue', 'customer', amount, batch_id, message_id
      FROM unnest(%(owner_ids)s::uuid[], %(amounts)s::numeric[], %(batch_ids)s::uuid[],
                  %(message_ids)s::uuid[]) AS refund (account_id, amount, batch_id, message_id)
)
SELECT 0
""")


async def refund(connection: Connection, messages: Sequence[LockedMessage]) -> None:
    totals: dict[AccountId, Decimal] = {}
    for one in messages:
        totals[one.account_id] = totals.get(one.account_id, Decimal(0)) + one.cost
    await SQL_REFUND.value(
        connection,
        account_ids=list(totals),
        totals=list(totals.values()),
        owner_ids=[one.account_id for one in messages],
        amounts=[one.cost for one in messages],
        batch_ids=[one.batch_id for one in messages],
        message_ids=[one.id for one in messages],
    )
