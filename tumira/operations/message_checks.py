"""Do batches, their messages and the money for them agree? A check is a query for rows that break a promise.

The same checks are made of all that is kept, and of one old week before it is dropped.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tumira.operations.check import Check
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Scope:
    """What is looked at, in SQL: batches and messages, and from which id on, and below which, they can be."""

    batches: str
    messages: str
    low: str
    high: str


# What is below the border is gone with its week, or goes, and nothing is compared with it.
ALL_KEPT: Final = Scope(
    batches="(SELECT * FROM batches WHERE id >= (SELECT id FROM kept_from WHERE kind = 'messages'))",
    messages="(SELECT * FROM messages WHERE id >= (SELECT id FROM kept_from WHERE kind = 'messages'))",
    low="(SELECT id FROM kept_from WHERE kind = 'messages')",
    high="'ffffffff-ffff-ffff-ffff-ffffffffffff'",
)

# By the name of the check: its promise, and its query with places for what is looked at.
_SETTLED: Final = {
    "batch_cost": (
        "A batch's cost and number of recipients are those of its messages.",
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
        "Every batch that costs something was debited once, from its own account, at its cost.",
        """
SELECT b.id AS batch_id, b.account_id, b.total_cost, t.account_id AS debited_account_id, t.amount
  FROM {batches} b
  LEFT JOIN transfers t ON t.batch_id = b.id AND t.message_id IS NULL
 WHERE b.total_cost <> coalesce(t.amount, 0)
    OR b.account_id <> t.account_id
""",
    ),
    "debit_without_batch": (
        "Every debit belongs to a batch, as long as batches of its week are kept.",
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
        "Every refund returns the cost of one message of its own account, and the message says so.",
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
        "A batch's refunded amount is that of its messages.",
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
        "Every message belongs to the account of its batch.",
        """
SELECT m.id AS message_id, m.account_id, b.account_id AS batch_account_id
  FROM {messages} m
  JOIN {batches} b ON b.id = m.batch_id
 WHERE m.account_id <> b.account_id
    OR NOT EXISTS (SELECT FROM accounts a WHERE a.id = m.account_id)
""",
    ),
    "pending": (
        "A batch's pending count is that of its messages without a final status; it is completed at zero.",
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
        "Only a message that failed, expired or was not delivered is refunded.",
        """
SELECT id AS message_id, status, refunded_at
  FROM {messages} message
 WHERE refunded_at IS NOT NULL
   AND status NOT IN ('failed', 'expired', 'undelivered')
""",
    ),
}


def settled_checks(scope: Scope) -> Sequence[Check]:
    """Return the checks of what stays true of batches after all their messages have ended."""
    return [
        Check(name, promise, Statement(query.format(**asdict(scope))))
        for name, (promise, query) in _SETTLED.items()
    ]


# These look at what is under way. No week with such messages is dropped, so that one without its message is
# broken however old it is.
WAITING_CHECKS: Final = (
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
)

# A hand-over takes minutes at most, and a doubt ends soon after it is due. Without a worker nothing ends, and
# that is seen elsewhere.
SENDING_CHECK: Final = Check(
    "sending",
    "While workers run, no message stays in a hand-over or in doubt for half an hour more than it takes.",
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
    "Of a message that a carrier has or may have, a segment is known to be taken, or it was in doubt.",
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
    "Every remembered answer belongs to a batch of the same account.",
    Statement("""
SELECT i.account_id, i.key, i.batch_id
  FROM idempotency_keys i
  LEFT JOIN batches b ON b.id = i.batch_id
 WHERE b.account_id IS DISTINCT FROM i.account_id
   AND i.batch_id >= (SELECT id FROM kept_from WHERE kind = 'messages')
"""),
)
