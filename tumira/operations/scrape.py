"""What does `/metrics` of a web process say? What it counted, and how things stand in the database."""

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
from tumira.core import metrics
from tumira.core.database_errors import UNAVAILABLE
from tumira.delivery.store.binds import BindState
from tumira.operations import gauges
from tumira.operations.gauges import Readings
from tumira.postgres.pool import Database
from tumira.sending.batcher import Batcher

# Whoever asks more often gets what was read last.
KEPT_S: Final = 1.0
READ_S: Final = 8.0
_MS: Final = 1000

_log: Final = structlog.get_logger()


class Scrape:
    """Answers those who collect metrics, one after the other."""

    def __init__(self, database: Database, batcher: Batcher, data_dir: Path | None) -> None:
        self._database = database
        self._batcher = batcher
        self._data_dir = data_dir
        self._readings: Readings | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        metrics.BUILD.labels(VERSION).set(1)

    async def page(self) -> bytes:
        """Write all metrics of this process and, as long as it can be read, of the database."""
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
                return await gauges.read(connection)
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
    """Put readings into their gauges; what is not there any more is shown no more."""
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
