"""Does everything add up? Each check is a query for the rows that break a promise."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tumira.store.check import Check
from tumira.store.database import Database
from tumira.store.sql import Connection, Statement
from tumira.store.top_up_checks import TOP_UP_CHECKS

ROWS_SHOWN_MAX: Final = 20
AUDIT_TIMEOUT_S: Final = 6 * 3600

CHECKS: Final = (
    Check(
        "balance",
        "Every balance is the sum of the account's transfers.",
        Statement("""
SELECT a.id AS account_id, a.balance, coalesce(t.total, 0) AS transfers
  FROM accounts a
  LEFT JOIN (
       SELECT account_id, sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END) AS total
         FROM transfers
        GROUP BY account_id
       ) t ON t.account_id = a.id
 WHERE a.balance <> coalesce(t.total, 0)
    OR a.balance < 0
"""),
    ),
    Check(
        "batch_cost",
        "A batch's cost and number of recipients are those of its messages.",
        Statement("""
SELECT coalesce(b.id, m.batch_id) AS batch_id, b.total_cost, m.cost AS messages_cost,
       b.recipients, m.count AS messages
  FROM batches b
  FULL JOIN (
       SELECT batch_id, sum(cost) AS cost, count(*) AS count FROM messages GROUP BY batch_id
       ) m ON m.batch_id = b.id
 WHERE b.id IS NULL
    OR b.total_cost <> coalesce(m.cost, 0)
    OR b.recipients <> coalesce(m.count, 0)
"""),
    ),
    Check(
        "debit",
        "Every batch that costs something was debited once, from its own account, at its cost.",
        Statement("""
SELECT b.id AS batch_id, b.account_id, b.total_cost, t.account_id AS debited_account_id, t.amount
  FROM batches b
  LEFT JOIN transfers t ON t.batch_id = b.id AND t.message_id IS NULL
 WHERE b.total_cost <> coalesce(t.amount, 0)
    OR b.account_id <> t.account_id
"""),
    ),
    Check(
        "debit_without_batch",
        "Every debit belongs to a batch, as long as batches of its week are kept.",
        Statement("""
SELECT t.id AS transfer_id, t.batch_id, t.amount
  FROM transfers t
 WHERE t.batch_id >= (SELECT id FROM batches ORDER BY id LIMIT 1)
   AND t.message_id IS NULL
   AND NOT EXISTS (SELECT FROM batches b WHERE b.id = t.batch_id)
"""),
    ),
    Check(
        "refund",
        "Every refund returns the cost of one message of its own account, and the message says so.",
        Statement("""
SELECT coalesce(t.message_id, m.id) AS message_id, m.cost, m.refunded_at, t.amount
  FROM (SELECT * FROM transfers WHERE message_id IS NOT NULL) t
  FULL JOIN (SELECT * FROM messages WHERE refunded_at IS NOT NULL) m ON m.id = t.message_id
 WHERE t.message_id IS NULL AND m.cost > 0
    OR m.id IS NULL AND t.message_id >= (SELECT id FROM messages ORDER BY id LIMIT 1)
    OR t.amount <> m.cost
    OR t.account_id <> m.account_id
    OR t.batch_id <> m.batch_id
"""),
    ),
    Check(
        "refunded",
        "A batch's refunded amount is that of its messages.",
        Statement("""
SELECT b.id AS batch_id, b.refunded, coalesce(m.cost, 0) AS messages_refunded
  FROM batches b
  LEFT JOIN (
       SELECT batch_id, sum(cost) AS cost FROM messages WHERE refunded_at IS NOT NULL GROUP BY batch_id
       ) m ON m.batch_id = b.id
 WHERE b.refunded <> coalesce(m.cost, 0)
"""),
    ),
    Check(
        "owner",
        "Every message belongs to the account of its batch.",
        Statement("""
SELECT m.id AS message_id, m.account_id, b.account_id AS batch_account_id
  FROM messages m
  JOIN batches b ON b.id = m.batch_id
 WHERE m.account_id <> b.account_id
    OR NOT EXISTS (SELECT FROM accounts a WHERE a.id = m.account_id)
"""),
    ),
    Check(
        "waiting",
        "Every message that waits stands in exactly one of queue, in_flight and retries, and no other does.",
        Statement("""
SELECT coalesce(m.id, w.message_id) AS message_id, m.status, coalesce(w.places, 0) AS places
  FROM (SELECT id, status FROM messages WHERE status IN ('queued', 'sending')) m
  FULL JOIN (
       SELECT message_id, count(*) AS places
         FROM (SELECT message_id FROM queue
                UNION ALL
               SELECT message_id FROM in_flight
                UNION ALL
               SELECT message_id FROM retries) AS place
        GROUP BY message_id
       ) w ON w.message_id = m.id
 WHERE m.id IS NULL
    OR w.places IS DISTINCT FROM 1
"""),
    ),
    Check(
        "place",
        "A message in the queue is queued, one in flight is sending, and one put off is sending if in doubt.",
        Statement("""
SELECT m.id AS message_id, m.status, w.place
  FROM (SELECT message_id, 'queue' AS place, 'queued' AS status FROM queue
         UNION ALL
        SELECT message_id, 'in_flight', 'sending' FROM in_flight
         UNION ALL
        SELECT message_id, 'retries', CASE WHEN in_doubt THEN 'sending' ELSE 'queued' END FROM retries) w
  JOIN messages m ON m.id = w.message_id
 WHERE m.status IN ('queued', 'sending')
   AND m.status <> w.status
"""),
    ),
    Check(
        "pending",
        "A batch's pending count is that of its messages without a final status; it is completed at zero.",
        Statement("""
SELECT b.id AS batch_id, b.status, b.pending, coalesce(m.count, 0) AS messages_pending
  FROM batches b
  LEFT JOIN (
       SELECT batch_id, count(*) AS count
         FROM messages
        WHERE status IN ('queued', 'sending', 'sent')
        GROUP BY batch_id
       ) m ON m.batch_id = b.id
 WHERE b.pending <> coalesce(m.count, 0)
    OR (b.pending = 0) <> (b.status = 'completed')
    OR (b.pending = 0) <> (b.completed_at IS NOT NULL)
"""),
    ),
    Check(
        "hand_over",
        "Of a message that a carrier has or may have, a segment is known to be taken, or it was in doubt.",
        Statement("""
SELECT m.id AS message_id, m.status
  FROM messages m
 WHERE m.status IN ('sent', 'delivered', 'undelivered', 'unconfirmed')
   AND NOT EXISTS (SELECT FROM parts p WHERE p.message_id = m.id)
   AND NOT EXISTS (SELECT FROM incidents i WHERE i.message_id = m.id AND i.kind = 'doubt')
"""),
    ),
    Check(
        "refund_status",
        "Only a message that failed, expired or was not delivered is refunded.",
        Statement("""
SELECT id AS message_id, status, refunded_at
  FROM messages
 WHERE refunded_at IS NOT NULL
   AND status NOT IN ('failed', 'expired', 'undelivered')
"""),
    ),
    # An account's first events may be gone with their week; those that are left end at the counter.
    Check(
        "event_sequence",
        "The events of an account are numbered up to its counter, each number once and none left out.",
        Statement("""
SELECT e.account_id, c.last AS counter, e.first, e.last, e.count
  FROM (SELECT account_id, min(sequence) AS first, max(sequence) AS last, count(*) AS count,
               count(DISTINCT sequence) AS numbers
          FROM events
         -- A test of an endpoint has no number.
         WHERE type <> 'webhook.test'
         GROUP BY account_id) e
  LEFT JOIN event_counters c ON c.account_id = e.account_id
 WHERE c.last IS DISTINCT FROM e.last
    OR e.first < 1
    OR e.count <> e.last - e.first + 1
    OR e.count <> e.numbers
"""),
    ),
    # A message that a late receipt settled may have been told of as unconfirmed before.
    Check(
        "message_event",
        "Every final status and every refund of a message was told once, and nothing else was.",
        Statement("""
SELECT coalesce(m.id, e.message_id) AS message_id, coalesce(m.type, e.type) AS type,
       coalesce(e.count, 0) AS events
  FROM (SELECT id, 'message.' || status AS type, true AS due
          FROM messages
         WHERE status NOT IN ('queued', 'sending', 'sent')
         UNION ALL
        SELECT id, 'message.refunded', true FROM messages WHERE refunded_at IS NOT NULL
         UNION ALL
        SELECT id, 'message.unconfirmed', false
          FROM messages
         WHERE status IN ('delivered', 'undelivered', 'expired')) m
  FULL JOIN (
       SELECT message_id, type, count(*) AS count
         FROM events
        WHERE message_id IS NOT NULL
          AND type <> 'message.sent'
        GROUP BY message_id, type
       ) e ON e.message_id = m.id AND e.type = m.type
 WHERE m.due AND e.count IS DISTINCT FROM 1
    OR NOT m.due AND e.count > 1
    OR m.id IS NULL AND e.message_id >= (SELECT id FROM messages ORDER BY id LIMIT 1)
"""),
    ),
    Check(
        "batch_event",
        "The end of every batch with recipients was told once, and of no other.",
        Statement("""
SELECT coalesce(b.id, e.batch_id) AS batch_id, coalesce(e.count, 0) AS events
  FROM (SELECT id FROM batches WHERE completed_at IS NOT NULL AND recipients > 0) b
  FULL JOIN (
       SELECT batch_id, count(*) AS count FROM events WHERE type = 'batch.completed' GROUP BY batch_id
       ) e ON e.batch_id = b.id
 WHERE b.id IS NOT NULL AND e.count IS DISTINCT FROM 1
    OR b.id IS NULL AND e.batch_id >= (SELECT id FROM batches ORDER BY id LIMIT 1)
"""),
    ),
    Check(
        "event_owner",
        "Every event about a message or a batch is told to the account that it belongs to.",
        Statement("""
SELECT e.account_id, e.sequence, e.type, coalesce(m.account_id, b.account_id) AS owner_id
  FROM events e
  LEFT JOIN messages m ON m.id = e.message_id
  LEFT JOIN batches b ON b.id = e.batch_id
 WHERE m.account_id <> e.account_id
    OR b.account_id <> e.account_id
    OR m.batch_id <> e.batch_id
"""),
    ),
    Check(
        "idempotency",
        "Every remembered answer belongs to a batch of the same account.",
        Statement("""
SELECT i.account_id, i.key, i.batch_id
  FROM idempotency_keys i
  LEFT JOIN batches b ON b.id = i.batch_id
 WHERE b.account_id IS DISTINCT FROM i.account_id
"""),
    ),
    *TOP_UP_CHECKS,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: Check
    rows: Sequence[Mapping[str, Any]]


@asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[Connection]:
    """Lend a connection that sees one moment of the database, however long the checks take."""
    async with (
        database.connection() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        yield connection


async def run(connection: Connection, check: Check) -> Finding:
    """Carry out one check; of the rows that break it the first few are enough."""
    first = f"SELECT * FROM ({check.statement.text}) AS broken LIMIT {ROWS_SHOWN_MAX}"  # noqa: S608 - our own text
    rows = await connection.fetch(first, timeout=AUDIT_TIMEOUT_S)
    return Finding(check, [dict(row) for row in rows])
