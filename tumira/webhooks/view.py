"""What was sent to an endpoint, and what was answered? The request is made again as the courier made it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from tumira import events
from tumira.core.ids import EVENT, AccountId, EndpointId, EventId, first_id, made_at_ms, write_id
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.sending import batches
from tumira.webhooks import tries
from tumira.webhooks import url as webhook_urls
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.manage import OVERLAP
from tumira.webhooks.payload import write_payload
from tumira.webhooks.signature import sign

# The clocks of two machines may differ by that much.
_SKEW_MS: Final = 5 * 60 * 1000
_SUCCESS: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it was, but for what has been changed since."""

    target: str
    headers: Sequence[tuple[str, str]]
    body: str


def has_arrived(attempt: Attempt) -> bool:
    """Tell whether the endpoint took the event."""
    return attempt.status in _SUCCESS


async def list_tries(
    database: Database, account_id: AccountId, endpoint_id: EndpointId, before: UUID | None, count_max: int
) -> tuple[Sequence[Attempt], bool]:
    """Return tries at an account's endpoint, newest first, and whether there are older ones."""
    async with database.connection() as connection:
        found = await tries.list_before(
            connection, account_id, endpoint_id, before or tries.HIGHEST, count_max + 1
        )
    return found[:count_max], len(found) > count_max


async def find_answer(
    database: Database, account_id: AccountId, endpoint_id: EndpointId, event_id: EventId
) -> Attempt | None:
    """Return how the latest try of an event ended, None while there was none."""
    since = first_id(max(0, made_at_ms(event_id) - _SKEW_MS))
    async with database.connection() as connection:
        return await tries.find_latest(connection, account_id, endpoint_id, event_id, since)


async def find_try(
    database: Database, endpoint: Endpoint, attempt_id: UUID
) -> tuple[Attempt, Sent | None] | None:
    """Return a try, and what was sent unless the event is gone; None when there was no such try."""
    async with database.connection() as connection:
        attempt = await tries.find(connection, endpoint.account_id, endpoint.id, attempt_id)
        if attempt is None:
            return None
        body = await _write_body(connection, endpoint.account_id, attempt.event_id)
    return attempt, None if body is None else _write_request(endpoint, attempt, body)


async def _write_body(connection: Connection, account_id: AccountId, event_id: EventId) -> bytes | None:
    event = await events.find(connection, account_id, event_id)
    if event is None:
        return None
    message = batch = None
    if event.message_id is not None:
        message = await batches.find_message(connection, account_id, event.message_id)
    if event.batch_id is not None:
        batch = await batches.find(connection, account_id, event.batch_id)
    if (event.message_id and message is None) or (event.batch_id and batch is None):
        return None
    return write_payload(event, message, batch)


def _write_request(endpoint: Endpoint, attempt: Attempt, body: bytes) -> Sent:
    # What was allowed when it was called is shown, whatever is allowed by now.
    target = webhook_urls.parse(endpoint.url, allow_private=True)
    event_id = write_id(EVENT, attempt.event_id)
    at_s = int(attempt.at.timestamp())
    secrets = _secrets_at(endpoint, attempt.at)
    headers = [
        ("host", target.authority),
        ("user-agent", "Tumira-Webhooks/1"),
        ("content-type", "application/json"),
        ("accept", "*/*"),
        ("webhook-id", event_id),
        ("webhook-timestamp", str(at_s)),
        *([("webhook-signature", sign(secrets, event_id, at_s, body))] if secrets else []),
        ("content-length", str(len(body))),
    ]
    return Sent(target.path, headers, body.decode())


def _secrets_at(endpoint: Endpoint, at: datetime) -> Sequence[bytes]:
    """Return what signed then; nothing if the secret was changed since, and the one before is not known."""
    if endpoint.old_secret_until is not None and at < endpoint.old_secret_until - OVERLAP:
        return ()
    return endpoint.secrets_at(at)
