"""Two accounts with endpoints to which no worker delivers."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import asyncpg
from msgspec import structs

from tumira import events
from tumira.core.ids import AccountId, EndpointId, EventId, new_id
from tumira.events import Event, NewEvent
from tumira.postgres.pool import Database
from tumira.webhooks import endpoints, manage, retries
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.health import Health
from tumira.webhooks.retries import Backlog, EventRetry

URL: Final = "https://hooks.example.com/tumira"
LOW: Final = '{"balance":"0.9600","threshold":"1.0000","currency":"USD"}'


def new_attempt(endpoint_id: EndpointId, event_id: EventId, **values: Any) -> Attempt:
    """Return an attempt that failed just now, but for the given values."""
    at = values.pop("at", datetime.now(UTC))
    fields: dict[str, Any] = {
        "sequence": 1,
        "type": "balance.low",
        "number": 1,
        "duration_ms": 12,
        "status": 500,
        "problem": None,
        "answer": "",
        "next_at": None,
    }
    return Attempt(
        id=new_id(int(at.timestamp() * 1000)),
        endpoint_id=endpoint_id,
        event_id=event_id,
        at=at,
        **fields | values,
    )


class Office:
    """A database with two accounts, and events that nobody delivers."""

    def __init__(self, database: Database, ours: AccountId, theirs: AccountId) -> None:
        self.database = database
        self.ours = ours
        self.theirs = theirs

    async def add(
        self, url: str = URL, types: Sequence[str] | None = None, account_id: AccountId | None = None
    ) -> Endpoint:
        endpoint, _ = await manage.add_endpoint(
            self.database, account_id or self.ours, url, types, "", allow_private=False
        )
        return endpoint

    async def change(self, endpoint_id: EndpointId, **changes: Any) -> Endpoint:
        given = {"url": None, "types": None, "change_types": False, "description": None} | changes
        return await manage.change_endpoint(self.database, endpoint_id, allow_private=False, **given)

    async def add_events(
        self, count: int, *, at: datetime | None = None, account_id: AccountId | None = None
    ) -> Sequence[Event]:
        account_id = account_id or self.ours
        began = at or datetime.now(UTC)
        new = [NewEvent(account_id, "balance.low", data=LOW)] * count
        async with self.database.transaction() as connection:
            before = await events.last_sequence(connection, account_id)
            await events.record_events(connection, new, datetime.now(UTC))
            await connection.execute(
                "UPDATE events SET at = $3::timestamptz + (sequence - $2 - 1) * interval '1 second'"
                " WHERE account_id = $1 AND sequence > $2",
                account_id,
                before,
                began,
            )
            return await events.list_after(connection, account_id, before, None, count)

    async def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self.database.connection() as connection:
            return await connection.fetch(statement, *arguments)

    async def move(self, endpoint_id: EndpointId, position: int) -> None:
        await self.rows(
            "UPDATE webhook_endpoints SET position = $2 WHERE id = $1 RETURNING id", endpoint_id, position
        )

    async def put_off(self, endpoint_id: EndpointId, event: Event, due_in: timedelta) -> None:
        now = datetime.now(UTC)
        async with self.database.transaction() as connection:
            retry = EventRetry(endpoint_id, event.sequence, event.id, 3, now, now + due_in)
            await retries.upsert_retries(connection, [retry])

    async def fail(self, endpoint_id: EndpointId) -> Health:
        now = datetime.now(UTC)
        health = Health(20, now - timedelta(hours=2), now + timedelta(minutes=5), 1, now - timedelta(days=1))
        await self.rows(
            "UPDATE webhook_endpoints SET failures = $2, failing_since = $3, rest_until = $4, warnings = $5,"
            " succeeded_at = $6 WHERE id = $1 RETURNING id",
            endpoint_id,
            *structs.astuple(health),
        )
        return health

    async def stored(self, endpoint_id: EndpointId) -> Endpoint:
        async with self.database.transaction() as connection:
            endpoint = await endpoints.lock(connection, None, endpoint_id)
        assert endpoint is not None
        return endpoint

    async def waiting(self, endpoint_id: EndpointId) -> Backlog:
        async with self.database.connection() as connection:
            return await retries.count_backlog(connection, endpoint_id)

    async def due(self, endpoint_id: EndpointId) -> Sequence[EventRetry]:
        async with self.database.connection() as connection:
            return await retries.list_due_retries(connection, endpoint_id, datetime.now(UTC), 10)

    async def stretches(self, endpoint_id: EndpointId) -> Sequence[tuple[int, int]]:
        async with self.database.connection() as connection:
            replays = await retries.list_replays(connection, endpoint_id, 100)
        return [(replay.position, replay.until) for replay in replays]
