"""Which endpoints does this worker deliver to? Takes those for which something waits, one courier for each.

An endpoint belongs to one worker at a time, by a lease: its connections, its failures and its limits are then
in one place. Nothing is claimed event by event. What a worker had under way when it died is sent again by the
next one, from the position on that was last written.
"""

import asyncio
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import structlog

from tumira.core.database_errors import is_unavailable
from tumira.core.ids import EndpointId
from tumira.core.loops import say_unavailable
from tumira.core.trace_exporter import Tracer
from tumira.postgres.connection import Connection
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import Database
from tumira.webhooks import endpoints
from tumira.webhooks import url as webhook_urls
from tumira.webhooks.delivery import Client, Clock, Courier
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import Answer, CallFailedError, Resolve, WebhookClient
from tumira.webhooks.record import Advance, record_deliveries

LOOK_S: Final = 0.1
# What becomes due by time alone is looked for less often, and what nobody told us of now and then.
LOOK_FOR_DUE_S: Final = 1.0
LOOK_FOR_ALL_S: Final = 60.0
LEASE_S: Final = 10.0
RENEW_S: Final = 1.0
COURIERS_MAX: Final = 500
DRAIN_S: Final = 5.0
PAUSE_S: Final = 0.2
# A small group costs nearly what a large one does, and nobody waits for it.
BREATH_S: Final = 0.02

_log: Final = structlog.get_logger()


def real_time() -> datetime:
    """Return the time; tests have a clock of their own."""
    return datetime.now(UTC)


class WebhookWorker:
    """Runs the couriers of one worker."""

    def __init__(
        self,
        database: Database,
        worker: str,
        *,
        allow_private: bool,
        resolve: Resolve,
        tls: ssl.SSLContext,
        clock: Clock = real_time,
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
        self._couriers: dict[EndpointId, Courier] = {}
        self._tasks: dict[EndpointId, asyncio.Task[None]] = {}
        self._news: dict[EndpointId, Courier] = {}
        self._has_news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._renewed_at = self._looked_at = self._looked_for_all_at = self._loop.time()

    async def run(self) -> None:
        """Deliver until cancelled; what is under way then is given a moment to end."""
        writer = asyncio.create_task(self._write())
        try:
            while True:
                try:
                    await self._look()
                except Exception as error:  # noqa: BLE001 - endpoints are kept as long as their leases last
                    if is_unavailable(error):
                        say_unavailable("endpoints not followed", error)
                    else:
                        _log.error("endpoints not followed", exc_info=error)
                    await asyncio.sleep(PAUSE_S)
                await asyncio.sleep(LOOK_S)
        finally:
            await self._stop(writer)

    async def _look(self) -> None:
        leased: Sequence[Endpoint] = ()
        # In one transaction: who dies in between has heard no bell.
        async with self._database.transaction() as connection:
            await self._keep(connection)
            free = []
            for endpoint_id in await self._find(connection):
                courier = self._couriers.get(endpoint_id)
                if courier is None:
                    free.append(endpoint_id)
                else:
                    courier.wake()
            room = COURIERS_MAX - len(self._couriers)
            if free and room > 0:
                leased = await endpoints.lease(
                    connection, free, self._worker, self._clock(), count_max=room, lease_s=LEASE_S
                )
        for endpoint in leased:
            self._open(endpoint)

    async def _keep(self, connection: Connection) -> None:
        """Renew the leases; part from endpoints that were paused, removed, changed, or are not ours now."""
        now = self._loop.time()
        if not self._couriers or now - self._renewed_at < RENEW_S:
            return
        kept = await endpoints.renew(connection, list(self._couriers), self._worker, LEASE_S)
        self._renewed_at = now
        for endpoint_id, courier in self._couriers.items():
            if kept.get(endpoint_id) != courier.endpoint.changed_at:
                courier.close()

    async def _find(self, connection: Connection) -> Sequence[EndpointId]:
        """Return endpoints for which something may wait."""
        found = list(await endpoints.hear(connection, self._worker, COURIERS_MAX))
        now = self._loop.time()
        if now - self._looked_at >= LOOK_FOR_DUE_S:
            self._looked_at = now
            found.extend(await endpoints.list_due(connection, self._clock()))
        if now - self._looked_for_all_at >= LOOK_FOR_ALL_S:
            self._looked_for_all_at = now
            found.extend(await endpoints.list_behind(connection, self._clock()))
        return found

    def _open(self, endpoint: Endpoint) -> None:
        courier = Courier(
            endpoint,
            self._client(endpoint),
            self._database,
            self._clock,
            lambda: self._tell(endpoint.id),
            self._tracer,
        )
        self._couriers[endpoint.id] = courier
        self._tasks[endpoint.id] = asyncio.create_task(self._run(courier))

    def _client(self, endpoint: Endpoint) -> Client:
        try:
            target = webhook_urls.parse(endpoint.url, allow_private=self._allow_private)
        except ValueError as error:
            return _NoClient(str(error))
        return WebhookClient(target, allow_private=self._allow_private, resolve=self._resolve, tls=self._tls)

    async def _run(self, courier: Courier) -> None:
        endpoint_id = courier.endpoint.id
        try:
            await courier.run()
        except Exception as error:  # noqa: BLE001 - the next one begins where this one's writing ended
            _log.error("courier failed", endpoint=courier.endpoint.url, exc_info=error)
        # What it did is written before anybody else begins there.
        await courier.wait_until_recorded()
        try:
            async with self._database.connection() as connection:
                await endpoints.release(connection, endpoint_id, self._worker)
        except Exception as error:  # noqa: BLE001 - then the lease ends by itself
            _log.warning("endpoint not released", endpoint=courier.endpoint.url, error=repr(error))
        if self._couriers.get(endpoint_id) is courier:
            del self._couriers[endpoint_id]
            del self._tasks[endpoint_id]

    def _tell(self, endpoint_id: EndpointId) -> None:
        courier = self._couriers.get(endpoint_id)
        if courier is not None:
            self._news[endpoint_id] = courier
            self._has_news.set()

    async def _write(self) -> None:
        """Write down what couriers did, all of them in one transaction, again and again."""
        while True:
            await self._has_news.wait()
            await asyncio.sleep(BREATH_S)
            self._has_news.clear()
            news, self._news = self._news, {}
            advances = [(courier, courier.advance()) for courier in news.values()]
            await self._record([advance for _, advance in advances])
            for courier, advance in advances:
                courier.recorded(advance)

    async def _record(self, advances: Sequence[Advance]) -> None:
        again = False
        while True:
            try:
                connection = await self._line.begin()
                await record_deliveries(connection, self._worker, advances, self._clock(), again=again)
                await self._line.end()
            except Exception as error:  # noqa: BLE001 - written when the database is back
                await self._line.roll_back(error)
                if is_unavailable(error):
                    say_unavailable("deliveries not recorded yet", error)
                else:
                    _log.error("deliveries not recorded yet", exc_info=error)
                again = True
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def _stop(self, writer: "asyncio.Task[None]") -> None:
        for courier in self._couriers.values():
            courier.close()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=DRAIN_S)
        for task in [*tasks, writer]:
            task.cancel()
        await asyncio.gather(*tasks, writer, return_exceptions=True)
        self._line.terminate()


class _NoClient:
    """Stands in for an endpoint whose URL may not be called any more; each try says why."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    async def post(self, _headers: Sequence[tuple[str, str]], _body: bytes) -> Answer:
        raise CallFailedError(self._problem)

    def close(self) -> None:
        pass
