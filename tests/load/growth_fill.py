"""Fills a database with millions of messages, by statements over sets.

Of a thousand messages 500 went out in one batch, 400 in four, and the others one by one. Half of the batches
are those of one account, about 200 those of another whatever the size, and the others those of thousands. Of
every 16 batches of one one failed and was paid back. Everything else was delivered, and all of it adds up:
`tumira audit` finds nothing.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import asyncpg

from tumira.core.ids import AccountId, first_id
from tumira.postgres import partitions

ACCOUNTS: Final = 3_000
# The first and largest of them, and one with as many batches in a small database as in a large one.
BIG: Final = AccountId(first_id(1))
STEADY: Final = AccountId(first_id(2))
STEADY_BATCHES: Final = 200
PATTERN: Final = 105
PATTERN_MESSAGES: Final = 1_000
STEP: Final = 250
# Events are kept for so many weeks.
EVENT_WEEKS: Final = 5
CARRIER: Final = "growth"

SQL_BEGIN: Final = f"""
INSERT INTO carriers (name, host, port, tls, system_id, password, bind_mode, binds, window_size, tps, source,
                      in_doubt, doubt_wait_s, refund, priority)
VALUES ('{CARRIER}', 'localhost', 2775, false, '', '', 'transceiver', 1, 10, 0, '',
        'resend', 30, '{{failed}}', 100);
CREATE TABLE growth_accounts (number integer PRIMARY KEY, id uuid NOT NULL);
INSERT INTO growth_accounts
SELECT number, (lpad(to_hex(number + 1), 12, '0') || '00000000000000000000')::uuid
  FROM generate_series(0, {ACCOUNTS}) AS number;
INSERT INTO accounts (id, phone, name, business)
SELECT id, 'growth ' || number, 'Growth', 'Growth' FROM growth_accounts;
INSERT INTO transfers (account_id, from_book, to_book, amount, note, actor)
SELECT id, 'adjustment', 'customer', 10000000, 'growth', 'growth' FROM growth_accounts;
"""

# As `tumira.core.ids` makes them: the id of a message begins like that of its batch.
SQL_BATCHES: Final = f"""
CREATE TEMP TABLE new_batches ON COMMIT DROP AS
SELECT n, head, (head || lpad(to_hex(n), 10, '0'))::uuid AS id, account.id AS account_id, size, at,
       size = 1 AND n % 16 = 0 AS failed
  FROM (SELECT n, to_timestamp(ms / 1000.0) AS at,
               lpad(to_hex(ms), 12, '0') || '7' || lpad(to_hex(n & 4095), 3, '0')
               || '8' || lpad(to_hex(n >> 12 & 1048575), 5, '0') AS head,
               CASE WHEN n % {PATTERN} = 0 THEN 500 WHEN n % {PATTERN} < 5 THEN 100 ELSE 1 END AS size,
               CASE WHEN n % $5::bigint = 0 THEN 1
                    WHEN hashint8(n) & 1 = 0 THEN 0
                    ELSE (hashint8(n) >> 1 & 1048575) % ({ACCOUNTS} - 1) + 2 END AS number
          FROM (SELECT n, $3::bigint + (n - $1::bigint) * $4::bigint / ($2::bigint - $1::bigint) AS ms
                  FROM generate_series($1::bigint, $2::bigint - 1) AS n) AS timed) AS batch
  JOIN growth_accounts AS account USING (number)
 ORDER BY n
"""

SQL_MESSAGES: Final = """
CREATE TEMP TABLE new_messages ON COMMIT DROP AS
SELECT (head || lpad(to_hex(place::bigint << 28 | (random() * 268435455)::bigint), 10, '0'))::uuid AS id,
       id AS batch_id, account_id, at, failed,
       '+26377' || lpad((random() * 9999999)::integer::text, 7, '0') AS recipient,
       lpad(to_hex((random() * 4294967295)::bigint), 8, '0') AS reference
  FROM (SELECT * FROM new_batches ORDER BY n) AS batch
 CROSS JOIN LATERAL generate_series(0, size - 1) AS place
"""

SQL_STORE: Final = (
    """
INSERT INTO batches (id, account_id, created_at, completed_at, recipients, pending, segments, total_cost,
                     refunded, status, channel, reference, body)
SELECT id, account_id, at, at + interval '5 s', size, 0, 1, size * 0.04,
       CASE WHEN failed THEN size * 0.04 ELSE 0 END, 'completed', 'sms',
       CASE n % 3 WHEN 0 THEN 'invoice ' || n WHEN 1 THEN 'passcode' END,
       CASE WHEN at > now() - interval '6 days' THEN 'Your code is 493817. Do not share it with anyone.' END
  FROM new_batches
 ORDER BY n
""",
    """
INSERT INTO messages (id, batch_id, account_id, sent_at, delivered_at, refunded_at, segments, country,
                      recipient, cost, status, failure_reason)
SELECT id, batch_id, account_id, CASE WHEN NOT failed THEN at END, CASE WHEN NOT failed THEN at END,
       CASE WHEN failed THEN at END, 1, 'ZW', recipient, 0.04,
       CASE WHEN failed THEN 'failed' ELSE 'delivered' END, CASE WHEN failed THEN 'refused' END
  FROM new_messages
""",
    f"""
INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,
                   submitted_at, answered_at, state, error, receipt, received_at)
SELECT id, 1, 0, (SELECT id FROM carriers WHERE name = '{CARRIER}'), reference, reference, at, at, at,
       'DELIVRD', '000', 'stat:DELIVRD', at
  FROM new_messages
 WHERE NOT failed
""",
    """
INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, created_at)
SELECT account_id, 'customer', 'revenue', size * 0.04, id, at FROM new_batches ORDER BY n
""",
    """
INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id, created_at)
SELECT account_id, 'revenue', 'customer', 0.04, batch_id, id, at FROM new_messages WHERE failed
""",
    """
INSERT INTO idempotency_keys (account_id, key, fingerprint, response, batch_id, created_at)
SELECT account_id, 'growth ' || n, sha256(''), '{}', id, at
  FROM new_batches
 WHERE at > now() - interval '71 hours'
""",
)

SQL_EVENTS: Final = (
    """
CREATE TEMP TABLE new_events ON COMMIT DROP AS
SELECT id, account_id, type, message_id, batch_id, at,
       row_number() OVER (PARTITION BY account_id ORDER BY id, type) AS place
  FROM (SELECT id, account_id, CASE WHEN failed THEN 'message.failed' ELSE 'message.delivered' END AS type,
               id AS message_id, batch_id, at
          FROM new_messages
         UNION ALL
        SELECT id, account_id, 'message.refunded', id, batch_id, at FROM new_messages WHERE failed
         UNION ALL
        SELECT id, account_id, 'batch.completed', NULL, id, at FROM new_batches) AS told
""",
    """
INSERT INTO events (id, account_id, sequence, type, message_id, batch_id, at)
SELECT id, account_id, coalesce(last, 0) + place, type, message_id, batch_id, at
  FROM new_events
  LEFT JOIN event_counters USING (account_id)
""",
    """
INSERT INTO event_counters (account_id, last)
SELECT account_id, count(*) FROM new_events GROUP BY account_id
    ON CONFLICT (account_id) DO UPDATE SET last = event_counters.last + excluded.last
""",
)

SQL_END: Final = """
UPDATE accounts
   SET balance = total
  FROM (SELECT account_id, sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END) AS total
          FROM transfers
         GROUP BY account_id) AS moved
 WHERE id = account_id;
DROP TABLE growth_accounts;
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batches that are made in one go: their numbers, and when the first and the last of them were sent."""

    first: int
    end: int
    start_ms: int
    span_ms: int
    has_events: bool


def stretches(messages: int, weeks: int, now: datetime) -> Iterator[Stretch]:
    """Spread messages evenly over this week up to now and whole weeks before it, oldest first."""
    monday = partitions._monday(now)
    patterns = max(1, messages // PATTERN_MESSAGES)
    done = 0
    for week in range(weeks):
        back = weeks - 1 - week
        start = monday - timedelta(weeks=back)
        end = now - timedelta(minutes=1) if back == 0 else start + timedelta(weeks=1)
        span_ms = max(1, int((end - start).total_seconds() * 1000))
        here = patterns * (week + 1) // weeks - patterns * week // weeks
        for first in range(0, here, STEP):
            count = min(STEP, here - first)
            yield Stretch(
                first=(done + first) * PATTERN,
                end=(done + first + count) * PATTERN,
                start_ms=int(start.timestamp() * 1000) + span_ms * first // here,
                span_ms=span_ms * count // here,
                has_events=back < EVENT_WEEKS,
            )
        done += here


async def fill(url: str, messages: int, weeks: int, tell: Callable[[str], None]) -> None:
    connection = await asyncpg.connect(url, server_settings={"synchronous_commit": "off", "jit": "off"})
    try:
        await connection.execute("SET work_mem = '256MB'; SET max_parallel_workers_per_gather = 0")
        await _make_weeks(connection, weeks)
        await connection.execute(SQL_BEGIN)
        began = told = time.monotonic()
        steady_every = max(1, messages // PATTERN_MESSAGES * PATTERN // STEADY_BATCHES)
        for stretch in stretches(messages, weeks, datetime.now(UTC)):
            await _add(connection, stretch, steady_every)
            if time.monotonic() > told + 10:
                told = time.monotonic()
                done = stretch.end // PATTERN * PATTERN_MESSAGES
                tell(f"{done:,} messages, {done / (told - began):,.0f}/s")
        await connection.execute(SQL_END)
        tell(f"all {messages:,} messages after {time.monotonic() - began:,.0f} s; vacuuming …")
        # As autovacuum has done with all but the latest.
        await connection.execute("VACUUM (FREEZE, ANALYZE)")
        await connection.execute("CHECKPOINT")
        tell(f"settled after {time.monotonic() - began:,.0f} s")
    finally:
        await connection.close()


async def _make_weeks(connection: "asyncpg.Connection[asyncpg.Record]", weeks: int) -> None:
    monday = partitions._monday(datetime.now(UTC))
    for back in range(2, weeks):
        start = monday - timedelta(weeks=back)
        for table, fillfactor in partitions.TABLES.items():
            await partitions._create(connection, table, partitions._name(table, start), start, fillfactor)
    oldest = first_id(int((monday - timedelta(weeks=EVENT_WEEKS - 1)).timestamp() * 1000))
    await connection.execute("UPDATE kept_from SET id = $1, sure_from = $1 WHERE kind = 'events'", oldest)


async def _add(connection: "asyncpg.Connection[asyncpg.Record]", stretch: Stretch, steady_every: int) -> None:
    numbers = (stretch.first, stretch.end, stretch.start_ms, stretch.span_ms, steady_every)
    async with connection.transaction():
        await connection.execute(SQL_BATCHES, *numbers, timeout=600)
        await connection.execute(SQL_MESSAGES, timeout=600)
        for statement in (*SQL_STORE, *(SQL_EVENTS if stretch.has_events else ())):
            await connection.execute(statement, timeout=600)
