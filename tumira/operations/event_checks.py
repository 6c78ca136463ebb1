"""Were customers told of everything, once, and in order? A check is a query for rows that break a promise.

Events are kept for weeks, messages for years. What is compared is what both tables still have: all of the
messages that are younger than the oldest event (by an hour, for clocks that differ), and of older ones that
nothing was told twice.
"""

from typing import Final

from tumira.operations.check import Check
from tumira.postgres.statement import Statement

EVENT_CHECKS: Final = (
    # An account's first events may be gone with their week; those that are left end at the counter. Numbers
    # are given under a lock and ids by a clock: at the border one may have gone whose forerunner is kept. So
    # holes are looked for above the last number that lies so close to it.
    Check(
        "event_sequence",
        "The events of an account are numbered up to its counter, each number once and none left out.",
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
 WHERE m.due AND e.count IS NULL AND m.id >= (SELECT sure_from FROM kept_from WHERE kind = 'events')
    OR e.count > 1
    OR m.id IS NULL AND e.message_id >= (SELECT id FROM kept_from WHERE kind = 'messages')
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
 WHERE e.count IS NULL AND b.id >= (SELECT sure_from FROM kept_from WHERE kind = 'events')
    OR e.count > 1
    OR b.id IS NULL AND e.batch_id >= (SELECT id FROM kept_from WHERE kind = 'messages')
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
)
