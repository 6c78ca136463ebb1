"""The page `/metrics` of a web process: its counters, and gauges that are read from the database."""

import asyncio
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg
import structlog
from prometheus_client import generate_latest

from tumira import VERSION
from tumira.core import metrics
from tumira.core.database_errors import UNAVAILABLE
from tumira.delivery.store import binds
from tumira.delivery.store.binds import BindState
from tumira.operations import totals
from tumira.operations.totals import WAITING_MAX, Elsewhere, Stand
from tumira.postgres import nodes, partitions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement
from tumira.pricing.store import list_countries
from tumira.sending.batcher import Batcher

# Of the endpoints that are behind, the oldest event is looked for at those that miss the most.
FURTHEST_MAX: Final = 20
ENDPOINTS_MAX: Final = 50_000
STATEMENT_S: Final = 4


@dataclass(frozen=True, slots=True)
class Bound:
    """How many binds of a carrier are in a state, and how much of their windows is in use."""

    carrier: str
    state: str
    count: int
    window: int
    used: int


# A bind without a valid lease is held by nobody, whatever its last holder said.
SQL_BINDS: Final = Statement("""
SELECT c.name, coalesce(b.state, 'absent') AS state, count(*), sum(c.window_size)::bigint,
       coalesce(sum(b.outstanding), 0)::bigint
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


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Endpoints by state, events that wait for active ones, and the age of the oldest for healthy ones."""

    endpoints: Mapping[str, int]
    waiting: Mapping[str, int]
    oldest_s: float


SQL_ENDPOINTS: Final = Statement("""
SELECT CASE WHEN e.state = 'active' AND e.failing_since IS NOT NULL THEN 'failing' ELSE e.state END AS state,
       count(*), coalesce(sum(greatest(c.last - e.position, 0)), 0)::bigint
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
                 LIMIT %(count_max)s) AS found)
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
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8
  FROM (SELECT created_at FROM mails ORDER BY due_at LIMIT %(count_max)s) AS waiting
""")

SQL_UPLOADS: Final = Statement("""
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(confirmed_at)), 0)::float8
  FROM (SELECT confirmed_at FROM uploads WHERE state = 'sending' ORDER BY id LIMIT %(count_max)s) AS sending
""")

# From the newest on, so that only those are read that ended without a result since. Before the first one the
# age is that of the database.
SQL_AUDIT: Final = Statement("""
SELECT extract(epoch FROM clock_timestamp() - coalesce(last.finished_at, made.at))::float8,
       coalesce(last.broken, 0)
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
SELECT (SELECT count(*) FROM ledger_proofs WHERE broken_at IS NOT NULL),
       (SELECT count(*) FROM workers WHERE seen_at > clock_timestamp() - interval '10 seconds'),
       (SELECT count(*) FROM nodes WHERE seen_at > clock_timestamp() - interval '2 minutes'),
       (SELECT extract(epoch FROM clock_timestamp() - max(looked_at))::float8 FROM usdt_cursors),
       pg_database_size(current_database())
""")


@dataclass(frozen=True, slots=True)
class Readings:
    """The gauges of one moment; ages are in seconds."""

    stands: Sequence[Stand]
    now_ms: int
    elsewhere: Elsewhere
    binds: Sequence[Bound]
    covered: Mapping[str, bool]
    unmatched: Mapping[str, int]
    webhooks: Webhooks
    top_ups: Mapping[str, int]
    mails: tuple[int, float]
    uploads: tuple[int, float]
    weeks_left: int
    lacks_standby: bool
    # How long ago the last one ended, and how many promises it found broken.
    audit: tuple[float, int]
    ledgers_broken: int
    workers: int
    web_nodes: int
    # None where nobody watches a chain.
    usdt_look_age_s: float | None
    size: int


SQL_NOW: Final = Statement("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")


async def read(connection: Connection) -> Readings:
    """Read all gauges in a transaction of a few seconds at most."""
    await connection.execute(f"SET LOCAL statement_timeout = '{STATEMENT_S}s'")
    top_ups = await SQL_TOP_UPS.rows(connection, count_max=WAITING_MAX)
    unmatched = await SQL_UNMATCHED.rows(connection, count_max=WAITING_MAX)
    mails = await SQL_MAILS.row(connection, count_max=WAITING_MAX)
    uploads = await SQL_UPLOADS.row(connection, count_max=WAITING_MAX)
    audit = await SQL_AUDIT.row(connection)
    others = await SQL_OTHERS.row(connection)
    assert mails is not None
    assert uploads is not None
    assert audit is not None
    assert others is not None
    ledgers_broken, workers, web_nodes, usdt_look_age_s, size = others
    uncovered = await binds.countries_without_carrier(connection)
    return Readings(
        stands=await totals.stands(connection),
        now_ms=await SQL_NOW.value(connection),
        elsewhere=await totals.elsewhere(connection),
        binds=[Bound(*row) for row in await SQL_BINDS.rows(connection)],
        covered={country: country not in uncovered for country in await list_countries(connection)},
        unmatched={row[0]: row[1] for row in unmatched},
        webhooks=await _read_webhooks(connection),
        top_ups={row[0]: row[1] for row in top_ups},
        mails=(mails[0], mails[1]),
        uploads=(uploads[0], uploads[1]),
        weeks_left=await partitions.weeks_left(connection),
        lacks_standby=await nodes.lacks_standby(connection),
        audit=(audit[0], audit[1]),
        ledgers_broken=ledgers_broken,
        workers=workers,
        web_nodes=web_nodes,
        usdt_look_age_s=usdt_look_age_s,
        size=size,
    )


async def _read_webhooks(connection: Connection) -> Webhooks:
    rows = await SQL_ENDPOINTS.rows(connection, count_max=ENDPOINTS_MAX)
    oldest_s = await SQL_OLDEST_EVENT.value(connection, count_max=FURTHEST_MAX)
    return Webhooks(
        endpoints={state: count for state, count, _ in rows},
        waiting={state: events for state, _, events in rows if state in {"active", "failing"}},
        oldest_s=float(oldest_s),
    )


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
        self._readings: Readings | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        metrics.BUILD.labels(VERSION).set(1)

    async def page(self) -> bytes:
        """Write the metrics of this process and, while it can be read, of the database."""
        async with self._reading:
            now = time.monotonic()
            if self._readings is None or now - self._read_at > KEPT_S:
                self._readings, self._read_at = await self._read(), now
            metrics.GATE_WAITING.set(self._batcher.waiting)
            metrics.DATABASE_UP.set(self._readings is not None)
            self._measure_disk()
            written = generate_latest(metrics.WEB)
            if self._readings is not None:
                show(self._readings)
                # How things stood when the database could be read is of no use while it cannot.
                written += generate_latest(metrics.DATABASE)
            return written

    async def _read(self) -> Readings | None:
        try:
            async with asyncio.timeout(READ_S), self._database.transaction() as connection:
                return await read(connection)
        except (*UNAVAILABLE, asyncpg.PostgresError) as error:
            _log.warning("database not measured", error=repr(error))
            return None

    def _measure_disk(self) -> None:
        free, size = math.nan, math.nan
        if self._data_dir is not None:
            with suppress(OSError):
                size, _, free = shutil.disk_usage(self._data_dir)
        metrics.DISK_FREE.set(free)
        metrics.DISK_SIZE.set(size)


def show(readings: Readings) -> None:
    """Set the gauges to the readings, and remove labels that are gone."""
    _show_messages(readings)
    _show_carriers(readings)
    _show_webhooks(readings)
    _show_house(readings)


def _show_messages(readings: Readings) -> None:
    metrics.QUEUE.clear()
    metrics.QUEUE_OLDEST.clear()
    found = {(stand.country, stand.lane): stand for stand in readings.stands}
    # An empty lane says so: who watches it must be able to tell that from one that is not watched.
    for country, lane in {*found, *((country, lane) for country in readings.covered for lane in (0, 1))}:
        stand = found.get((country, lane))
        count, age_s = (0, 0.0) if stand is None else (stand.count, readings.now_ms - stand.oldest_ms)
        metrics.QUEUE.labels(country, lane).set(count)
        metrics.QUEUE_OLDEST.labels(country, lane).set(max(0.0, age_s / _MS))
    metrics.IN_FLIGHT.set(readings.elsewhere.in_flight)
    metrics.RETRYING.set(readings.elsewhere.retries)
    metrics.IN_DOUBT.set(readings.elsewhere.in_doubt)


def _show_carriers(readings: Readings) -> None:
    for gauge in (metrics.BINDS, metrics.WINDOW, metrics.WINDOW_USED, metrics.COVERED, metrics.UNMATCHED):
        gauge.clear()
    for carrier in {one.carrier for one in readings.binds}:
        for state in (*BindState, "absent"):
            metrics.BINDS.labels(carrier, state).set(0)
    for one in readings.binds:
        metrics.BINDS.labels(one.carrier, one.state).set(one.count)
        metrics.WINDOW.labels(one.carrier).inc(one.window)
        metrics.WINDOW_USED.labels(one.carrier).inc(one.used)
        metrics.UNMATCHED.labels(one.carrier).set(0)
    for country, is_covered in readings.covered.items():
        metrics.COVERED.labels(country).set(is_covered)
    for carrier, count in readings.unmatched.items():
        metrics.UNMATCHED.labels(carrier).set(count)


def _show_webhooks(readings: Readings) -> None:
    for state in ("active", "failing", "paused", "disabled"):
        metrics.ENDPOINTS.labels(state).set(readings.webhooks.endpoints.get(state, 0))
    for state in ("active", "failing"):
        metrics.EVENTS_WAITING.labels(state).set(readings.webhooks.waiting.get(state, 0))
    metrics.EVENTS_OLDEST.set(readings.webhooks.oldest_s)


def _show_house(readings: Readings) -> None:
    for state, count in readings.top_ups.items():
        metrics.TOP_UPS.labels(state).set(count)
    metrics.MAILS_WAITING.set(readings.mails[0])
    metrics.MAILS_OLDEST.set(readings.mails[1])
    metrics.UPLOADS_WAITING.set(readings.uploads[0])
    metrics.UPLOADS_OLDEST.set(readings.uploads[1])
    metrics.WEEKS_LEFT.set(readings.weeks_left)
    metrics.STANDBY_MISSING.set(readings.lacks_standby)
    metrics.LEDGERS_BROKEN.set(readings.ledgers_broken)
    metrics.WORKERS.set(readings.workers)
    metrics.WEB_NODES.set(readings.web_nodes)
    metrics.DATABASE_SIZE.set(readings.size)
    metrics.AUDIT_AGE.set(readings.audit[0])
    metrics.AUDIT_BROKEN.set(readings.audit[1])
    metrics.USDT_LOOKED.set(math.nan if readings.usdt_look_age_s is None else readings.usdt_look_age_s)
