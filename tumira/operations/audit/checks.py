"""Checks of the audit: each is a promise, and a query for the rows that break it.

Events are kept for weeks, messages for years. They are compared as far as both tables go: all messages
younger than the oldest event (by an hour, for clocks that differ); of older ones, that no event was recorded
twice.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tumira.core.translation import mark
from tumira.operations.audit.money_checks import (
    BALANCE_CHECK,
    HELD_CHECKS,
    MONEY_BY_DAY_CHECK,
    PAPER_CHECKS,
    TOP_UP_CHECKS,
    Check,
)
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class AuditScope:
    """The batches and messages to check, in SQL, with the bounds of their ids."""

    batches: str
    messages: str
    low: str
    high: str


# What is below the border is gone with its week, or goes, and nothing is compared with it.
ALL_KEPT: Final = AuditScope(
    batches="(SELECT * FROM batches WHERE id >= (SELECT id FROM kept_from WHERE kind = 'messages'))",
    messages="(SELECT * FROM messages WHERE id >= (SELECT id FROM kept_from WHERE kind = 'messages'))",
    low="(SELECT id FROM kept_from WHERE kind = 'messages')",
    high="'ffffffff-ffff-ffff-ffff-ffffffffffff'",
)

# By the name of the check: its promise, and its query with places for what is looked at.
_SETTLED: Final = {
    "batch_cost": (
        mark("A batch has the cost and the number of recipients of its messages."),
        """
SELECT coalesce(b.id, m.batch_id) AS batch_id, b.total_cost, m.cost AS messages_cost,
       b.recipients, m.count AS messages
  FROM {batches} b
  FULL JOIN (
       SELECT batch_id, sum(cost) AS cost, count(*) AS count FROM {messages} message GROUP BY batch_id
       ) m ON m.batch_id = b.id
 WHERE b.id IS NULL
    OR b.total_cost <> coalesce(m.cost, 0)
    OR b.recipients <> coalesce(m.count, 0)
""",
    ),
    "debit": (
        mark("Every batch with a cost was debited once, for that cost, from its own account."),
        """
SELECT b.id AS batch_id, b.account_id, b.total_cost, t.account_id AS debited_account_id, t.amount
  FROM {batches} b
  LEFT JOIN transfers t ON t.batch_id = b.id AND t.message_id IS NULL
 WHERE b.total_cost <> coalesce(t.amount, 0)
    OR b.account_id <> t.account_id
""",
    ),
    "debit_without_batch": (
        mark("Every debit belongs to a batch (for the weeks that are kept)."),
        """
SELECT t.id AS transfer_id, t.batch_id, t.amount
  FROM transfers t
 WHERE t.batch_id >= {low}
   AND t.batch_id < {high}
   AND t.message_id IS NULL
   AND NOT EXISTS (SELECT FROM {batches} b WHERE b.id = t.batch_id)
""",
    ),
    "refund": (
        mark("Every refund is the cost of one message of the same account, and that message says so."),
        """
SELECT coalesce(t.message_id, m.id) AS message_id, m.cost, m.refunded_at, t.amount
  FROM (SELECT * FROM transfers WHERE message_id >= {low} AND message_id < {high}) t
  FULL JOIN (SELECT * FROM {messages} message WHERE refunded_at IS NOT NULL) m ON m.id = t.message_id
 WHERE t.message_id IS NULL AND m.cost > 0
    OR m.id IS NULL
    OR t.amount <> m.cost
    OR t.account_id <> m.account_id
    OR t.batch_id <> m.batch_id
""",
    ),
    "refunded": (
        mark("A batch's refunded amount is the sum of the refunds of its messages."),
        """
SELECT b.id AS batch_id, b.refunded, coalesce(m.cost, 0) AS messages_refunded
  FROM {batches} b
  LEFT JOIN (
       SELECT batch_id, sum(cost) AS cost
         FROM {messages} message
        WHERE refunded_at IS NOT NULL
        GROUP BY batch_id
       ) m ON m.batch_id = b.id
 WHERE b.refunded <> coalesce(m.cost, 0)
""",
    ),
    "owner": (
        mark("Every message belongs to the same account as its batch."),
        """
SELECT m.id AS message_id, m.account_id, b.account_id AS batch_account_id
  FROM {messages} m
  JOIN {batches} b ON b.id = m.batch_id
 WHERE m.account_id <> b.account_id
    OR NOT EXISTS (SELECT FROM accounts a WHERE a.id = m.account_id)
""",
    ),
    "pending": (
        mark("A batch counts its messages without a final status, and is completed when there are none."),
        """
SELECT b.id AS batch_id, b.status, b.pending, coalesce(m.count, 0) AS messages_pending
  FROM {batches} b
  LEFT JOIN (
       SELECT batch_id, count(*) AS count
         FROM {messages} message
        WHERE status IN ('queued', 'sending', 'sent')
        GROUP BY batch_id
       ) m ON m.batch_id = b.id
 WHERE b.pending <> coalesce(m.count, 0)
    OR (b.pending = 0) <> (b.status = 'completed')
    OR (b.pending = 0) <> (b.completed_at IS NOT NULL)
""",
    ),
    "refund_status": (
        mark("Only messages that failed, expired or were not delivered are refunded."),
        """
SELECT id AS message_id, status, refunded_at
  FROM {messages} message
 WHERE refunded_at IS NOT NULL
   AND status NOT IN ('failed', 'expired', 'undelivered')
""",
    ),
}


def settled_checks(scope: AuditScope) -> Sequence[Check]:
    """Return the checks that hold for batches after all their messages have ended."""
    return [
        Check(name, promise, Statement(query.format(**asdict(scope))))
        for name, (promise, query) in _SETTLED.items()
    ]


# These look at what is under way. No week with such messages is dropped, so that one without its message is
# broken however old it is.
WAITING_CHECKS: Final = (
    Check(
        "waiting",
        mark("Every waiting message is in exactly one of queue, in_flight and retries; no other message is."),
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
        mark(
            "Messages in the queue are queued, those in flight are sending, and those in doubt are sending."
        ),
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
)

# A hand-over takes minutes at most, and a doubt ends soon after it is due. Without a worker nothing ends, and
# that is seen elsewhere.
SENDING_CHECK: Final = Check(
    "sending",
    mark("While workers run, no message is stuck in submission or in doubt for more than half an hour."),
    Statement("""
SELECT waits.message_id, waits.place, waits.since
  FROM (SELECT message_id, 'in_flight' AS place, claimed_at AS since FROM in_flight
         UNION ALL
        SELECT message_id, 'retries', due_at FROM retries WHERE in_doubt) AS waits
 WHERE waits.since < now() - interval '30 minutes'
   AND EXISTS (SELECT FROM workers
                WHERE started_at < now() - interval '30 minutes'
                  AND seen_at > now() - interval '1 minute')
"""),
)

HAND_OVER_CHECK: Final = Check(
    "hand_over",
    mark("Every submitted message has a segment that a carrier accepted, or was in doubt."),
    Statement("""
SELECT m.id AS message_id, m.status
  FROM messages m
 WHERE m.status IN ('sent', 'delivered', 'undelivered', 'unconfirmed')
   AND NOT EXISTS (SELECT FROM parts p WHERE p.message_id = m.id)
   AND NOT EXISTS (SELECT FROM incidents i WHERE i.message_id = m.id AND i.kind = 'doubt')
   AND m.id >= (SELECT id FROM kept_from WHERE kind = 'messages')
"""),
)

IDEMPOTENCY_CHECK: Final = Check(
    "idempotency",
    mark("Every stored idempotent answer belongs to a batch of the same account."),
    Statement("""
SELECT i.account_id, i.key, i.batch_id
  FROM idempotency_keys i
  LEFT JOIN batches b ON b.id = i.batch_id
 WHERE b.account_id IS DISTINCT FROM i.account_id
   AND i.batch_id >= (SELECT id FROM kept_from WHERE kind = 'messages')
"""),
)


REPLY_CHECKS: Final = (
    Check(
        "opt_out",
        mark("Every account with opt-outs is marked, so that each of its sends looks for them."),
        Statement("""
SELECT DISTINCT o.account_id
  FROM opt_outs o
  JOIN accounts a ON a.id = o.account_id
 WHERE NOT a.has_opt_outs
"""),
    ),
    Check(
        "reply",
        mark("Every part of a reply that was joined belongs to a stored reply of the same carrier."),
        Statement("""
SELECT p.id AS part_id, p.reply_id
  FROM reply_parts p
  LEFT JOIN replies r ON r.id = p.reply_id
 WHERE p.reply_id IS NOT NULL
   AND r.carrier_id IS DISTINCT FROM p.carrier_id
"""),
    ),
)

EVENT_CHECKS: Final = (
    # An account's first events may be gone with their week; those that are left end at the counter. Numbers
    # are given under a lock and ids by a clock: at the border one may have gone whose forerunner is kept. So
    # holes are looked for above the last number that lies so close to it.
    Check(
        "event_sequence",
        mark("The events of an account are numbered without gaps or repeats."),
        Statement("""
WITH unsure AS MATERIALIZED (
    SELECT account_id, max(sequence) AS last
      FROM events
     WHERE id < (SELECT sure_from FROM kept_from WHERE kind = 'events')
     GROUP BY account_id
), counted AS (
    SELECT events.account_id, min(sequence) AS first, max(sequence) AS last,
           count(*) AS count, count(DISTINCT sequence) AS numbers,
           min(sequence) FILTER (WHERE sequence > coalesce(unsure.last, 0)) AS sure_first,
           count(*) FILTER (WHERE sequence > coalesce(unsure.last, 0)) AS sure_count
      FROM events
      LEFT JOIN unsure ON unsure.account_id = events.account_id
     -- A test of an endpoint has no number.
     WHERE type <> 'webhook.test'
     GROUP BY events.account_id
)
SELECT e.account_id, c.last AS counter, e.first, e.last, e.count
  FROM counted e
  LEFT JOIN event_counters c ON c.account_id = e.account_id
 WHERE c.last IS DISTINCT FROM e.last
    OR e.first < 1
    OR e.count <> e.numbers
    OR e.sure_count <> e.last - e.sure_first + 1
"""),
    ),
    # A message that a late receipt settled may have been told of as unconfirmed before.
    Check(
        "message_event",
        mark("There is exactly one event for every final status and every refund of a message."),
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
 WHERE m.due AND e.count IS NULL AND m.id >= (SELECT sure_from FROM kept_from WHERE kind = 'events')
    OR e.count > 1
    OR m.id IS NULL AND e.message_id >= (SELECT id FROM kept_from WHERE kind = 'messages')
"""),
    ),
    Check(
        "batch_event",
        mark("There is exactly one event for the completion of every batch with recipients."),
        Statement("""
SELECT coalesce(b.id, e.batch_id) AS batch_id, coalesce(e.count, 0) AS events
  FROM (SELECT id FROM batches WHERE completed_at IS NOT NULL AND recipients > 0) b
  FULL JOIN (
       SELECT batch_id, count(*) AS count FROM events WHERE type = 'batch.completed' GROUP BY batch_id
       ) e ON e.batch_id = b.id
 WHERE e.count IS NULL AND b.id >= (SELECT sure_from FROM kept_from WHERE kind = 'events')
    OR e.count > 1
    OR b.id IS NULL AND e.batch_id >= (SELECT id FROM kept_from WHERE kind = 'messages')
"""),
    ),
    Check(
        "event_owner",
        mark("Every event belongs to the same account as its message or batch."),
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
)


CHECKS: Final = (
    BALANCE_CHECK,
    *HELD_CHECKS,
    *settled_checks(ALL_KEPT),
    *WAITING_CHECKS,
    SENDING_CHECK,
    HAND_OVER_CHECK,
    *EVENT_CHECKS,
    IDEMPOTENCY_CHECK,
    *REPLY_CHECKS,
    *TOP_UP_CHECKS,
    *PAPER_CHECKS,
    MONEY_BY_DAY_CHECK,
)
