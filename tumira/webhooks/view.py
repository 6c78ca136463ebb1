"""Shows attempts to an endpoint's owner, with the request written again as it was sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from tumira import events
from tumira.core.ids import EVENT, AccountId, EndpointId, EventId, first_id, made_at_ms, write_id
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.replies import store as replies
from tumira.sending import batches
from tumira.webhooks import attempts, retries
from tumira.webhooks import url as webhook_url
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.manage import OVERLAP
from tumira.webhooks.payload import reply_of, write_payload
from tumira.webhooks.retries import Backlog
from tumira.webhooks.signature import sign

# How much the clocks of two machines may differ.
_SKEW_MS: Final = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as it was sent, but for data that has changed since."""

    target: str
    headers: Sequence[tuple[str, str]]
    body: str


async def list_attempts(
    database: Database, account_id: AccountId, endpoint_id: EndpointId, before: UUID | None, count_max: int
) -> tuple[Sequence[Attempt], bool]:
    """Return attempts at an account's endpoint, newest first, and whether there are older ones."""
    async with database.connection() as connection:
        found = await attempts.list_attempts(
            connection, account_id, endpoint_id, count_max + 1, before=before or attempts.HIGHEST
        )
    return found[:count_max], len(found) > count_max


async def find_latest_attempt(
    database: Database, account_id: AccountId, endpoint_id: EndpointId, event_id: EventId
) -> Attempt | None:
    """Return the latest attempt of an event, None before the first."""
    since = first_id(max(0, made_at_ms(event_id) - _SKEW_MS))
    async with database.connection() as connection:
        found = await attempts.list_attempts(
            connection, account_id, endpoint_id, 1, event_id=event_id, since=since
        )
    return next(iter(found), None)


async def find_next_attempt(
    database: Database, endpoint: Endpoint, backlog: Backlog, now: datetime, event_id: EventId | None = None
) -> datetime | None:
    """Return when an endpoint, or one event of it, is tried next; `now` for at once, None for never.

    A paused or disabled endpoint is not tried, and during a backoff only when that ends.
    """
    if endpoint.state != "active" or not backlog.total:
        return None
    async with database.connection() as connection:
        due = await retries.find_next_due(connection, endpoint.id, event_id)
    if event_id is None and (backlog.behind or backlog.replays or endpoint.health.is_probing):
        due = now
    return None if due is None else max(now, due, endpoint.health.backoff_until or now)


async def find_attempt(
    database: Database, endpoint: Endpoint, attempt_id: UUID
) -> tuple[Attempt, SentRequest | None] | None:
    """Return an attempt, or None; and its request, which is None if the event was deleted."""
    async with database.connection() as connection:
        attempt = await attempts.find_attempt(connection, endpoint.account_id, endpoint.id, attempt_id)
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
    reply_id = reply_of(event)
    reply = None if reply_id is None else await replies.find(connection, account_id, reply_id)
    if (event.message_id and message is None) or (event.batch_id and batch is None):
        return None
    if reply_id is not None and reply is None:
        return None
    return write_payload(event, message, batch, reply)


def _write_request(endpoint: Endpoint, attempt: Attempt, body: bytes) -> SentRequest:
    # The URL was allowed when it was called, so it is shown even if it is not allowed by now.
    target = webhook_url.parse(endpoint.url, allow_private=True)
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
    return SentRequest(target.path, headers, body.decode())


def _secrets_at(endpoint: Endpoint, at: datetime) -> Sequence[bytes]:
    """Return the secrets that signed then; none if they were replaced and are not stored any more."""
    if endpoint.old_secret_until is not None and at < endpoint.old_secret_until - OVERLAP:
        return ()
    return endpoint.secrets_at(at)
