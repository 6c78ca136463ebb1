"""The webhook worker: leases endpoints with waiting events, and runs one delivery for each.

One worker at a time has the lease of an endpoint, so its connections, failures and limits are in one place.
Events are not claimed one by one. If a worker dies, the next one sends again from the last written position.
"""

import asyncio
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import structlog

from tumira.core.dns import Resolve
from tumira.core.ids import EndpointId
from tumira.core.loops import forever, log_failure
from tumira.core.tracing import Tracer
from tumira.postgres.connection import Connection
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import Database
from tumira.webhooks import leases
from tumira.webhooks import url as webhook_url
from tumira.webhooks.delivery import EndpointDelivery
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import WebhookClient
from tumira.webhooks.results import EndpointResults, record_results
from tumira.webhooks.sender import Clock

POLL_S: Final = 0.1
# Retries that become due have no wake-up row; the scan of all endpoints finds rows that were lost.
POLL_DUE_S: Final = 1.0
POLL_ALL_S: Final = 60.0
LEASE_S: Final = 10.0
RENEW_S: Final = 1.0
DELIVERIES_MAX: Final = 500
DRAIN_S: Final = 5.0
PAUSE_S: Final = 0.2
# Writing few results costs nearly as much as writing many, and no caller waits for it.
GATHER_S: Final = 0.05

_log: Final = structlog.get_logger()


def utc_now() -> datetime:
    return datetime.now(UTC)


class WebhookWorker:
    """Runs the deliveries of one worker."""

    def __init__(
        self,
        database: Database,
        worker: str,
        *,
        allow_private: bool,
        resolve: Resolve,
        tls: ssl.SSLContext,
        clock: Clock = utc_now,
        tracer: Tracer | None = None,
    ) -> None:
        self._database = database
        self._worker = worker
        self._allow_private = allow_private
        self._resolve = resolve
        self._tls = tls
        self._clock = clock
        self._tracer = tracer
        self._line = PinnedConnection(database)
        self._deliveries: dict[EndpointId, EndpointDelivery] = {}
        self._tasks: dict[EndpointId, asyncio.Task[None]] = {}
        self._unwritten: dict[EndpointId, EndpointDelivery] = {}
        self._has_unwritten = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._renewed_at = self._polled_due_at = self._polled_all_at = self._loop.time()

    async def run(self) -> None:
        """Deliver until cancelled; calls in flight then have a moment to end."""
        writer = asyncio.create_task(self._write())
        try:
            # After a failure deliveries go on as long as their leases last.
            await forever("lease webhook endpoints", self._poll, POLL_S, retry_max_s=PAUSE_S)
        finally:
            await self._stop(writer)

    async def _poll(self) -> None:
        leased: Sequence[Endpoint] = ()
        # In one transaction: a worker that dies in between has not consumed the wake-up rows.
        async with self._database.transaction() as connection:
            await self._renew(connection)
            free = []
            for endpoint_id in await self._find(connection):
                delivery = self._deliveries.get(endpoint_id)
                if delivery is None:
                    free.append(endpoint_id)
                else:
                    delivery.wake()
            room = DELIVERIES_MAX - len(self._deliveries)
            if free and room > 0:
                leased = await leases.lease(
                    connection, free, self._worker, self._clock(), count_max=room, lease_s=LEASE_S
                )
        for endpoint in leased:
            self._open(endpoint)

    async def _renew(self, connection: Connection) -> None:
        """Renew the leases; end deliveries to endpoints that were paused, removed, changed or leased away."""
        now = self._loop.time()
        if not self._deliveries or now - self._renewed_at < RENEW_S:
            return
        kept = await leases.renew(connection, list(self._deliveries), self._worker, LEASE_S)
        self._renewed_at = now
        for endpoint_id, delivery in self._deliveries.items():
            if kept.get(endpoint_id) != delivery.endpoint.changed_at:
                delivery.close()

    async def _find(self, connection: Connection) -> Sequence[EndpointId]:
        found = list(await leases.take_wake_ups(connection, self._worker, DELIVERIES_MAX))
        now = self._loop.time()
        if now - self._polled_due_at >= POLL_DUE_S:
            self._polled_due_at = now
            found.extend(await leases.list_due(connection, self._clock()))
        if now - self._polled_all_at >= POLL_ALL_S:
            self._polled_all_at = now
            found.extend(await leases.list_behind(connection, self._clock()))
        return found

    def _open(self, endpoint: Endpoint) -> None:
        delivery = EndpointDelivery(
            endpoint,
            self._client(endpoint),
            self._database,
            self._clock,
            lambda: self._note_unwritten(endpoint.id),
            self._tracer,
        )
        self._deliveries[endpoint.id] = delivery
        self._tasks[endpoint.id] = asyncio.create_task(self._run(delivery))

    def _client(self, endpoint: Endpoint) -> WebhookClient | str:
        """Return the client, or why the endpoint's URL may not be called any more."""
        try:
            target = webhook_url.parse(endpoint.url, allow_private=self._allow_private)
        except ValueError as error:
            return str(error)
        return WebhookClient(target, allow_private=self._allow_private, resolve=self._resolve, tls=self._tls)

    async def _run(self, delivery: EndpointDelivery) -> None:
        endpoint_id = delivery.endpoint.id
        try:
            await delivery.run()
        except Exception as error:  # noqa: BLE001 - the next delivery begins at the last written position
            _log.error("webhook delivery crashed", endpoint=delivery.endpoint.url, exc_info=error)
        # Its results are written before another delivery to this endpoint begins.
        await delivery.wait_until_recorded()
        try:
            async with self._database.connection() as connection:
                await leases.release(connection, endpoint_id, self._worker)
        except Exception as error:  # noqa: BLE001 - then the lease expires
            _log.warning(
                "could not release webhook endpoint", endpoint=delivery.endpoint.url, error=repr(error)
            )
        if self._deliveries.get(endpoint_id) is delivery:
            del self._deliveries[endpoint_id]
            del self._tasks[endpoint_id]

    def _note_unwritten(self, endpoint_id: EndpointId) -> None:
        delivery = self._deliveries.get(endpoint_id)
        if delivery is not None:
            self._unwritten[endpoint_id] = delivery
            self._has_unwritten.set()

    async def _write(self) -> None:
        """Write the results of all deliveries, again and again, each time in one transaction."""
        while True:
            await self._has_unwritten.wait()
            await asyncio.sleep(GATHER_S)
            self._has_unwritten.clear()
            unwritten, self._unwritten = self._unwritten, {}
            taken = [(delivery, delivery.take_results()) for delivery in unwritten.values()]
            await self._record([results for _, results in taken])
            for delivery, results in taken:
                delivery.on_recorded(results)

    async def _record(self, results: Sequence[EndpointResults]) -> None:
        is_repeated = False
        while True:
            try:
                connection = await self._line.begin()
                await record_results(
                    connection, self._worker, results, self._clock(), is_repeated=is_repeated
                )
                await self._line.end()
            except Exception as error:  # noqa: BLE001 - written when the database is back
                # The commit may have succeeded.
                is_repeated = True
                await self._line.roll_back(error)
                log_failure("could not write webhook results yet", error)
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def _stop(self, writer: "asyncio.Task[None]") -> None:
        for delivery in self._deliveries.values():
            delivery.close()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=DRAIN_S)
        for task in [*tasks, writer]:
            task.cancel()
        await asyncio.gather(*tasks, writer, return_exceptions=True)
        self._line.terminate()
