"""How does an operator bring an endpoint of a customer's back to life?

As its owner could, with a note of it both for the owner and among what operators changed.
"""

from datetime import timedelta
from urllib.parse import urlsplit

from msgspec import structs

from tumira import audit_log, events
from tumira.audit_log import Actor
from tumira.core.ids import ENDPOINT, EndpointId, first_id, write_id
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.webhooks import attempts as deliveries
from tumira.webhooks import endpoints, tries
from tumira.webhooks.attempts import Retry
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.health import Health
from tumira.webhooks.manage import FAILED_MAX, REPLAYABLE, EndpointError, NoEndpointError


def host_of(url: str) -> str:
    """Return where an endpoint is; what stands behind the host may be somebody's secret."""
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    host = parts.hostname or ""
    return f"[{host}]{port}" if ":" in host else f"{host}{port}"


async def enable(database: Database, endpoint_id: EndpointId, actor: Actor, *, from_now: bool) -> None:
    """Send to an endpoint again, at once: all that waits for it, or only what happens from now on."""
    async with database.transaction() as connection:
        endpoint = await _hold(connection, endpoint_id)
        if endpoint.state == "paused":
            raise EndpointError("Its owner has paused the endpoint, and alone resumes it.")
        position = endpoint.position
        if from_now:
            position = await events.last_sequence(connection, endpoint.account_id)
            await deliveries.forget_waiting(connection, endpoint_id)
        else:
            await deliveries.hurry_retries(connection, [endpoint_id], await clock.read_now(connection))
        health = Health(succeeded_at=endpoint.health.succeeded_at)
        await endpoints.change(
            connection,
            structs.replace(endpoint, state="active", reason=None, position=position, health=health),
        )
        await endpoints.ring(connection, endpoint_id)
        await _note(connection, endpoint, actor, "endpoint resumed", "from now on" if from_now else "")


async def replay_failed(database: Database, endpoint_id: EndpointId, actor: Actor, back: timedelta) -> int:
    """Have what was tried in that time and never arrived tried again, now; return how many events."""
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        since = first_id(int((now - min(back, REPLAYABLE)).timestamp() * 1000))
        endpoint = await _hold(connection, endpoint_id)
        if endpoint.state != "active":
            raise EndpointError(f"The endpoint is {endpoint.state}: enable it first.")
        failed = await tries.list_failed(connection, endpoint_id, since, endpoint.types, FAILED_MAX)
        if failed:
            await deliveries.put_retries(
                connection,
                [Retry(endpoint_id, sequence, event_id, 0, now, now) for sequence, event_id in failed],
            )
            await endpoints.ring(connection, endpoint_id)
            await _note(connection, endpoint, actor, "failed events replayed", f"{len(failed)}")
    return len(failed)


async def _hold(connection: Connection, endpoint_id: EndpointId) -> Endpoint:
    endpoint = await endpoints.hold(connection, endpoint_id)
    if endpoint is None:
        raise NoEndpointError
    return endpoint


async def _note(connection: Connection, endpoint: Endpoint, actor: Actor, what: str, more: str) -> None:
    detail = f"{host_of(endpoint.url)} ({write_id(ENDPOINT, endpoint.id)})"
    detail = f"{detail}: {more}" if more else detail
    await audit_log.record(connection, endpoint.account_id, actor, what, detail)
    await audit_log.record_by_operator(connection, actor, what, detail, endpoint.account_id)
