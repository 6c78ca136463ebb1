"""An account with endpoints, and webhook workers with a movable clock.

async with run_receiver() as receiver, open_hooks(database_url) as hooks:
    endpoint = await hooks.add(receiver.url)
    hooks.start_worker()
    await hooks.add_events(3)
    await receiver.wait(requests=3)
"""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import asyncpg
from standardwebhooks.webhooks import Webhook

from tests.support.chaos.breakable import LINE_OCTETS, DatabaseLine, _Watch
from tests.support.processes.service import Caller, new_caller
from tests.support.webhooks.receivers import Receiver, Request
from tumira.core.dns import Resolver
from tumira.core.ids import EVENT, EndpointId, EventId, write_id
from tumira.events import NewEvent, record_events
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending.low_balance import low_balance_data
from tumira.webhooks import attempts, endpoints, manage, retries
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import default_tls
from tumira.webhooks.retries import Backlog
from tumira.webhooks.worker import WebhookWorker

WAIT_S: Final = 40.0
# A worker that did nothing in this time does nothing.
STILL_S: Final = 0.4
BALANCE_LOW: Final = "balance.low"
DATA: Final = low_balance_data(Decimal("0.96"), Decimal(1))


class MovableClock:
    """The time, and as much later as a test wants it."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def move(self, by: timedelta) -> None:
        self._ahead += by

    def move_to(self, at: datetime) -> None:
        self.move(max(timedelta(0), at - self()) + timedelta(milliseconds=1))


@dataclass(frozen=True, slots=True)
class Added:
    """An endpoint, and the secret that its owner was shown."""

    id: EndpointId
    secret: str


@dataclass(slots=True)
class Hooks:
    """An account with endpoints on a database, and workers that deliver there."""

    database: Database
    caller: Caller
    clock: MovableClock
    workers: list["asyncio.Task[None]"] = field(default_factory=list)
    _databases: list[Database] = field(default_factory=list)

    async def add(self, url: str, *types: str, caller: Caller | None = None) -> Added:
        account_id = (caller or self.caller).id
        endpoint, secret = await manage.add_endpoint(
            self.database, account_id, url, types or None, "", allow_private=True
        )
        return Added(endpoint.id, secret)

    async def add_events(
        self, count: int = 1, type_: str = BALANCE_LOW, caller: Caller | None = None
    ) -> None:
        account_id = (caller or self.caller).id
        async with self.database.transaction() as connection:
            await record_events(connection, [NewEvent(account_id, type_, data=DATA)] * count, self.clock())

    def start_worker(
        self, name: str = "worker-1", url: str | None = None, *, allow_private: bool = True
    ) -> "asyncio.Task[None]":
        """Deliver from now on; over another line to the database if one is given."""
        database = Database(url or self.database.url, settings=KEY_LOOKUPS)
        self._databases.append(database)
        worker = WebhookWorker(
            database,
            name,
            allow_private=allow_private,
            resolve=Resolver(),
            tls=default_tls(),
            clock=self.clock,
        )
        task = asyncio.create_task(worker.run())
        self.workers.append(task)
        return task

    async def stop_worker(self, task: "asyncio.Task[None]") -> None:
        self.workers.remove(task)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def close(self) -> None:
        for task in list(self.workers):
            await self.stop_worker(task)
        for database in (*self._databases, self.database):
            await database.close()

    # What can be seen.

    async def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self.database.connection() as connection:
            return await connection.fetch(statement, *arguments)

    async def endpoint(self, added: Added) -> Endpoint:
        async with self.database.connection() as connection:
            there = await endpoints.list_endpoints(connection, None, 100_000)
        (found,) = (one for one in there if one.id == added.id)
        return found

    async def waiting(self, added: Added) -> Backlog:
        async with self.database.connection() as connection:
            return await retries.count_backlog(connection, added.id)

    async def attempts(self, added: Added, event_id: EventId | None = None) -> Sequence[Attempt]:
        async with self.database.connection() as connection:
            return (await attempts.list_attempts(connection, None, added.id, 100_000, event_id=event_id))[
                ::-1
            ]

    async def event_ids(self, caller: Caller | None = None) -> Sequence[EventId]:
        rows = await self.rows(
            "SELECT id FROM events WHERE account_id = $1 AND sequence > 0 ORDER BY sequence",
            (caller or self.caller).id,
        )
        return [EventId(row["id"]) for row in rows]

    async def webhook_ids(self, caller: Caller | None = None) -> Sequence[str]:
        """Return the account's events in their order as receivers know them."""
        return [write_id(EVENT, event_id) for event_id in await self.event_ids(caller)]

    # Backlog.

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, wait_s: float = WAIT_S
    ) -> None:
        deadline = time.monotonic() + wait_s
        while not await condition():
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.02)

    async def until_idle(self, added: Added) -> None:
        async def idle() -> bool:
            return await self.waiting(added) == Backlog(0, 0, 0)

        await self.until(idle, "something still waits for the endpoint")

    async def until_attempts(self, added: Added, count: int) -> Sequence[Attempt]:
        """Wait until `count` attempts were recorded, and return them."""

        async def there() -> bool:
            return len(await self.attempts(added)) >= count

        await self.until(there, f"there are no {count} tries")
        found = await self.attempts(added)
        assert len(found) == count, f"{len(found)} tries instead of {count}"
        return found

    async def until_state(self, added: Added, state: str) -> Endpoint:
        """Wait until an endpoint is in a state, and return it."""

        async def there() -> bool:
            return (await self.endpoint(added)).state == state

        await self.until(there, f"the endpoint is not {state}")
        return await self.endpoint(added)

    async def until_free(self, added: Added) -> None:
        async def free() -> bool:
            rows = await self.rows("SELECT worker FROM webhook_endpoints WHERE id = $1", added.id)
            return not rows or rows[0]["worker"] is None

        await self.until(free, "the endpoint is not let go of")


class RecordLine(DatabaseLine):
    """Stands between a worker and PostgreSQL, and holds back the answer to the commit that records tries."""

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watch: _Watch) -> None:
        while data := await reader.read(LINE_OCTETS):
            watch.claims = watch.claims or b"webhook_attempts" in data
            if self._armed and watch.claims and b"COMMIT\0" in data:
                self._armed = False
                watch.holds = True
            writer.write(data)
        raise ConnectionError


@asynccontextmanager
async def open_hooks(url: str) -> AsyncIterator[Hooks]:
    """Open an account on a database, and end the workers that the test started."""
    hooks = Hooks(Database(url, settings=KEY_LOOKUPS), await new_caller(url), MovableClock())
    try:
        yield hooks
    finally:
        await hooks.close()


async def comes_soon(receiver: Receiver, count: int, wait_s: float) -> bool:
    """Tell whether `count` requests came within some time."""
    try:
        async with asyncio.timeout(wait_s):
            await receiver.wait(requests=count)
    except TimeoutError:
        return False
    return len(receiver.requests) == count


def still() -> Awaitable[None]:
    return asyncio.sleep(STILL_S)


def ids_of(requests: Iterable[Request]) -> Counter[str]:
    return Counter(request.headers["webhook-id"] for request in requests)


def signatures_of(request: Request, *secrets: str) -> str:
    """Return what the header should be, after the specification and not after our code."""
    signed = b".".join(
        [request.headers["webhook-id"].encode(), request.headers["webhook-timestamp"].encode(), request.body]
    )
    made = (
        hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
        for secret in secrets
    )
    return " ".join("v1," + base64.b64encode(one).decode() for one in made)


def open_request(request: Request, secret: str) -> dict[str, Any]:
    """Check and read a request as a careful receiver does, and as the reference library does."""
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    assert signatures_of(request, secret) in request.headers["webhook-signature"].split(" ")
    payload: dict[str, Any] = json.loads(request.body)
    assert Webhook(secret).verify(request.body, dict(request.headers)) == payload
    assert payload.keys() == {"type", "timestamp", "sequence", "data"}
    return payload
