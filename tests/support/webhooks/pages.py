"""Endpoints that tests add on the dashboard, and events for them."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import httpx

from tests.support.identity.people import Person, alert
from tests.support.processes.service import Service
from tests.support.webhooks.office import new_attempt
from tumira.core.dns import Resolver
from tumira.core.ids import ENDPOINT, AccountId, EndpointId, EventId, read_id
from tumira.dashboard.pages.webhooks import WEBHOOKS
from tumira.events import SUBSCRIBABLE, NewEvent, record_events
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending.low_balance import low_balance_data
from tumira.webhooks import attempts
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.http_client import default_tls
from tumira.webhooks.worker import WebhookWorker

URL: Final = "http://127.0.0.1:9/hook"
SECRET: Final = re.compile(r"whsec_[0-9A-Za-z+/]{43}=")
HOSTILE: Final = "\"><script>alert(1)</script>' {{7*7}}"


def add(person: Person, url: str = URL, description: str = "", types: Sequence[str] = SUBSCRIBABLE) -> str:
    page = post(person, "", url=url, description=description, type=types)
    assert page.status_code == 200, alert(page)
    found = re.search(rf"{WEBHOOKS}/(end_\w+)\">Test the endpoint", page.text)
    assert found is not None
    return found[1]


def post(person: Person, below: str, **fields: Any) -> httpx.Response:
    return person.browser.post(WEBHOOKS + below, data={"password_for_url": person.password, **fields})


def show(person: Person, endpoint: str, query: str = "") -> str:
    page = person.browser.get(f"{WEBHOOKS}/{endpoint}{query}")
    assert page.status_code == 200
    return page.text


def uuid(prefix: str, text: str) -> UUID:
    found = read_id(prefix, text)
    assert found is not None
    return found


def stored(service: Service, endpoint: str) -> Mapping[str, Any]:
    (row,) = service.sql("SELECT * FROM webhook_endpoints WHERE id = $1", uuid(ENDPOINT, endpoint))
    return dict(row)


def account_of(service: Service, person: Person) -> AccountId:
    return AccountId(service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)[0]["id"])


def add_events(service: Service, person: Person, number: int = 1) -> Sequence[EventId]:
    account_id = account_of(service, person)
    data = low_balance_data(Decimal("0.96"), Decimal(1))

    async def write(database: Database) -> None:
        async with database.transaction() as connection:
            new = [NewEvent(account_id, "balance.low", data=data)] * number
            await record_events(connection, new, datetime.now(UTC))

    service.run(write)
    rows = service.sql(
        "SELECT id FROM events WHERE account_id = $1 ORDER BY sequence DESC LIMIT $2", account_id, number
    )
    return [EventId(row["id"]) for row in reversed(rows)]


def put_attempts(service: Service, endpoint: str, made: Sequence[Attempt]) -> None:
    async def write(database: Database) -> None:
        async with database.transaction() as connection:
            await attempts.insert_attempts(connection, made)

    assert all(one.endpoint_id == uuid(ENDPOINT, endpoint) for one in made)
    service.run(write)


def attempt(endpoint: str, event_id: EventId, sequence: int = 1, **values: Any) -> Attempt:
    return new_attempt(EndpointId(uuid(ENDPOINT, endpoint)), event_id, sequence=sequence, **values)


@asynccontextmanager
async def delivering(service: Service) -> AsyncIterator[None]:
    database = Database(service.url, settings=KEY_LOOKUPS)
    worker = WebhookWorker(database, "worker-1", allow_private=True, resolve=Resolver(), tls=default_tls())
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await database.close()
