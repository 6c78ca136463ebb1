"""Setting up, watching and repairing webhook endpoints, by their owners and by operators."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from tumira import audit_log, events
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.core.days import local_time
from tumira.core.errors import OperatorError
from tumira.core.ids import ENDPOINT, AccountId, EndpointId, EventId, new_id, write_id
from tumira.core.translation import _
from tumira.events import WEBHOOK_TEST, Event
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.webhooks import attempts, endpoints, leases, retries
from tumira.webhooks import url as webhook_url
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.endpoints import Endpoint, SigningSecret
from tumira.webhooks.health import DISABLE_AFTER, Health
from tumira.webhooks.payload import webhook_test_data
from tumira.webhooks.retries import Backlog, EventRetry
from tumira.webhooks.signature import SECRET_BYTES, write_secret

ENDPOINTS_MAX: Final = 5
DESCRIPTION_MAX: Final = 200
# How long both secrets sign after a rotation.
OVERLAP: Final = timedelta(hours=24)
# Tests that wait to be sent to one endpoint, however often its owner presses the button.
TESTS_MAX: Final = 20
# More endpoints than an account can have, in case it once could have more.
OWN_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class By:
    """Who acts: on the endpoints of one account, or, as operators do, of all accounts."""

    actor: Actor
    account_id: AccountId | None = None
    # An operator on the console, who repairs an endpoint for its owner.
    on_console: bool = False


OPERATOR: Final = By(audit_log.OPERATOR)


class NoEndpointError(OperatorError):
    """There is no such endpoint, or it belongs to another account."""

    def __init__(self) -> None:
        super().__init__("There is no such endpoint; `tumira webhook list` shows them.")


class EndpointError(OperatorError):
    """The request cannot be carried out; `plain` says so on pages, about the form field `field`."""

    def __init__(self, words: str, *, plain: str | None = None, field: str = "") -> None:
        super().__init__(words)
        self.plain = plain or words
        self.field = field


async def add_endpoint(
    database: Database,
    account_id: AccountId,
    url: str,
    types: Sequence[str] | None,
    description: str,
    *,
    allow_private: bool,
    by: By = OPERATOR,
) -> tuple[Endpoint, str]:
    """Add an endpoint for the events from now on; return it and its secret."""
    assert by.account_id in {None, account_id}
    secret = SigningSecret(secrets.token_bytes(SECRET_BYTES))
    url = _normal_url(url, allow_private=allow_private)
    _check_description(description)
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        await _require_account(connection, account_id)
        # Locked, so that two additions at once do not exceed the limit.
        await accounts.lock(connection, account_id)
        existing = await endpoints.list_endpoints(connection, account_id, ENDPOINTS_MAX)
        if len(existing) >= ENDPOINTS_MAX:
            text = _("An account can have {count} endpoints at most. Remove one first.")
            raise EndpointError(text.format(count=ENDPOINTS_MAX))
        _refuse_duplicate(url, existing)
        endpoint = Endpoint(
            id=EndpointId(new_id(int(now.timestamp() * 1000))),
            account_id=account_id,
            url=url,
            description=description,
            types=types,
            secret=secret,
            position=await events.last_sequence(connection, account_id),
            created_at=now,
            changed_at=now,
        )
        await endpoints.insert(connection, endpoint)
        await note(connection, by, endpoint, "endpoint added")
    return endpoint, write_secret(secret)


def _normal_url(url: str, *, allow_private: bool) -> str:
    try:
        return webhook_url.parse(url, allow_private=allow_private).url
    except ValueError as error:
        raise EndpointError(str(error), field="url") from error


def _check_description(description: str) -> None:
    if not description.isprintable():
        raise EndpointError(
            _("The description has characters that cannot be shown. Use plain text."),
            field="description",
        )
    if len(description) > DESCRIPTION_MAX:
        raise EndpointError(
            _("Use at most {count} characters for the description.").format(count=DESCRIPTION_MAX),
            field="description",
        )


async def list_endpoints(
    database: Database, account_id: AccountId | None, count_max: int
) -> Sequence[tuple[Endpoint, Backlog]]:
    """Return the endpoints of an account, or of all accounts, with their backlogs."""
    async with database.transaction() as connection:
        if account_id is not None:
            await _require_account(connection, account_id)
        return [
            (one, await retries.count_backlog(connection, one.id))
            for one in await endpoints.list_endpoints(connection, account_id, count_max)
        ]


async def list_attempts(
    database: Database, endpoint_id: EndpointId, event_id: EventId | None, count_max: int
) -> Sequence[Attempt]:
    """Return the latest attempts of one event or of all, newest first, also those of a removed endpoint."""
    async with database.connection() as connection:
        found = await attempts.list_attempts(connection, None, endpoint_id, count_max, event_id=event_id)
        if not found and await endpoints.find(connection, None, endpoint_id) is None:
            raise NoEndpointError
        return found


async def get_endpoint(
    database: Database, account_id: AccountId, endpoint_id: EndpointId
) -> tuple[Endpoint, Backlog]:
    async with database.transaction() as connection:
        endpoint = await endpoints.find(connection, account_id, endpoint_id)
        if endpoint is None:
            raise NoEndpointError
        return endpoint, await retries.count_backlog(connection, endpoint_id)


async def change_endpoint(
    database: Database,
    endpoint_id: EndpointId,
    *,
    url: str | None,
    types: Sequence[str] | None,
    change_types: bool,
    description: str | None,
    allow_private: bool,
    by: By = OPERATOR,
) -> Endpoint:
    """Change the URL, the types or the description of an endpoint; None leaves them unchanged."""
    async with database.transaction() as connection:
        endpoint = await lock_endpoint(connection, endpoint_id, by)
        changed = structs.replace(
            endpoint,
            url=endpoint.url if url is None else _normal_url(url, allow_private=allow_private),
            types=types if change_types else endpoint.types,
            description=endpoint.description if description is None else description,
        )
        _check_description(changed.description)
        if changed.url != endpoint.url:
            _refuse_duplicate(
                changed.url, await endpoints.list_endpoints(connection, endpoint.account_id, ENDPOINTS_MAX)
            )
            # Failures at the old URL say nothing about the new one.
            changed = structs.replace(changed, health=_reset_health(endpoint))
            await retries.make_retries_due(connection, [endpoint_id], await clock.read_now(connection))
        await endpoints.update(connection, changed)
        different = _differences(endpoint, changed)
        if different:
            await note(connection, by, changed, "endpoint changed", different)
    return changed


def _differences(before: Endpoint, after: Endpoint) -> str:
    different = {
        "URL": before.url != after.url,
        "events": _chosen(before) != _chosen(after),
        "description": before.description != after.description,
    }
    return ", ".join(name for name, is_so in different.items() if is_so)


def _chosen(endpoint: Endpoint) -> frozenset[str] | None:
    return None if endpoint.types is None else frozenset(endpoint.types)


async def remove_endpoint(database: Database, endpoint_id: EndpointId, *, by: By = OPERATOR) -> Endpoint:
    """Remove an endpoint and the events that wait for it."""
    async with database.transaction() as connection:
        endpoint = await lock_endpoint(connection, endpoint_id, by)
        await endpoints.delete(connection, endpoint_id)
        await note(connection, by, endpoint, "endpoint removed")
    return endpoint


async def pause_endpoint(database: Database, endpoint_id: EndpointId, *, by: By = OPERATOR) -> Endpoint:
    """Send nothing more to an endpoint; its events wait."""
    async with database.transaction() as connection:
        endpoint = await lock_endpoint(connection, endpoint_id, by)
        paused = structs.replace(endpoint, state="paused", reason=None)
        await endpoints.update(connection, paused)
        await retries.suspend_retries(connection, [endpoint_id])
        if endpoint.state != paused.state:
            await note(connection, by, endpoint, "endpoint paused")
    return paused


async def resume_endpoint(
    database: Database, endpoint_id: EndpointId, *, from_now: bool, by: By = OPERATOR
) -> Endpoint:
    """Send again to an endpoint: the waiting events too, or only the events from now on."""
    async with database.transaction() as connection:
        endpoint = await lock_endpoint(connection, endpoint_id, by)
        if by.on_console and endpoint.state == "paused":
            raise EndpointError("Its owner has paused the endpoint, and alone resumes it.")
        return await _resume(connection, endpoint, by, from_now=from_now)


async def _resume(connection: Connection, endpoint: Endpoint, by: By, *, from_now: bool = False) -> Endpoint:
    position = endpoint.position
    if from_now:
        position = await events.last_sequence(connection, endpoint.account_id)
        await retries.delete_backlog(connection, endpoint.id)
    else:
        await retries.make_retries_due(connection, [endpoint.id], await clock.read_now(connection))
    resumed = structs.replace(
        endpoint, state="active", reason=None, position=position, health=_reset_health(endpoint)
    )
    await endpoints.update(connection, resumed)
    await leases.wake(connection, endpoint.id)
    await note(connection, by, endpoint, "endpoint resumed", "from now on" if from_now else "")
    return resumed


async def rotate_secret(
    database: Database, endpoint_id: EndpointId, *, by: By = OPERATOR, seen: datetime | None = None
) -> tuple[Endpoint, str]:
    """Give an endpoint a new secret; for a day both sign.

    `seen` is the last change that the caller saw. If there was a later one, nothing is done: a button that is
    pressed twice must not end the secret that was in use until now.
    """
    secret = SigningSecret(secrets.token_bytes(SECRET_BYTES))
    async with database.transaction() as connection:
        endpoint = await lock_endpoint(connection, endpoint_id, by)
        if seen is not None and endpoint.changed_at != seen:
            raise EndpointError(
                _(
                    "The endpoint has changed since this page was opened, so its secret was not changed. If "
                    "you did not see a new secret, try again."
                )
            )
        rotated = structs.replace(
            endpoint,
            secret=secret,
            old_secret=endpoint.secret,
            old_secret_until=await clock.read_now(connection) + OVERLAP,
        )
        await endpoints.update(connection, rotated)
        await note(connection, by, endpoint, "endpoint secret rotated")
    return rotated, write_secret(secret)


async def send_test(
    database: Database, endpoint_id: EndpointId, *, by: By = OPERATOR, resume: bool = False
) -> EventId:
    """Have a worker send a test to an endpoint at once, which ends a backoff; return its event.

    With `resume` a paused or disabled endpoint is resumed first.
    """
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        event_id = EventId(new_id(int(now.timestamp() * 1000)))
        endpoint = await lock_endpoint(connection, endpoint_id, by)
        if endpoint.state != "active" and resume:
            endpoint = await _resume(connection, endpoint, by)
        require_active(endpoint, by)
        if await retries.count_waiting_tests(connection, endpoint_id) >= TESTS_MAX:
            raise EndpointError(_("Too many tests are waiting. Wait until one has been sent."))
        event = Event(event_id, endpoint.account_id, 0, WEBHOOK_TEST, None, None, now, webhook_test_data())
        await events.insert_event(connection, event)
        await retries.upsert_retries(connection, [EventRetry(endpoint_id, 0, event_id, 0, now, now)])
        await send_now(connection, endpoint)
    return event_id


async def send_now(connection: Connection, endpoint: Endpoint) -> None:
    """Have a worker look at a locked endpoint at once, and end its backoff."""
    await leases.wake(connection, endpoint.id)
    if endpoint.health.backoff_until is not None:
        health = structs.replace(endpoint.health, backoff_until=None)
        await endpoints.update(connection, structs.replace(endpoint, health=health))


def warning(endpoint: Endpoint) -> str | None:
    """Return what the owner should know about an endpoint; None if it is healthy."""
    health = endpoint.health
    if endpoint.state == "disabled":
        text = _("Disabled: {reason} Fix your server, then resume the endpoint to get the events it missed.")
        return text.format(reason=endpoint.reason)
    if health.failing_since is None or not health.warnings:
        return None
    until = health.failing_since + DISABLE_AFTER
    text = _("Failing since {since}. It will be disabled on {until} unless an event is delivered.")
    return text.format(since=_moment(health.failing_since), until=_moment(until))


def _moment(at: datetime) -> str:
    return f"{local_time(at):%-d %b, %H:%M}"


def _reset_health(endpoint: Endpoint) -> Health:
    return Health(succeeded_at=endpoint.health.succeeded_at)


def _refuse_duplicate(url: str, existing: Sequence[Endpoint]) -> None:
    if any(one.url == url for one in existing):
        raise EndpointError(
            _("You already have an endpoint with this URL. Change that one instead."), field="url"
        )


async def lock_endpoint(connection: Connection, endpoint_id: EndpointId, by: By) -> Endpoint:
    """Lock an endpoint that the actor may change."""
    endpoint = await endpoints.lock(connection, by.account_id, endpoint_id)
    if endpoint is None:
        raise NoEndpointError
    return endpoint


async def lock_active(connection: Connection, endpoint_id: EndpointId, by: By) -> Endpoint:
    """Lock an endpoint that the actor may change and to which events are sent."""
    endpoint = await lock_endpoint(connection, endpoint_id, by)
    require_active(endpoint, by)
    return endpoint


def require_active(endpoint: Endpoint, by: By) -> None:
    """Refuse to send to an endpoint that is paused or disabled."""
    if endpoint.state != "active":
        # An operator enables what its owner resumes.
        plain = _("The endpoint is {state}. Resume it first.")
        if by.on_console:
            plain = _("The endpoint is {state}. Enable it first.")
        raise EndpointError(
            f"The endpoint is {endpoint.state}: `tumira webhook resume` first.",
            plain=plain.format(state=endpoint.state),
        )


async def _require_account(connection: Connection, account_id: AccountId) -> None:
    if await accounts.find(connection, account_id) is None:
        raise OperatorError("There is no such account; `tumira account list` shows them.")


def host_of(url: str) -> str:
    """Return the host and port of an endpoint's URL; the path may hold a secret of its owner."""
    return url.split("/", 3)[2]


async def note(connection: Connection, by: By, endpoint: Endpoint, what: str, more: str = "") -> None:
    """Record a change in the audit log, for the owner and, if an operator made it, for operators."""
    # Not the whole URL: the path may hold a secret of its owner.
    place = host_of(endpoint.url) if by.on_console else "/".join(endpoint.url.split("/", 3)[:3])
    detail = f"{place} ({write_id(ENDPOINT, endpoint.id)})"
    if more:
        detail += f": {more}"
    await audit_log.record(connection, endpoint.account_id, by.actor, what, detail)
    if by.account_id is None:
        await audit_log.record_by_operator(connection, by.actor, what, detail, endpoint.account_id)
