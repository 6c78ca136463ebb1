"""The page `/metrics` of a web process: its counters, and gauges that are read from the database."""

import asyncio
import math
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import asyncpg
import structlog
from prometheus_client import generate_latest

from tumira import VERSION
from tumira.carriers import http_store as http_carriers
from tumira.carriers.routes.rules import list_losing
from tumira.carriers.routes.store import list_routes
from tumira.core import metrics
from tumira.core.database_errors import UNAVAILABLE
from tumira.delivery.store import binds
from tumira.delivery.store.binds import BindState
from tumira.operations import totals
from tumira.operations.totals import WAITING_MAX
from tumira.postgres import clock, nodes, partitions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement
from tumira.pricing.store import get_tariff, list_countries
from tumira.sending.batcher import Batcher

# Of the endpoints that are behind, the oldest event is looked for at those that miss the most.
FURTHEST_MAX: Final = 20
ENDPOINTS_MAX: Final = 50_000
STATEMENT_S: Final = 4


# A bind without a valid lease is held by nobody, whatever its last holder said.
SQL_BINDS: Final = Statement("""
SELECT c.name AS carrier, coalesce(b.state, 'absent') AS state, count(*),
       sum(c.window_size)::bigint AS window, coalesce(sum(b.outstanding), 0)::bigint AS used
  FROM carriers c
 CROSS JOIN LATERAL generate_series(1, c.binds) AS wanted (number)
  LEFT JOIN binds b ON b.carrier_id = c.id
                   AND b.number = wanted.number
                   AND b.leased_until > clock_timestamp()
 WHERE c.removed_at IS NULL
 GROUP BY c.name, coalesce(b.state, 'absent')
 ORDER BY c.name, coalesce(b.state, 'absent')
""")

SQL_UNMATCHED: Final = Statement("""
SELECT coalesce(c.name, 'unknown') AS carrier, count(*)
  FROM (SELECT carrier_id FROM unmatched_receipts ORDER BY id DESC LIMIT %(count_max)s) AS kept
  LEFT JOIN carriers c ON c.id = kept.carrier_id
 GROUP BY coalesce(c.name, 'unknown')
""")


SQL_ENDPOINTS: Final = Statement("""
SELECT CASE WHEN e.state = 'active' AND e.failing_since IS NOT NULL THEN 'failing' ELSE e.state END AS state,
       count(*), coalesce(sum(greatest(c.last - e.position, 0)), 0)::bigint AS waiting
  FROM (SELECT state, failing_since, position, account_id FROM webhook_endpoints LIMIT %(count_max)s) AS e
  LEFT JOIN event_counters c ON c.account_id = e.account_id
 GROUP BY 1
""")

SQL_OLDEST_EVENT: Final = Statement("""
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(first.at)), 0)::float8
  FROM (SELECT e.account_id, e.position
          FROM webhook_endpoints e
          JOIN event_counters c ON c.account_id = e.account_id AND c.last > e.position
         WHERE e.state = 'active'
           AND e.failing_since IS NULL
         ORDER BY c.last - e.position DESC
         LIMIT %(count_max)s) AS behind
 CROSS JOIN LATERAL (
       SELECT at
         FROM events
        WHERE events.account_id = behind.account_id
          AND events.sequence = behind.position + 1
        LIMIT 1
       ) AS first
""")

# Those that ended are many; those in these states are few. In the order of their index, or PostgreSQL would
# read the whole table in the hope of finding some early.
SQL_TOP_UPS: Final = Statement("""
SELECT wanted.state,
       (SELECT count(*)
          FROM (SELECT
                  FROM top_ups
                 WHERE top_ups.state = wanted.state
                 ORDER BY top_ups.id
                 LIMIT %(count_max)s) AS found) AS count
  FROM unnest(ARRAY['started', 'pending', 'doubt', 'reversed']) AS wanted (state)
 UNION ALL
SELECT 'paid_late', count(*)
  FROM (SELECT
          FROM top_ups
         WHERE state IN ('failed', 'expired')
           AND problem LIKE '%was paid after it had%'
         ORDER BY id
         LIMIT %(count_max)s) AS found
""")

SQL_MAILS: Final = Statement("""
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest_s
  FROM (SELECT created_at FROM mails ORDER BY due_at LIMIT %(count_max)s) AS waiting
""")

SQL_UPLOADS: Final = Statement("""
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(confirmed_at)), 0)::float8 AS oldest_s
  FROM (SELECT confirmed_at FROM uploads WHERE state = 'sending' ORDER BY id LIMIT %(count_max)s) AS sending
""")

# From the newest on, so that only those are read that ended without a result since. Before the first one the
# age is that of the database.
SQL_AUDIT: Final = Statement("""
SELECT extract(epoch FROM clock_timestamp() - coalesce(last.finished_at, made.at))::float8 AS age_s,
       coalesce(last.broken, 0) AS broken
  FROM (SELECT min(applied_at) AS at FROM schema_migrations) AS made
  LEFT JOIN LATERAL (
       SELECT finished_at, (SELECT count(*) FROM jsonb_object_keys(audits.broken)) AS broken
         FROM audits
        WHERE finished_at IS NOT NULL
          AND broken IS NOT NULL
        ORDER BY id DESC
        LIMIT 1
       ) AS last ON true
""")

SQL_OTHERS: Final = Statement("""
SELECT (SELECT count(*) FROM ledger_proofs WHERE broken_at IS NOT NULL) AS ledgers_broken,
       (SELECT count(*) FROM workers WHERE seen_at > clock_timestamp() - interval '10 seconds') AS workers,
       (SELECT count(*) FROM nodes
         WHERE role = 'web' AND seen_at > clock_timestamp() - interval '2 minutes') AS web_nodes,
       (SELECT extract(epoch FROM clock_timestamp() - max(looked_at))::float8 FROM usdt_cursors) AS usdt_s,
       pg_database_size(current_database()) AS size
""")


async def measure(connection: Connection) -> None:
    """Set all gauges, in a transaction of a few seconds at most; labels that are gone are removed."""
    await connection.execute(f"SET LOCAL statement_timeout = '{STATEMENT_S}s'")
    await _measure_messages(connection)
    await _measure_carriers(connection)
    await _measure_webhooks(connection)
    await _measure_house(connection)


async def _measure_messages(connection: Connection) -> None:
    metrics.QUEUE.clear()
    metrics.QUEUE_OLDEST.clear()
    # An empty lane says so: who watches it must be able to tell that from one that is not watched.
    for country in await list_countries(connection):
        for lane in (0, 1):
            metrics.QUEUE.labels(country, lane).set(0)
            metrics.QUEUE_OLDEST.labels(country, lane).set(0)
    now_s = (await clock.read_now(connection)).timestamp()
    for stand in await totals.stands(connection):
        age_s = now_s - stand.oldest_ms / _MS
        metrics.QUEUE.labels(stand.country, stand.lane).set(stand.count)
        metrics.QUEUE_OLDEST.labels(stand.country, stand.lane).set(max(0.0, age_s))
    elsewhere = await totals.elsewhere(connection)
    metrics.IN_FLIGHT.set(elsewhere.in_flight)
    metrics.RETRYING.set(elsewhere.retries)
    metrics.IN_DOUBT.set(elsewhere.in_doubt)


async def _measure_carriers(connection: Connection) -> None:
    for gauge in (
        metrics.BALANCE,
        metrics.BINDS,
        metrics.COVERED,
        metrics.UNMATCHED,
        metrics.WINDOW,
        metrics.WINDOW_USED,
    ):
        gauge.clear()
    for balance in await http_carriers.list_balances(connection):
        metrics.BALANCE.labels(balance.carrier, balance.currency).set(float(balance.amount))
    held = await SQL_BINDS.rows(connection)
    for carrier in {row["carrier"] for row in held}:
        metrics.UNMATCHED.labels(carrier).set(0)
        for state in (*BindState, "absent"):
            metrics.BINDS.labels(carrier, state).set(0)
    for row in held:
        metrics.BINDS.labels(row["carrier"], row["state"]).set(row["count"])
        metrics.WINDOW.labels(row["carrier"]).inc(row["window"])
        metrics.WINDOW_USED.labels(row["carrier"]).inc(row["used"])
    for row in await SQL_UNMATCHED.rows(connection, count_max=WAITING_MAX):
        metrics.UNMATCHED.labels(row["carrier"]).set(row["count"])
    uncovered = await binds.countries_without_carrier(connection)
    for country in await list_countries(connection):
        metrics.COVERED.labels(country).set(country not in uncovered)
    routes, tariff = await list_routes(connection), await get_tariff(connection)
    metrics.LOSING_ROUTES.set(len(list_losing(routes, tariff.prices)))


async def _measure_webhooks(connection: Connection) -> None:
    rows = await SQL_ENDPOINTS.rows(connection, count_max=ENDPOINTS_MAX)
    by_state = {row["state"]: row for row in rows}
    for state in ("active", "failing", "paused", "disabled"):
        row = by_state.get(state)
        metrics.ENDPOINTS.labels(state).set(row["count"] if row else 0)
        if state in {"active", "failing"}:
            metrics.EVENTS_WAITING.labels(state).set(row["waiting"] if row else 0)
    metrics.EVENTS_OLDEST.set(await SQL_OLDEST_EVENT.value(connection, count_max=FURTHEST_MAX))


async def _measure_house(connection: Connection) -> None:
    for row in await SQL_TOP_UPS.rows(connection, count_max=WAITING_MAX):
        metrics.TOP_UPS.labels(row["state"]).set(row["count"])
    for statement, waiting, oldest in (
        (SQL_MAILS, metrics.MAILS_WAITING, metrics.MAILS_OLDEST),
        (SQL_UPLOADS, metrics.UPLOADS_WAITING, metrics.UPLOADS_OLDEST),
    ):
        (row,) = await statement.rows(connection, count_max=WAITING_MAX)
        waiting.set(row["count"])
        oldest.set(row["oldest_s"])
    metrics.WEEKS_LEFT.set(await partitions.weeks_left(connection))
    metrics.STANDBY_MISSING.set(await nodes.lacks_standby(connection))
    (audit,) = await SQL_AUDIT.rows(connection)
    metrics.AUDIT_AGE.set(audit["age_s"])
    metrics.AUDIT_BROKEN.set(audit["broken"])
    (others,) = await SQL_OTHERS.rows(connection)
    metrics.LEDGERS_BROKEN.set(others["ledgers_broken"])
    metrics.WORKERS.set(others["workers"])
    metrics.WEB_NODES.set(others["web_nodes"])
    metrics.DATABASE_SIZE.set(others["size"])
    # Unknown where nobody watches a chain.
    metrics.USDT_LOOKED.set(math.nan if others["usdt_s"] is None else others["usdt_s"])


# Whoever asks more often gets what was read last.
KEPT_S: Final = 1.0
READ_S: Final = 8.0
_MS: Final = 1000

_log: Final = structlog.get_logger()


class Scrape:
    """Answers scrapes of metrics, one after the other."""

    def __init__(self, database: Database, batcher: Batcher, data_dir: Path | None) -> None:
        self._database = database
        self._batcher = batcher
        self._data_dir = data_dir
        self._is_measured = False
        self._measured_at = -math.inf
        self._reading = asyncio.Lock()
        metrics.BUILD.labels(VERSION).set(1)

    async def page(self) -> bytes:
        """Write the metrics of this process and, while it can be read, of the database."""
        async with self._reading:
            now = time.monotonic()
            if not self._is_measured or now - self._measured_at > KEPT_S:
                self._is_measured, self._measured_at = await self._measure_database(), now
            metrics.GATE_WAITING.set(self._batcher.waiting)
            metrics.DATABASE_UP.set(self._is_measured)
            self._measure_disk()
            written = generate_latest(metrics.WEB)
            # How things stood when the database could be read is of no use while it cannot.
            return written + generate_latest(metrics.DATABASE) if self._is_measured else written

    async def _measure_database(self) -> bool:
        try:
            async with asyncio.timeout(READ_S), self._database.transaction() as connection:
                await measure(connection)
        except (*UNAVAILABLE, asyncpg.PostgresError) as error:
            _log.warning("database not measured", error=repr(error))
            return False
        return True

    def _measure_disk(self) -> None:
        free, size = math.nan, math.nan
        if self._data_dir is not None:
            with suppress(OSError):
                size, _, free = shutil.disk_usage(self._data_dir)
        metrics.DISK_FREE.set(free)
        metrics.DISK_SIZE.set(size)
