"""Which worker delivers to which endpoint: wake-up rows, leases, and the progress of the lease holder."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from tumira.core.ids import AccountId, EndpointId
from tumira.postgres.columns import columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.webhooks.endpoints import Endpoint, read_endpoint
from tumira.webhooks.health import FAILURES_MAX, Health

SQL_WAKE: Final = Statement("""
INSERT INTO webhook_bells (endpoint_id)
VALUES (%(endpoint_id)s)
    ON CONFLICT (endpoint_id) DO UPDATE SET endpoint_id = excluded.endpoint_id
""")


async def wake(connection: Connection, endpoint_id: EndpointId) -> None:
    """Insert a wake-up row: a worker looks at the endpoint soon."""
    await SQL_WAKE.rows(connection, endpoint_id=endpoint_id)


# A wake-up row is for the worker that has the lease of the endpoint, and for any worker if none has it. The
# row stays where the endpoint itself is locked, by its owner or by a worker that saves its progress.
SQL_TAKE_WAKE_UPS: Final = Statement("""
WITH woken AS MATERIALIZED (
    SELECT endpoint_id FROM webhook_bells LIMIT %(count_max)s FOR UPDATE SKIP LOCKED
), seen AS MATERIALIZED (
    SELECT id, worker <> %(worker)s AND leased_until > clock_timestamp() AS taken
      FROM webhook_endpoints
     WHERE id = ANY(ARRAY(SELECT endpoint_id FROM woken))
       FOR NO KEY UPDATE SKIP LOCKED
)
DELETE FROM webhook_bells b
 WHERE endpoint_id = ANY(ARRAY(SELECT endpoint_id FROM woken))
   AND (endpoint_id = ANY(ARRAY(SELECT id FROM seen WHERE taken IS NOT TRUE))
        OR (SELECT id FROM webhook_endpoints e WHERE e.id = b.endpoint_id) IS NULL)
RETURNING endpoint_id
""")


async def take_wake_ups(connection: Connection, worker: str, count_max: int) -> Sequence[EndpointId]:
    """Consume wake-up rows and return their endpoints; the caller leases them in the same transaction."""
    rows = await SQL_TAKE_WAKE_UPS.rows(connection, worker=worker, count_max=count_max)
    return [EndpointId(row["endpoint_id"]) for row in rows]


# Nothing inserts a wake-up row when a retry becomes due, a backoff ends or a lease expires.
SQL_LIST_DUE: Final = Statement("""
SELECT endpoint_id FROM webhook_retries WHERE due_at <= %(now)s
 UNION
SELECT endpoint_id FROM webhook_replays
 UNION
SELECT e.id
  FROM webhook_endpoints e
 WHERE e.rest_until <= %(now)s
   AND (e.position < (SELECT last FROM event_counters c WHERE c.account_id = e.account_id)
        OR e.failures >= %(probe_at)s AND EXISTS (SELECT FROM webhook_retries r WHERE r.endpoint_id = e.id))
 UNION
SELECT id FROM webhook_endpoints WHERE worker IS NOT NULL AND leased_until <= clock_timestamp()
""")


async def list_due(connection: Connection, now: datetime) -> Sequence[EndpointId]:
    """Return endpoints with something due by now, and those whose worker died."""
    rows = await SQL_LIST_DUE.rows(connection, now=now, probe_at=FAILURES_MAX)
    return [EndpointId(row["endpoint_id"]) for row in rows]


SQL_LIST_BEHIND: Final = Statement("""
SELECT e.id
  FROM webhook_endpoints e
 WHERE e.state = 'active'
   AND (e.rest_until IS NULL OR e.rest_until <= %(now)s)
   AND e.position < (SELECT last FROM event_counters c WHERE c.account_id = e.account_id)
""")


async def list_behind(connection: Connection, now: datetime) -> Sequence[EndpointId]:
    """Return endpoints with undelivered events; this reads all endpoints."""
    return [EndpointId(row["id"]) for row in await SQL_LIST_BEHIND.rows(connection, now=now)]


# Locked rows are skipped: another worker leases the endpoint, or its owner changes it.
SQL_LEASE: Final = Statement("""
WITH free AS MATERIALIZED (
    SELECT id
      FROM webhook_endpoints
     WHERE id = ANY(%(endpoint_ids)s::uuid[])
       AND state = 'active'
       AND (rest_until IS NULL OR rest_until <= %(now)s)
       AND (leased_until IS NULL OR leased_until <= clock_timestamp())
     LIMIT %(count_max)s
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE webhook_endpoints
   SET worker = %(worker)s, leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
 WHERE id = ANY(ARRAY(SELECT id FROM free))
RETURNING id, account_id, url, description, types, secret, old_secret, old_secret_until, state, reason,
          position, failures, failing_since, rest_until, warnings, succeeded_at, created_at, changed_at
""")


async def lease(
    connection: Connection,
    endpoint_ids: Sequence[EndpointId],
    worker: str,
    now: datetime,
    *,
    count_max: int,
    lease_s: float,
) -> Sequence[Endpoint]:
    """Lease some of these endpoints: those without a lease that are not backing off."""
    rows = await SQL_LEASE.rows(
        connection, endpoint_ids=endpoint_ids, worker=worker, now=now, count_max=count_max, lease_s=lease_s
    )
    return [read_endpoint(row) for row in rows]


SQL_RENEW: Final = Statement("""
WITH ours AS MATERIALIZED (
    SELECT id
      FROM webhook_endpoints
     WHERE id = ANY(%(endpoint_ids)s::uuid[])
       AND worker = %(worker)s
       AND state = 'active'
     ORDER BY id
       FOR NO KEY UPDATE
)
UPDATE webhook_endpoints
   SET leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
 WHERE id = ANY(ARRAY(SELECT id FROM ours))
RETURNING id, changed_at
""")


async def renew(
    connection: Connection, endpoint_ids: Sequence[EndpointId], worker: str, lease_s: float
) -> dict[EndpointId, datetime]:
    """Renew the leases that the worker still has, and return when each endpoint was last changed."""
    rows = await SQL_RENEW.rows(connection, endpoint_ids=endpoint_ids, worker=worker, lease_s=lease_s)
    return {EndpointId(row["id"]): row["changed_at"] for row in rows}


# New events may have come while the worker was about to release the endpoint.
SQL_RELEASE: Final = Statement("""
WITH released AS (
    UPDATE webhook_endpoints
       SET worker = NULL, leased_until = NULL
     WHERE id = %(endpoint_id)s
       AND worker = %(worker)s
    RETURNING id, account_id, position
)
INSERT INTO webhook_bells (endpoint_id)
SELECT id
  FROM released
 WHERE position < (SELECT last FROM event_counters c WHERE c.account_id = released.account_id)
    ON CONFLICT (endpoint_id) DO UPDATE SET endpoint_id = excluded.endpoint_id
""")


async def release(connection: Connection, endpoint_id: EndpointId, worker: str) -> None:
    await SQL_RELEASE.rows(connection, endpoint_id=endpoint_id, worker=worker)


class LockedEndpoint(Struct, frozen=True):
    """An endpoint under a row lock, as it was before the results of a delivery are written."""

    id: EndpointId
    account_id: AccountId
    url: str
    state: str
    warnings: int
    changed_at: datetime
    worker: str | None


SQL_LOCK: Final = Statement("""
SELECT id, account_id, url, state, warnings, changed_at, worker
  FROM webhook_endpoints
 WHERE id = ANY(%(endpoint_ids)s::uuid[])
 ORDER BY id
   FOR NO KEY UPDATE
""")


async def lock_endpoints(
    connection: Connection, endpoint_ids: Sequence[EndpointId]
) -> Mapping[EndpointId, LockedEndpoint]:
    """Lock endpoints in the order of their ids, and return those that still exist."""
    rows = await SQL_LOCK.rows(connection, endpoint_ids=endpoint_ids)
    return {EndpointId(row["id"]): LockedEndpoint(*row) for row in rows}


class EndpointProgress(Struct, frozen=True):
    """How far an endpoint is, and its health; `disabled_for` is the reason to disable it."""

    endpoint_id: EndpointId
    # When the endpoint that was delivered to had been changed.
    changed_at: datetime
    position: int
    health: Health
    disabled_for: str | None


# Changes that the owner made meanwhile stay: a position moved forward, a pause, a new start. Events that were
# skipped since the change may be of types that the endpoint subscribes to by now, so they are read again.
SQL_SAVE_PROGRESS: Final = Statement("""
WITH progress AS MATERIALIZED (
    SELECT reported.*, e.changed_at = reported.changed_at AS is_current
      FROM unnest(%(endpoint_id)s::uuid[], %(changed_at)s::timestamptz[], %(position)s::bigint[],
                  %(disabled_for)s::text[], %(failures)s::integer[], %(failing_since)s::timestamptz[],
                  %(backoff_until)s::timestamptz[], %(warnings)s::smallint[],
                  %(succeeded_at)s::timestamptz[])
           AS reported (id, changed_at, position, disabled_for, failures, failing_since, rest_until, warnings,
                        succeeded_at)
      JOIN webhook_endpoints e ON e.id = reported.id
     WHERE e.id = ANY(%(endpoint_id)s::uuid[])
), unchanged AS (
    UPDATE webhook_endpoints e
       SET failures = progress.failures,
           failing_since = progress.failing_since,
           rest_until = progress.rest_until,
           warnings = progress.warnings,
           succeeded_at = progress.succeeded_at,
           state = CASE WHEN progress.disabled_for IS NULL THEN e.state ELSE 'disabled' END,
           reason = progress.disabled_for,
           position = greatest(e.position, progress.position)
      FROM progress
     WHERE e.id = progress.id
       AND e.id = ANY(%(endpoint_id)s::uuid[])
       AND e.worker = %(worker)s
       AND progress.is_current
)
UPDATE webhook_endpoints e
   SET position = greatest(e.position, least(progress.position, e.changed_after))
  FROM progress
 WHERE e.id = progress.id
   AND e.id = ANY(%(endpoint_id)s::uuid[])
   AND e.worker = %(worker)s
   AND NOT progress.is_current
""")


async def save_progress(connection: Connection, worker: str, progress: Sequence[EndpointProgress]) -> None:
    """Write the progress of the endpoints that the worker still has leases of."""
    values = columns(EndpointProgress, progress)
    health = columns(Health, values.pop("health"))
    await SQL_SAVE_PROGRESS.rows(connection, worker=worker, **values, **health)
