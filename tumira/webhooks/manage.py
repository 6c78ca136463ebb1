"""How do customers set up, watch and repair their webhook endpoints?"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from tumira import audit_log, events
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import ENDPOINT, AccountId, EndpointId, EventId, first_id, new_id, write_id
from tumira.events import WEBHOOK_TEST, Event, is_subscribed
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.webhooks import attempts as deliveries
from tumira.webhooks import endpoints, tries
from tumira.webhooks import url as webhook_urls
from tumira.webhooks.attempts import Attempt, Retry, Waiting
from tumira.webhooks.endpoints import Endpoint, Secret
from tumira.webhooks.health import DISABLE_AFTER, Health
from tumira.webhooks.payload import webhook_test_data
from tumira.webhooks.signature import SECRET_BYTES, write_secret

NO_ACCOUNT: Final = "There is no such account; `tumira account list` shows them."
NO_ENDPOINT: Final = "There is no such endpoint; `tumira webhook list` shows them."
ENDPOINTS_MAX: Final = 5
DESCRIPTION_MAX: Final = 200
# How long both secrets sign after a rotation.
OVERLAP: Final = timedelta(hours=24)
REPLAYABLE: Final = timedelta(days=30)
REPLAYS_MAX: Final = 20
# Tests that nobody has sent yet; somebody who presses a button again and again gets no more than that.
TESTS_MAX: Final = 20
# Events that failed and are sent once more in one go.
FAILED_MAX: Final = 10_000
# More than an account can have, in case it once could have more.
OWN_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class By:
    """Who acts: on the endpoints of one account, or, as the operator does, on everybody's."""

    actor: Actor
    account_id: AccountId | None = None


OPERATOR: Final = By(audit_log.OPERATOR)


class NoEndpointError(OperatorError):
    """There is no such endpoint, or it is somebody else's."""

    def __init__(self) -> None:
        super().__init__(NO_ENDPOINT)


class EndpointError(OperatorError):
    """What is asked for cannot be done; `plain` says so where there is no command line, about `field`."""

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
    """Add an endpoint, which is told of what happens from now on; return it and its secret."""
    assert by.account_id in {None, account_id}
    secret = Secret(secrets.token_bytes(SECRET_BYTES))
    url = _plain_url(url, allow_private=allow_private)
    _check_description(description)
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        if await accounts.find(connection, account_id) is None:
            raise OperatorError(NO_ACCOUNT)
        # Held, so that two at once do not make one too many.
        await accounts.hold(connection, account_id)
        there = await endpoints.list_some(connection, account_id, ENDPOINTS_MAX)
        if len(there) >= ENDPOINTS_MAX:
            raise EndpointError(
                f"The account has {ENDPOINTS_MAX} endpoints, the most there can be: remove one first."
            )
        _refuse_twice(url, there)
        endpoint = Endpoint(
            EndpointId(new_id(int(now.timestamp() * 1000))),
            account_id,
            url,
            description,
            types,
            secret,
            None,
            None,
            "active",
            None,
            await events.last_sequence(connection, account_id),
            Health(),
            now,
            now,
        )
        await endpoints.insert(connection, endpoint)
        await _note(connection, by, endpoint, "endpoint added")
    return endpoint, write_secret(secret)


def _plain_url(url: str, *, allow_private: bool) -> str:
    try:
        return webhook_urls.parse(url, allow_private=allow_private).url
    except ValueError as error:
        raise EndpointError(str(error), field="url") from error


def _check_description(description: str) -> None:
    if not description.isprintable():
        raise EndpointError(
            "The description has characters that cannot be shown; write it in plain text.",
            field="description",
        )
    if len(description) > DESCRIPTION_MAX:
        raise EndpointError(
            f"The description has {len(description)} characters; at most {DESCRIPTION_MAX} fit.",
            field="description",
        )


async def list_endpoints(
    database: Database, account_id: AccountId | None, count_max: int
) -> Sequence[tuple[Endpoint, Waiting]]:
    """Return an account's endpoints, or everybody's, each with how much waits for it."""
    async with database.transaction() as connection:
        return [
            (one, await deliveries.count_waiting(connection, one.id))
            for one in await endpoints.list_some(connection, account_id, count_max)
        ]


async def list_attempts(
    database: Database, endpoint_id: EndpointId, event_id: EventId | None, count_max: int
) -> Sequence[Attempt]:
    """Return the latest tries at an endpoint, of one event or of all, newest first; also at a removed one."""
    async with database.connection() as connection:
        found = await deliveries.list_attempts(connection, endpoint_id, event_id, count_max)
        if not found and await endpoints.find(connection, endpoint_id) is None:
            raise NoEndpointError
        return found


async def get_endpoint(
    database: Database, account_id: AccountId, endpoint_id: EndpointId
) -> tuple[Endpoint, Waiting]:
    """Return an account's own endpoint, and how much waits for it."""
    async with database.transaction() as connection:
        endpoint = await _find_own(connection, account_id, endpoint_id)
        return endpoint, await deliveries.count_waiting(connection, endpoint_id)


async def check_account(database: Database, account_id: AccountId) -> None:
    """Say so when there is no such account."""
    async with database.connection() as connection:
        if await accounts.find(connection, account_id) is None:
            raise OperatorError(NO_ACCOUNT)


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
    """Change where an endpoint is, what it is told of, or its description; what is None stays."""
    async with database.transaction() as connection:
        endpoint = await _hold(connection, endpoint_id, by)
        changed = structs.replace(
            endpoint,
            url=endpoint.url if url is None else _plain_url(url, allow_private=allow_private),
            types=types if change_types else endpoint.types,
            description=endpoint.description if description is None else description,
        )
        _check_description(changed.description)
        if changed.url != endpoint.url:
            _refuse_twice(
                changed.url, await endpoints.list_some(connection, endpoint.account_id, ENDPOINTS_MAX)
            )
            # What failed at the old place says nothing about the new one.
            changed = structs.replace(changed, health=_afresh(endpoint))
            await deliveries.hurry_retries(connection, [endpoint_id], await clock.read_now(connection))
        await endpoints.change(connection, changed)
        different = _differences(endpoint, changed)
        if different:
            await _note(connection, by, changed, "endpoint changed", different)
    return changed


def _differences(before: Endpoint, after: Endpoint) -> str:
    """Name what was changed."""
    different = {
        "URL": before.url != after.url,
        "events": _chosen(before) != _chosen(after),
        "description": before.description != after.description,
    }
    return ", ".join(name for name, is_so in different.items() if is_so)


def _chosen(endpoint: Endpoint) -> frozenset[str] | None:
    return None if endpoint.types is None else frozenset(endpoint.types)


async def remove_endpoint(database: Database, endpoint_id: EndpointId, *, by: By = OPERATOR) -> Endpoint:
    """Remove an endpoint and all that waits for it."""
    async with database.transaction() as connection:
        endpoint = await _hold(connection, endpoint_id, by)
        await endpoints.remove(connection, endpoint_id)
        await _note(connection, by, endpoint, "endpoint removed")
    return endpoint


async def pause_endpoint(database: Database, endpoint_id: EndpointId, *, by: By = OPERATOR) -> Endpoint:
    """Send nothing more to an endpoint; what happens meanwhile waits for it."""
    async with database.transaction() as connection:
        endpoint = await _hold(connection, endpoint_id, by)
        paused = structs.replace(endpoint, state="paused", reason=None)
        await endpoints.change(connection, paused)
        await deliveries.park_retries(connection, [endpoint_id])
        if endpoint.state != paused.state:
            await _note(connection, by, endpoint, "endpoint paused")
    return paused


async def resume_endpoint(
    database: Database, endpoint_id: EndpointId, *, from_now: bool, by: By = OPERATOR
) -> Endpoint:
    """Send again to an endpoint: all that waits for it, or only what happens from now on."""
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        endpoint = await _hold(connection, endpoint_id, by)
        position = endpoint.position
        if from_now:
            position = await events.last_sequence(connection, endpoint.account_id)
            await deliveries.forget_waiting(connection, endpoint_id)
        else:
            await deliveries.hurry_retries(connection, [endpoint_id], now)
        resumed = structs.replace(
            endpoint, state="active", reason=None, position=position, health=_afresh(endpoint)
        )
        await endpoints.change(connection, resumed)
        await endpoints.ring(connection, endpoint.id)
        await _note(connection, by, endpoint, "endpoint resumed", "from now on" if from_now else "")
    return resumed


async def rotate_secret(
    database: Database, endpoint_id: EndpointId, *, by: By = OPERATOR, seen: datetime | None = None
) -> tuple[Endpoint, str]:
    """Give an endpoint a new secret; for a day both sign.

    Given when it was last changed for all that is known, nothing is done if that was not the last time: a
    button that is pressed twice must not end the secret that was in use until now.
    """
    secret = Secret(secrets.token_bytes(SECRET_BYTES))
    async with database.transaction() as connection:
        endpoint = await _hold(connection, endpoint_id, by)
        if seen is not None and endpoint.changed_at != seen:
            raise EndpointError(
                "The endpoint was changed since you looked at it, so its secret is as it was. If you did not "
                "get to see a new secret, do it once more."
            )
        rotated = structs.replace(
            endpoint,
            secret=secret,
            old_secret=endpoint.secret,
            old_secret_until=await clock.read_now(connection) + OVERLAP,
        )
        await endpoints.change(connection, rotated)
        await _note(connection, by, endpoint, "endpoint secret rotated")
    return rotated, write_secret(secret)


async def send_test(database: Database, endpoint_id: EndpointId, *, by: By = OPERATOR) -> EventId:
    """Have a test delivered to an endpoint, by a worker and at once; return its event."""
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        event_id = EventId(new_id(int(now.timestamp() * 1000)))
        endpoint = await _hold(connection, endpoint_id, by)
        _refuse_unless_active(endpoint)
        if await tries.count_tests(connection, endpoint_id) >= TESTS_MAX:
            raise EndpointError("Enough tests wait to be sent there already: wait until one was.")
        event = Event(event_id, endpoint.account_id, 0, WEBHOOK_TEST, None, None, now, webhook_test_data())
        await events.insert_events(connection, [event])
        await deliveries.put_retries(connection, [Retry(endpoint_id, 0, event_id, 0, now, now)])
        await endpoints.ring(connection, endpoint.id)
        if endpoint.health.rest_until is not None:
            # A test is the way to find out whether an endpoint works again: it does not wait for its rest.
            rested = structs.replace(endpoint, health=structs.replace(endpoint.health, rest_until=None))
            await endpoints.change(connection, rested)
    return event_id


async def replay_event(
    database: Database, endpoint_id: EndpointId, event_id: EventId, *, by: By = OPERATOR
) -> int:
    """Have one event delivered once more."""
    async with database.transaction() as connection:
        endpoint = await _hold(connection, endpoint_id, by)
        _refuse_unless_active(endpoint)
        event = await events.find(connection, endpoint.account_id, event_id)
        if event is None:
            raise EndpointError(
                "There is no such event; `tumira webhook attempts` shows those that were sent.",
                plain="The event is not kept any more, so it cannot be sent again.",
            )
        if event.at < await clock.read_now(connection) - REPLAYABLE:
            raise EndpointError(f"The event is older than {REPLAYABLE.days} days, and is not sent any more.")
        if event.sequence == 0:
            raise EndpointError(
                "A test is not sent twice; `tumira webhook test` sends another.",
                plain="A test is not sent twice; press Send test for another.",
            )
        if not is_subscribed(endpoint.types, event.type):
            raise EndpointError(
                f"The endpoint does not take {event.type}; `tumira webhook change` can change that.",
                plain=f"The endpoint does not take {event.type} any more; tick that among its events first.",
            )
        if event.sequence > endpoint.position:
            # It comes by itself.
            return 0
        await _replay(connection, endpoint, event.sequence - 1, event.sequence)
    return 1


async def replay_after(database: Database, endpoint_id: EndpointId, after: int, *, by: By = OPERATOR) -> int:
    """Have everything above a number delivered once more; return how many numbers that are."""
    async with database.transaction() as connection:
        endpoint = await _hold(connection, endpoint_id, by)
        _refuse_unless_active(endpoint)
        # What is above its position comes by itself.
        until = endpoint.position
        if after >= until:
            return 0
        await _replay(connection, endpoint, after, until)
    return until - after


async def replay_between(
    database: Database,
    endpoint_id: EndpointId,
    from_at: datetime,
    until_at: datetime,
    *,
    by: By = OPERATOR,
) -> int:
    """Have the events of some time delivered once more; return how many numbers are looked at."""
    async with database.transaction() as connection:
        endpoint = await _hold(connection, endpoint_id, by)
        _refuse_unless_active(endpoint)
        bounds = await deliveries.bounds_between(connection, endpoint.account_id, from_at, until_at)
        if bounds is None or bounds[0] > endpoint.position:
            return 0
        first, last = bounds[0], min(bounds[1], endpoint.position)
        await _replay(connection, endpoint, first - 1, last, from_at, until_at)
    return last - first + 1


async def replay_failed(
    database: Database, endpoint_id: EndpointId, since: datetime, *, by: By = OPERATOR
) -> int:
    """Have what was tried since then, and never arrived, tried now and from the start; return how many."""
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        oldest = max(since, now - REPLAYABLE)
        endpoint = await _hold(connection, endpoint_id, by)
        _refuse_unless_active(endpoint)
        failed = await tries.list_failed(
            connection, endpoint_id, first_id(int(oldest.timestamp() * 1000)), endpoint.types, FAILED_MAX
        )
        if failed:
            retries = [Retry(endpoint_id, sequence, event_id, 0, now, now) for sequence, event_id in failed]
            await deliveries.put_retries(connection, retries)
            await endpoints.ring(connection, endpoint_id)
    return len(failed)


async def _replay(
    connection: Connection,
    endpoint: Endpoint,
    position: int,
    until: int,
    from_at: datetime | None = None,
    until_at: datetime | None = None,
) -> None:
    if len(await deliveries.list_replays(connection, endpoint.id, REPLAYS_MAX)) >= REPLAYS_MAX:
        raise EndpointError("Enough is being sent once more there already: wait until that is done.")
    await deliveries.add_replay(connection, endpoint.id, position, until, from_at, until_at)
    await endpoints.ring(connection, endpoint.id)


def warning(endpoint: Endpoint) -> str | None:
    """Return what its owner should know about an endpoint, None when all is well."""
    health = endpoint.health
    if endpoint.state == "disabled":
        return f"Disabled: {endpoint.reason} Put that right, then resume it; what was missed is sent then."
    if health.failing_since is None or not health.warnings:
        return None
    until = health.failing_since + DISABLE_AFTER
    return (
        f"Nothing has arrived since {health.failing_since:%Y-%m-%d %H:%M} UTC; "
        f"it is disabled on {until:%Y-%m-%d} if that goes on."
    )


def _afresh(endpoint: Endpoint) -> Health:
    return Health(succeeded_at=endpoint.health.succeeded_at)


def _refuse_twice(url: str, there: Sequence[Endpoint]) -> None:
    if any(one.url == url for one in there):
        raise EndpointError(
            "The account has an endpoint with this URL already; change that one instead.", field="url"
        )


def _refuse_unless_active(endpoint: Endpoint) -> None:
    if endpoint.state != "active":
        raise EndpointError(
            f"The endpoint is {endpoint.state}: `tumira webhook resume` first.",
            plain=f"The endpoint is {endpoint.state}: resume it first.",
        )


async def _hold(connection: Connection, endpoint_id: EndpointId, by: By) -> Endpoint:
    if by.account_id is not None:
        # Before the lock: nobody holds up what is somebody else's.
        await _find_own(connection, by.account_id, endpoint_id)
    endpoint = await endpoints.hold(connection, endpoint_id)
    if endpoint is None:
        raise NoEndpointError
    return endpoint


async def _find_own(connection: Connection, account_id: AccountId, endpoint_id: EndpointId) -> Endpoint:
    for endpoint in await endpoints.list_some(connection, account_id, OWN_MAX):
        if endpoint.id == endpoint_id:
            return endpoint
    raise NoEndpointError


async def _note(connection: Connection, by: By, endpoint: Endpoint, what: str, more: str = "") -> None:
    # Not the whole URL: what stands behind the host may be somebody's secret.
    place = "/".join(endpoint.url.split("/", 3)[:3])
    detail = f"{place} ({write_id(ENDPOINT, endpoint.id)})"
    if more:
        detail += f": {more}"
    await audit_log.record(connection, endpoint.account_id, by.actor, what, detail)
    if by.account_id is None:
        await audit_log.record_by_operator(connection, by.actor, what, detail, endpoint.account_id)
