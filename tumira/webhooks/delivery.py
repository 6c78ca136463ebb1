"""Delivers the events of one endpoint: a few at a time, each until it is delivered or scheduled again."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from tumira.core.loops import log_failure
from tumira.core.tracing import Tracer
from tumira.postgres.pool import Database
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import WebhookClient
from tumira.webhooks.reader import EventReader, PendingEvent
from tumira.webhooks.results import EndpointResults, ResultKeeper, SendResult
from tumira.webhooks.sender import Clock, EventSender

# With fewer events left the next page is read.
BACKLOG_LOW: Final = 64
UNRECORDED_MAX: Final = 500
# A connection is kept this long when there is nothing to send.
IDLE_S: Final = 20.0
POLL_S: Final = 1.0
PAUSE_S: Final = 0.5

_log: Final = structlog.get_logger()


class EndpointDelivery:
    """Reads, sends and keeps the results of one endpoint, as long as its worker has the lease."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: WebhookClient | str,
        database: Database,
        clock: Clock,
        report: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._database = database
        self._clock = clock
        # Tells the worker that there are results to write.
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._reader = EventReader(endpoint)
        self._sender = EventSender(endpoint, client, clock, tracer, self._on_result)
        self._results = ResultKeeper(endpoint, self._reader)
        self._backlog: deque[PendingEvent] = deque()
        self._in_flight = 0
        self._all_recorded = asyncio.Event()
        self._all_recorded.set()
        # Whether a cursor moved and the worker does not know yet.
        self._has_moved = False
        # Whether there may be new events, due retries or replays, and whether the last page was full.
        self._must_read = True
        self._has_more = False
        self._closing = False
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Have new events, due retries and replays read."""
        self._must_read = True
        self._woken.set()

    def close(self) -> None:
        """Send nothing more; `run` returns when the calls in flight have ended."""
        self._closing = True
        self._woken.set()

    async def run(self) -> None:
        """Deliver until there is nothing to do for a while, or nothing may be sent."""
        idle_since = self._loop.time()
        try:
            while not self._is_over:
                await self._step()
                if self._in_flight or self._backlog or self._results.unrecorded:
                    idle_since = self._loop.time()
                elif self._loop.time() - idle_since > IDLE_S:
                    break
                await self._sleep()
            self._backlog.clear()
            while self._in_flight:
                self._woken.clear()
                await self._woken.wait()
        finally:
            self._sender.close()

    def take_results(self) -> EndpointResults:
        self._has_moved = False
        return self._results.take()

    def on_recorded(self, results: EndpointResults) -> None:
        """Continue: these results are on disk."""
        self._results.on_recorded(results)
        if results.has_recovered:
            self._must_read = True
        self._begin()
        if not self._results.unrecorded:
            self._all_recorded.set()
            self._woken.set()

    async def wait_until_recorded(self) -> None:
        await self._all_recorded.wait()

    @property
    def _is_over(self) -> bool:
        results = self._results
        if self._closing or results.disabled_for is not None:
            return True
        backoff_until = results.health.backoff_until
        return backoff_until is not None and self._clock() < backoff_until

    @property
    def _may_read(self) -> bool:
        is_low = len(self._backlog) < BACKLOG_LOW and self._results.unrecorded < UNRECORDED_MAX
        return is_low and (self._must_read or self._has_more)

    async def _step(self) -> None:
        try:
            if self._may_read:
                await self._read()
            self._begin()
        except Exception as error:  # noqa: BLE001 - nothing is lost: the events are read again
            self._must_read = True
            log_failure("could not read webhook events", error, endpoint=self.endpoint.url)
            await asyncio.sleep(PAUSE_S)

    async def _sleep(self) -> None:
        timer = self._loop.call_later(POLL_S, self._woken.set)
        await self._woken.wait()
        self._woken.clear()
        timer.cancel()

    async def _read(self) -> None:
        only_pages = not self._must_read
        self._must_read = False
        async with self._database.connection() as connection:
            found = await self._reader.read(
                connection,
                self._clock(),
                is_probing=self._results.health.is_probing,
                only_pages=only_pages,
            )
        self._has_moved = self._has_moved or found.has_moved
        self._has_more = found.has_more
        self._backlog.extend(found.pending)
        if self._has_moved and not self._backlog and not self._in_flight:
            self._report()

    def _begin(self) -> None:
        """Send as many events as the endpoint's concurrency allows."""
        try:
            while (
                self._backlog
                and self._in_flight < self._results.concurrency
                and self._results.unrecorded < UNRECORDED_MAX
                and not self._is_over
            ):
                self._sender.send(self._backlog.popleft())
                self._in_flight += 1
        except Exception as error:  # noqa: BLE001 - our own mistake and not the endpoint's
            self._give_up(error)
        if self._may_read:
            self._woken.set()

    def _on_result(self, pending: PendingEvent, result: SendResult, now: datetime) -> None:
        self._in_flight -= 1
        try:
            self._results.add(pending, result, now)
            self._all_recorded.clear()
            self._report()
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)
        self._begin()
        if not self._in_flight:
            self._woken.set()

    def _give_up(self, error: Exception) -> None:
        """End after a fault of ours; the event is not done, and the next lease holder reads it."""
        _log.error("webhook delivery crashed", endpoint=self.endpoint.url, exc_info=error)
        self.close()
