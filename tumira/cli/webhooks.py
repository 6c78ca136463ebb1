"""The `tumira webhook` commands."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from tumira import events
from tumira.cli.output import (
    ACCOUNT_ID,
    IdType,
    TimeType,
    actor,
    database_command,
    load_settings,
    show,
    show_all,
    tell,
    wants_json,
)
from tumira.core.dns import Resolver
from tumira.core.errors import OperatorError
from tumira.core.ids import ENDPOINT, EVENT, AccountId, EndpointId, EventId, write_id
from tumira.postgres.pool import Database
from tumira.webhooks import attempts, manage, replay, retries
from tumira.webhooks import url as webhook_url
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import CallFailedError, NotPublicError, resolve_public
from tumira.webhooks.http_response import is_success
from tumira.webhooks.manage import By
from tumira.webhooks.retries import Backlog

ENDPOINT_ID: Final = IdType(ENDPOINT, "an endpoint", "`tumira webhook list` shows them.")
EVENT_ID: Final = IdType(EVENT, "an event", "it stands in `webhook-id`.")
TIME: Final = TimeType("time", UTC, "is not a time such as 2026-11-15T08:30 or 2026-11-15.")
LIST_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 1_000
ANSWER_SHOWN: Final = 40
TEST_WAIT_S: Final = 20
LOOK_S: Final = 0.1


events_option = click.option("--events", "types", help="Such as message.delivered,message.failed; or `all`.")
endpoint_argument = click.argument("endpoint_id", metavar="ENDPOINT", type=ENDPOINT_ID)


@click.group()
def webhook() -> None:
    """Add, watch, test and repair webhook endpoints."""


@webhook.command("add")
@click.option("--account", "account_id", type=ACCOUNT_ID, required=True)
@click.option("--url", required=True, help="Where to send events, https only.")
@events_option
@click.option("--description", default="", help="What the endpoint is for.")
@database_command
async def webhook_add(
    database: Database,
    *,
    account_id: AccountId,
    url: str,
    types: str | None,
    description: str,
) -> None:
    """Add an endpoint; its secret is shown once."""
    await _check_url(url)
    endpoint, secret = await manage.add_endpoint(
        database,
        account_id,
        url,
        _types(types),
        description,
        allow_private=_allow_private(),
        by=_operator(),
    )
    shown = {"endpoint_id": endpoint.id, "secret": secret, **_endpoint(endpoint, Backlog(0, 0, 0))}
    show(shown, title="Endpoint added. Copy the secret now: it is not shown again.")


@webhook.command("list")
@click.option("--account", "account_id", type=ACCOUNT_ID, help="Only this account's.")
@database_command
async def webhook_list(database: Database, *, account_id: AccountId | None) -> None:
    """List endpoints, their states, and how many events wait for each."""
    found = await manage.list_endpoints(database, account_id, LIST_MAX)
    show_all(
        [_endpoint(endpoint, waiting) for endpoint, waiting in found],
        empty="No endpoints yet: `tumira webhook add` adds one.",
        columns="endpoint_id url events state waiting",
        # A list of types does not fit into a line.
        for_people={"events": lambda types: types[0] if len(types) == 1 else f"{len(types)} types"},
    )
    if not wants_json():
        for endpoint, _ in found:
            warning = manage.warning(endpoint)
            if warning is not None:
                click.echo(f"\n{write_id(ENDPOINT, endpoint.id)}: {warning}")


@webhook.command("remove")
@endpoint_argument
@database_command
async def webhook_remove(database: Database, *, endpoint_id: EndpointId) -> None:
    """Remove an endpoint and the events that wait for it."""
    removed = await manage.remove_endpoint(database, endpoint_id, by=_operator())
    show({"endpoint_id": removed.id, "url": removed.url, "removed": True}, title="Endpoint removed.")


@webhook.command("change")
@endpoint_argument
@click.option("--url", help="Send events there from now on.")
@events_option
@click.option("--description", help="What the endpoint is for.")
@database_command
async def webhook_change(
    database: Database,
    *,
    endpoint_id: EndpointId,
    url: str | None,
    types: str | None,
    description: str | None,
) -> None:
    """Change the URL, the events or the description of an endpoint."""
    if url is None and types is None and description is None:
        raise OperatorError("Say what to change: --url, --events or --description.")
    if url is not None:
        await _check_url(url)
    changed = await manage.change_endpoint(
        database,
        endpoint_id,
        url=url,
        types=_types(types),
        change_types=types is not None,
        description=description,
        allow_private=_allow_private(),
        by=_operator(),
    )
    await _show(database, changed, title="Endpoint changed.")


@webhook.command("pause")
@endpoint_argument
@database_command
async def webhook_pause(database: Database, *, endpoint_id: EndpointId) -> None:
    """Send nothing more to an endpoint; its events wait."""
    paused = await manage.pause_endpoint(database, endpoint_id, by=_operator())
    await _show(database, paused, title="Paused; `tumira webhook resume` sends what waits.")


@webhook.command("resume")
@endpoint_argument
@click.option("--from-now", is_flag=True, help="Leave out what was missed; it can still be replayed.")
@database_command
async def webhook_resume(database: Database, *, endpoint_id: EndpointId, from_now: bool) -> None:
    """Send again to an endpoint that was paused or disabled, missed events included."""
    resumed = await manage.resume_endpoint(database, endpoint_id, from_now=from_now, by=_operator())
    await _show(database, resumed, title="Resumed.")


@webhook.command("rotate")
@endpoint_argument
@database_command
async def webhook_rotate(database: Database, *, endpoint_id: EndpointId) -> None:
    """Give an endpoint a new secret; for 24 hours events are signed with the old one too."""
    rotated, secret = await manage.rotate_secret(database, endpoint_id, by=_operator())
    shown = {
        "endpoint_id": rotated.id,
        "secret": secret,
        "old_secret_until": rotated.old_secret_until,
    }
    show(shown, title="Secret rotated. Copy the new one now: it is not shown again.")


@webhook.command("test")
@endpoint_argument
@database_command
async def webhook_test(database: Database, *, endpoint_id: EndpointId) -> None:
    """Have a worker send a test event to an endpoint, and show its answer."""
    event_id = await manage.send_test(database, endpoint_id)
    for _ in range(int(TEST_WAIT_S / LOOK_S)):
        async with database.connection() as connection:
            found = await attempts.list_attempts(connection, None, endpoint_id, 1, event_id=event_id)
        if found:
            break
        await asyncio.sleep(LOOK_S)
    if not found:
        raise OperatorError(f"No worker sent the test within {TEST_WAIT_S} seconds: is one running?")
    (attempt,) = found
    show(
        _attempt(attempt),
        title="Delivered." if is_success(attempt.status) else "Not delivered.",
    )
    if not is_success(attempt.status):
        raise SystemExit(1)


@webhook.command("attempts")
@endpoint_argument
@click.option("--event", "event_id", type=EVENT_ID, help="Only those of this event.")
@click.option("--limit", type=click.IntRange(1, ATTEMPTS_MAX), default=20, show_default=True)
@database_command
async def webhook_attempts(
    database: Database, *, endpoint_id: EndpointId, event_id: EventId | None, limit: int
) -> None:
    """List the latest attempts at an endpoint, newest first, with the answers."""
    found = await manage.list_attempts(database, endpoint_id, event_id, limit)
    show_all(
        [_attempt(attempt) for attempt in found],
        empty="Nothing was sent there yet: `tumira webhook test` tries it out.",
        columns="at event_id type attempt status duration_ms answer",
        for_people={
            "at": lambda at: f"{at:%m-%d %H:%M:%S}",
            "answer": lambda answer: " ".join(answer.split())[:ANSWER_SHOWN],
        },
    )


@webhook.command("replay")
@endpoint_argument
@click.option("--event", "event_id", type=EVENT_ID, help="One event.")
@click.option("--after", type=click.IntRange(0), help="Everything after this sequence number.")
@click.option("--from", "from_at", type=TIME, help="Everything from this time on (UTC) …")
@click.option("--until", "until_at", type=TIME, help="… to this one; now when left out.")
@database_command
async def webhook_replay(
    database: Database,
    *,
    endpoint_id: EndpointId,
    event_id: EventId | None,
    after: int | None,
    from_at: datetime | None,
    until_at: datetime | None,
) -> None:
    """Send events again: one, all after a sequence number, or those of some time."""
    if sum(one is not None for one in (event_id, after, from_at)) != 1:
        raise OperatorError("Say what to send once more: --event ID, --after SEQUENCE, or --from TIME.")
    if until_at is not None and from_at is None:
        raise OperatorError("--until goes with --from.")
    if event_id is not None:
        count = await replay.replay_event(database, endpoint_id, event_id)
    elif after is not None:
        count = await replay.replay_after(database, endpoint_id, after)
    else:
        assert from_at is not None
        until_at = until_at or datetime.now(UTC) + timedelta(minutes=1)
        if until_at < from_at:
            raise OperatorError("--until is before --from: there is no time in between.")
        count = await replay.replay_between(database, endpoint_id, from_at, until_at)
    title = "They are sent once more, those that it takes." if count else "There is nothing to send."
    show({"endpoint_id": endpoint_id, "events": count}, title=title)


async def _check_url(url: str) -> None:
    """Refuse a URL whose name leads to a private address; every connection checks it again."""
    allow_private = _allow_private()
    try:
        target = webhook_url.parse(url, allow_private=allow_private)
        await resolve_public(target, allow_private=allow_private, resolve=Resolver())
    except (ValueError, NotPublicError) as error:
        raise OperatorError(str(error)) from error
    except CallFailedError as error:
        tell(f"Not reachable yet: {error}")


def _types(text: str | None) -> list[str] | None:
    if text is None:
        return None
    if not text.strip():
        raise OperatorError("Say which events, as in --events message.delivered,message.failed, or `all`.")
    try:
        types = events.parse_types(text)
    except ValueError as error:
        raise OperatorError(str(error)) from error
    return None if types is None else list(types)


def _operator() -> By:
    return By(actor())


def _allow_private() -> bool:
    return load_settings().webhooks_allow_private


async def _show(database: Database, endpoint: Endpoint, *, title: str) -> None:
    async with database.connection() as connection:
        waiting = await retries.count_backlog(connection, endpoint.id)
    show(_endpoint(endpoint, waiting), title=title)


def _endpoint(endpoint: Endpoint, waiting: Backlog) -> Mapping[str, Any]:
    return {
        "endpoint_id": endpoint.id,
        "account_id": endpoint.account_id,
        "url": endpoint.url,
        "events": list(endpoint.types) if endpoint.types is not None else ["all"],
        "description": endpoint.description,
        "state": endpoint.state,
        "sequence": endpoint.position,
        "waiting": waiting.total,
        "failures": endpoint.health.failures,
        "failing_since": endpoint.health.failing_since,
        "warning": manage.warning(endpoint),
        "last_delivery_at": endpoint.health.succeeded_at,
        "created_at": endpoint.created_at,
    }


def _attempt(attempt: Attempt) -> Mapping[str, Any]:
    return {
        "at": attempt.at,
        "endpoint_id": attempt.endpoint_id,
        "event_id": attempt.event_id,
        "sequence": attempt.sequence,
        "type": attempt.type,
        "attempt": attempt.number,
        "delivered": is_success(attempt.status),
        "status": attempt.status,
        "duration_ms": attempt.duration_ms,
        "next_at": attempt.next_at,
        "answer": attempt.problem or attempt.answer,
    }
