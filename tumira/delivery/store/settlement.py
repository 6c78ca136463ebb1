"""Writes the settlement of a group of messages, under locks taken in one order.

Messages first, then their batches, then the accounts that are refunded, then the event counters, then the
daily totals, each by key. Statements find rows by a list of ids and by its bounds, which select the weekly
partitions.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from msgspec import Struct, structs

from tumira.core.ids import AccountId, BatchId, MessageId
from tumira.delivery.store.queue import batch_high, batch_low
from tumira.postgres.columns import columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


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


_LOCKED: Final = """
SELECT id, batch_id, account_id, country, recipient, status, segments, cost, refunded_at,
       clock_timestamp() AS held_at
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


class LockedBatch(Struct, frozen=True, gc=False):
    """A batch under a row lock."""

    id: BatchId
    account_id: AccountId
    created_at: datetime
    # Messages that are not final; with none the batch is completed.
    pending: int
    total_cost: Decimal
    refunded: Decimal


SQL_LOCK_BATCHES: Final = Statement("""
SELECT id, account_id, created_at, pending, total_cost, refunded
  FROM batches
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
 ORDER BY id
   FOR NO KEY UPDATE
""")


async def lock_batches(connection: Connection, ids: Sequence[BatchId]) -> Mapping[BatchId, LockedBatch]:
    rows = await SQL_LOCK_BATCHES.rows(connection, ids=ids, low=min(ids), high=max(ids))
    return {row[0]: LockedBatch(*row) for row in rows}


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
    completed: bool


_MOVE: Final = """
moved AS (
    UPDATE messages
       SET status = change.status,
           sent_at = coalesce(messages.sent_at, change.sent_at),
           delivered_at = coalesce(messages.delivered_at, change.delivered_at),
           refunded_at = coalesce(messages.refunded_at, change.refunded_at),
           failure_reason = change.reason
      FROM unnest(%(ids)s::uuid[], %(statuses)s::text[], %(sent_ats)s::timestamptz[],
                  %(delivered_ats)s::timestamptz[], %(refunded_ats)s::timestamptz[], %(reasons)s::text[])
           AS change (id, status, sent_at, delivered_at, refunded_at, reason)
     WHERE messages.id = change.id
       AND messages.id = ANY(%(ids)s::uuid[])
       AND messages.id BETWEEN %(low)s AND %(high)s
)"""

_LET_GO: Final = """
let_go AS (
    DELETE FROM in_flight WHERE message_id = ANY(%(landed_ids)s::uuid[]) RETURNING 1
)"""

_REPORT: Final = """
reported AS (
    UPDATE parts
       SET state = report.state, error = report.error, receipt = report.receipt,
           received_at = report.received_at
      FROM unnest(%(report_message_id)s::uuid[], %(report_number)s::smallint[],
                  %(report_attempt)s::smallint[], %(report_state)s::text[], %(report_error)s::text[],
                  %(report_receipt)s::text[], %(report_received_at)s::timestamptz[])
           AS report (message_id, number, attempt, state, error, receipt, received_at)
     WHERE parts.message_id = report.message_id
       AND parts.number = report.number
       AND parts.attempt = report.attempt
       AND parts.message_id = ANY(%(report_message_id)s::uuid[])
       AND parts.message_id BETWEEN %(low)s AND %(high)s
)"""

_CLOSE: Final = """
closed AS (
    UPDATE batches
       SET pending = pending - change.settled,
           refunded = batches.refunded + change.refunded,
           status = CASE WHEN change.completed THEN 'completed' ELSE status END,
           completed_at = CASE WHEN change.completed THEN clock_timestamp() ELSE completed_at END
      FROM unnest(%(batch_id)s::uuid[], %(batch_settled)s::integer[], %(batch_refunded)s::numeric[],
                  %(batch_completed)s::boolean[]) AS change (id, settled, refunded, completed)
     WHERE batches.id = change.id
       AND batches.id = ANY(%(batch_id)s::uuid[])
       AND batches.id BETWEEN %(batch_low)s AND %(batch_high)s
)"""

_LANDED: Final = "SELECT count(*) FROM let_go"

SQL_RECORD: Final = Statement(f"WITH {_MOVE}, {_LET_GO}, {_REPORT} {_LANDED}")
SQL_SETTLE: Final = Statement(f"WITH {_MOVE}, {_LET_GO}, {_REPORT}, {_CLOSE} {_LANDED}")


async def write(
    connection: Connection,
    changes: Sequence[MessageChange],
    landed: Sequence[UUID],
    reports: Sequence[PartReport],
    batches: Sequence[BatchChange],
) -> int:
    """Write the decisions about locked messages; `landed` are those no longer in flight.

    Return how many of these were in flight.
    """
    ids = [*(change.message.id for change in changes), *(report.message_id for report in reports)]
    parameters = {
        **_changes(changes),
        "low": min(ids, default=None),
        "high": max(ids, default=None),
        "landed_ids": landed,
        **columns(PartReport, reports, "report_"),
    }
    if batches:
        batch_ids = [batch.id for batch in batches]
        bounds = {"batch_low": batch_low(min(batch_ids)), "batch_high": batch_high(max(batch_ids))}
        changed = columns(BatchChange, batches, "batch_")
        return int(await SQL_SETTLE.value(connection, **parameters, **changed, **bounds))
    if changes or landed or reports:
        return int(await SQL_RECORD.value(connection, **parameters))
    return 0


def _changes(changes: Sequence[MessageChange]) -> dict[str, Any]:
    return {
        "ids": [change.message.id for change in changes],
        "statuses": [change.status for change in changes],
        "sent_ats": [change.sent_at for change in changes],
        "delivered_ats": [change.delivered_at for change in changes],
        "refunded_ats": [change.refunded_at for change in changes],
        "reasons": [change.reason for change in changes],
    }


async def add_parts(connection: Connection, parts: Sequence[NewPart]) -> None:
    await connection.copy_records_to_table(
        "parts", records=map(structs.astuple, parts), columns=NewPart.__struct_fields__
    )


# A late answer may come for a segment that another one has recorded already.
SQL_ADD_PART_ONCE: Final = Statement("""
INSERT INTO parts (message_id, number, attempt, carrier_id, reference, carrier_ref, carrier_key, claimed_at,
                   submitted_at, answered_at, state, error, receipt, received_at)
VALUES (%(message_id)s, %(number)s, %(attempt)s, %(carrier_id)s, %(reference)s, %(carrier_ref)s,
        %(carrier_key)s, %(claimed_at)s, %(submitted_at)s, %(answered_at)s, %(state)s, %(error)s,
        %(receipt)s, %(received_at)s)
    ON CONFLICT (message_id, number, attempt) DO NOTHING
""")


async def add_parts_once(connection: Connection, parts: Sequence[NewPart]) -> None:
    """Record segments that a carrier took, unless they are recorded already."""
    await SQL_ADD_PART_ONCE.each(connection, [structs.asdict(part) for part in parts])


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


SQL_REFUND_RULES: Final = Statement("SELECT id, refund FROM carriers")


async def list_refund_rules(connection: Connection) -> Mapping[int, frozenset[str]]:
    return {row["id"]: frozenset(row["refund"]) for row in await SQL_REFUND_RULES.rows(connection)}
