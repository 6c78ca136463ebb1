"""Where does an account want to be told of events, and who delivers them there now?"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import asyncpg
from msgspec import Struct, structs

from tumira.core.ids import AccountId, EndpointId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.webhooks.health import FAILURES_MAX, Health


class Secret(bytes):
    """What signs events; it is never printed by accident."""

    def __repr__(self) -> str:
        """Show that there is one."""
        return "***"


class Endpoint(Struct, frozen=True):
    """An endpoint as its owner set it up, and how it is."""

    id: EndpointId
    account_id: AccountId
    url: str
    description: str
    # None for all.
    types: Sequence[str] | None
    secret: Secret
    old_secret: Secret | None
    old_secret_until: datetime | None
    state: str
    reason: str | None
    # Every event up to this number is done with, or is tried again.
    position: int
    health: Health
    created_at: datetime
    changed_at: datetime

    def secrets_at(self, now: datetime) -> Sequence[bytes]:
        """Return the secrets to sign with; after a rotation the old one too, for a while."""
        if self.old_secret is None or self.old_secret_until is None or now >= self.old_secret_until:
            return (self.secret,)
        return (self.secret, self.old_secret)


_ENDPOINT: Final = """
SELECT id, account_id, url, description, types, secret, old_secret, old_secret_until, state, reason, position,
       failures, failing_since, rest_until, warnings, succeeded_at, created_at, changed_at
  FROM webhook_endpoints
"""


def _endpoint(row: asyncpg.Record) -> Endpoint:
    return Endpoint(
        EndpointId(row["id"]),
        AccountId(row["account_id"]),
        row["url"],
        row["description"],
        row["types"],
        Secret(row["secret"]),
        None if row["old_secret"] is None else Secret(row["old_secret"]),
        row["old_secret_until"],
        row["state"],
        row["reason"],
        row["position"],
        Health(
            row["failures"], row["failing_since"], row["rest_until"], row["warnings"], row["succeeded_at"]
        ),
        row["created_at"],
        row["changed_at"],
    )


SQL_INSERT: Final = Statement("""
INSERT INTO webhook_endpoints (id, account_id, url, description, types, secret, position)
VALUES (%(endpoint_id)s, %(account_id)s, %(url)s, %(description)s, %(types)s, %(secret)s, %(position)s)
""")


async def insert(connection: Connection, endpoint: Endpoint) -> None:
    """Add an endpoint."""
    await SQL_INSERT.rows(
        connection,
        endpoint_id=endpoint.id,
        account_id=endpoint.account_id,
        url=endpoint.url,
        description=endpoint.description,
        types=endpoint.types,
        secret=endpoint.secret,
        position=endpoint.position,
    )


SQL_LIST: Final = Statement(
    _ENDPOINT
    + """
 WHERE account_id = %(account_id)s
    OR %(account_id)s::uuid IS NULL
 ORDER BY id
 LIMIT %(count_max)s
"""
)


async def list_some(
    connection: Connection, account_id: AccountId | None, count_max: int
) -> Sequence[Endpoint]:
    """Return an account's endpoints, or everybody's, oldest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    return [_endpoint(row) for row in rows]


SQL_FIND: Final = Statement(_ENDPOINT + "WHERE id = %(endpoint_id)s")


async def find(connection: Connection, endpoint_id: EndpointId) -> Endpoint | None:
    """Return an endpoint, or None."""
    row = await SQL_FIND.row(connection, endpoint_id=endpoint_id)
    return None if row is None else _endpoint(row)


SQL_HOLD: Final = Statement(_ENDPOINT + "WHERE id = %(endpoint_id)s FOR NO KEY UPDATE")


async def hold(connection: Connection, endpoint_id: EndpointId) -> Endpoint | None:
    """Hold an endpoint until the end of the transaction; None when there is no such one."""
    row = await SQL_HOLD.row(connection, endpoint_id=endpoint_id)
    return None if row is None else _endpoint(row)


# What the owner sets, and how it is, which the owner can put right.
SQL_CHANGE: Final = Statement("""
UPDATE webhook_endpoints e
   SET url = %(url)s, description = %(description)s, types = %(types)s, secret = %(secret)s,
       old_secret = %(old_secret)s, old_secret_until = %(old_secret_until)s, state = %(state)s,
       reason = %(reason)s, position = greatest(position, %(position)s), failures = %(failures)s,
       failing_since = %(failing_since)s, rest_until = %(rest_until)s, warnings = %(warnings)s,
       changed_at = clock_timestamp(),
       changed_after = coalesce((SELECT last FROM event_counters c WHERE c.account_id = e.account_id), 0)
 WHERE id = %(endpoint_id)s
""")


async def change(connection: Connection, endpoint: Endpoint) -> None:
    """Write an endpoint that we hold as it shall be from now on."""
    health = structs.asdict(endpoint.health)
    del health["succeeded_at"]
    await SQL_CHANGE.rows(
        connection,
        endpoint_id=endpoint.id,
        url=endpoint.url,
        description=endpoint.description,
        types=endpoint.types,
        secret=endpoint.secret,
        old_secret=endpoint.old_secret,
        old_secret_until=endpoint.old_secret_until,
        state=endpoint.state,
        reason=endpoint.reason,
        position=endpoint.position,
        **health,
    )


SQL_REMOVE: Final = Statement("""
WITH retries AS (
    DELETE FROM webhook_retries WHERE endpoint_id = %(endpoint_id)s
), replays AS (
    DELETE FROM webhook_replays WHERE endpoint_id = %(endpoint_id)s
), bells AS (
    DELETE FROM webhook_bells WHERE endpoint_id = %(endpoint_id)s
)
DELETE FROM webhook_endpoints WHERE id = %(endpoint_id)s
""")


async def remove(connection: Connection, endpoint_id: EndpointId) -> None:
    """Remove an endpoint that we hold, with all that waits for it."""
    await SQL_REMOVE.rows(connection, endpoint_id=endpoint_id)


SQL_LIST_ACCOUNTS_TOLD: Final = Statement("""
SELECT DISTINCT account_id FROM webhook_endpoints WHERE types IS NULL OR %(type)s = ANY(types)
""")


async def list_accounts_told(connection: Connection, type_: str) -> frozenset[AccountId]:
    """Return the accounts with an endpoint that takes events of this type."""
    rows = await SQL_LIST_ACCOUNTS_TOLD.rows(connection, type=type_)
    return frozenset(AccountId(row["account_id"]) for row in rows)


SQL_RING: Final = Statement("""
INSERT INTO webhook_bells (endpoint_id)
VALUES (%(endpoint_id)s)
    ON CONFLICT (endpoint_id) DO UPDATE SET endpoint_id = excluded.endpoint_id
""")


async def ring(connection: Connection, endpoint_id: EndpointId) -> None:
    """Have somebody look at an endpoint soon."""
    await SQL_RING.rows(connection, endpoint_id=endpoint_id)


# A bell is for the worker that delivers there, and for anybody where there is none. Where the endpoint itself
# is locked, by its owner or a worker that writes, the bell is left for the next look.
SQL_HEAR: Final = Statement("""
WITH rung AS MATERIALIZED (
    SELECT endpoint_id FROM webhook_bells LIMIT %(count_max)s FOR UPDATE SKIP LOCKED
), seen AS MATERIALIZED (
    SELECT id, worker <> %(worker)s AND leased_until > clock_timestamp() AS taken
      FROM webhook_endpoints
     WHERE id = ANY(ARRAY(SELECT endpoint_id FROM rung))
       FOR NO KEY UPDATE SKIP LOCKED
)
DELETE FROM webhook_bells b
 WHERE endpoint_id = ANY(ARRAY(SELECT endpoint_id FROM rung))
   AND (endpoint_id = ANY(ARRAY(SELECT id FROM seen WHERE taken IS NOT TRUE))
        OR (SELECT id FROM webhook_endpoints e WHERE e.id = b.endpoint_id) IS NULL)
RETURNING endpoint_id
""")


async def hear(connection: Connection, worker: str, count_max: int) -> Sequence[EndpointId]:
    """Return endpoints for which there is news, once; they are to be leased in the same transaction."""
    rows = await SQL_HEAR.rows(connection, worker=worker, count_max=count_max)
    return [EndpointId(row["endpoint_id"]) for row in rows]


# No bell rings for what becomes due by time alone.
SQL_LIST_DUE: Final = Statement("""
SELECT endpoint_id FROM webhook_retries WHERE due_at <= %(now)s
 UNION
SELECT endpoint_id FROM webhook_replays
 UNION
SELECT e.id
  FROM webhook_endpoints e
 WHERE e.rest_until <= %(now)s
   AND (e.position < (SELECT last FROM event_counters c WHERE c.account_id = e.account_id)
        OR e.failures >= %(trial_at)s AND EXISTS (SELECT FROM webhook_retries r WHERE r.endpoint_id = e.id))
 UNION
SELECT id FROM webhook_endpoints WHERE worker IS NOT NULL AND leased_until <= clock_timestamp()
""")


async def list_due(connection: Connection, now: datetime) -> Sequence[EndpointId]:
    """Return endpoints for which something is due by now, or that a dead worker left."""
    rows = await SQL_LIST_DUE.rows(connection, now=now, trial_at=FAILURES_MAX)
    return [EndpointId(row["endpoint_id"]) for row in rows]


SQL_LIST_BEHIND: Final = Statement("""
SELECT e.id
  FROM webhook_endpoints e
 WHERE e.state = 'active'
   AND (e.rest_until IS NULL OR e.rest_until <= %(now)s)
   AND e.position < (SELECT last FROM event_counters c WHERE c.account_id = e.account_id)
""")


async def list_behind(connection: Connection, now: datetime) -> Sequence[EndpointId]:
    """Return endpoints that have not been told everything; it reads all there are."""
    return [EndpointId(row["id"]) for row in await SQL_LIST_BEHIND.rows(connection, now=now)]


# Skipping what is locked: another worker is just taking it, or its owner is changing it.
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
    """Take some of these endpoints that nobody has and that do not rest, for a while."""
    rows = await SQL_LEASE.rows(
        connection, endpoint_ids=endpoint_ids, worker=worker, now=now, count_max=count_max, lease_s=lease_s
    )
    return [_endpoint(row) for row in rows]


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
    """Keep endpoints that are ours; those that are returned still are, each with its last change."""
    rows = await SQL_RENEW.rows(connection, endpoint_ids=endpoint_ids, worker=worker, lease_s=lease_s)
    return {EndpointId(row["id"]): row["changed_at"] for row in rows}


# The bell may have rung while its courier was about to leave.
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
    """Let others have an endpoint."""
    await SQL_RELEASE.rows(connection, endpoint_id=endpoint_id, worker=worker)
