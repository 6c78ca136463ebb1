"""Webhook endpoints, and the list of those that are unhealthy."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct, structs

from tumira.core.ids import AccountId, EndpointId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.webhooks.health import Health

# An endpoint with this many undelivered events is too slow.
BEHIND_MIN: Final = 1_000
RETRIES_MAX: Final = 10_000
# More than all workers together have leases of.
LEASED_MAX: Final = 10_000


class SigningSecret(bytes):
    """A secret that no log or traceback prints."""

    def __repr__(self) -> str:
        return "***"


class Endpoint(Struct, frozen=True, kw_only=True):
    """An endpoint as its owner set it up, its position in the event log, and its health."""

    id: EndpointId
    account_id: AccountId
    url: str
    description: str = ""
    # None for all types.
    types: Sequence[str] | None = None
    secret: SigningSecret
    old_secret: SigningSecret | None = None
    old_secret_until: datetime | None = None
    state: str = "active"
    reason: str | None = None
    # Every event up to this number is delivered, given up, or among the retries.
    position: int
    health: Health = Health()
    created_at: datetime
    changed_at: datetime

    def secrets_at(self, now: datetime) -> Sequence[bytes]:
        """Return the secrets to sign with; for a while after a rotation also the old one."""
        if self.old_secret is None or self.old_secret_until is None or now >= self.old_secret_until:
            return (self.secret,)
        return (self.secret, self.old_secret)


_ENDPOINT: Final = """
SELECT id, account_id, url, description, types, secret, old_secret, old_secret_until, state, reason, position,
       failures, failing_since, rest_until, warnings, succeeded_at, created_at, changed_at
  FROM webhook_endpoints
"""
# Without an account, an endpoint of any account.
_BY_ID: Final = "WHERE id = %(endpoint_id)s AND (account_id = %(account_id)s OR %(account_id)s::uuid IS NULL)"


def read_endpoint(row: asyncpg.Record) -> Endpoint:
    fields = dict(row)
    health = Health(
        failures=fields.pop("failures"),
        failing_since=fields.pop("failing_since"),
        backoff_until=fields.pop("rest_until"),
        warnings=fields.pop("warnings"),
        succeeded_at=fields.pop("succeeded_at"),
    )
    secret, old_secret = SigningSecret(fields.pop("secret")), fields.pop("old_secret")
    if old_secret is not None:
        old_secret = SigningSecret(old_secret)
    return Endpoint(**fields, secret=secret, old_secret=old_secret, health=health)


SQL_INSERT: Final = Statement("""
INSERT INTO webhook_endpoints (id, account_id, url, description, types, secret, position)
VALUES (%(id)s, %(account_id)s, %(url)s, %(description)s, %(types)s, %(secret)s, %(position)s)
""")


async def insert(connection: Connection, endpoint: Endpoint) -> None:
    await SQL_INSERT.rows(connection, **{name: getattr(endpoint, name) for name in SQL_INSERT.names})


SQL_LIST: Final = Statement(
    _ENDPOINT
    + """
 WHERE account_id = %(account_id)s
    OR %(account_id)s::uuid IS NULL
 ORDER BY id
 LIMIT %(count_max)s
"""
)


async def list_endpoints(
    connection: Connection, account_id: AccountId | None, count_max: int
) -> Sequence[Endpoint]:
    """Return the endpoints of an account, or of all accounts, oldest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    return [read_endpoint(row) for row in rows]


SQL_FIND: Final = Statement(_ENDPOINT + _BY_ID)


async def find(
    connection: Connection, account_id: AccountId | None, endpoint_id: EndpointId
) -> Endpoint | None:
    row = await SQL_FIND.row(connection, account_id=account_id, endpoint_id=endpoint_id)
    return None if row is None else read_endpoint(row)


# A customer must not lock the endpoint of another: rows that the condition leaves out are not locked.
SQL_LOCK: Final = Statement(_ENDPOINT + _BY_ID + " FOR NO KEY UPDATE")


async def lock(
    connection: Connection, account_id: AccountId | None, endpoint_id: EndpointId
) -> Endpoint | None:
    """Lock an endpoint until the end of the transaction; None if there is none with this id."""
    row = await SQL_LOCK.row(connection, account_id=account_id, endpoint_id=endpoint_id)
    return None if row is None else read_endpoint(row)


# The settings of the owner, and the health, which a new start resets.
SQL_UPDATE: Final = Statement("""
UPDATE webhook_endpoints e
   SET url = %(url)s, description = %(description)s, types = %(types)s, secret = %(secret)s,
       old_secret = %(old_secret)s, old_secret_until = %(old_secret_until)s, state = %(state)s,
       reason = %(reason)s, position = greatest(position, %(position)s), failures = %(failures)s,
       failing_since = %(failing_since)s, rest_until = %(backoff_until)s, warnings = %(warnings)s,
       changed_at = clock_timestamp(),
       changed_after = coalesce((SELECT last FROM event_counters c WHERE c.account_id = e.account_id), 0)
 WHERE id = %(id)s
""")


async def update(connection: Connection, endpoint: Endpoint) -> None:
    """Write an endpoint that the caller has locked."""
    values = structs.asdict(endpoint) | structs.asdict(endpoint.health)
    await SQL_UPDATE.rows(connection, **{name: values[name] for name in SQL_UPDATE.names})


SQL_DELETE: Final = Statement("""
WITH retries AS (
    DELETE FROM webhook_retries WHERE endpoint_id = %(endpoint_id)s
), replays AS (
    DELETE FROM webhook_replays WHERE endpoint_id = %(endpoint_id)s
), wake_ups AS (
    DELETE FROM webhook_bells WHERE endpoint_id = %(endpoint_id)s
)
DELETE FROM webhook_endpoints WHERE id = %(endpoint_id)s
""")


async def delete(connection: Connection, endpoint_id: EndpointId) -> None:
    """Delete an endpoint that the caller has locked, and all events that wait for it."""
    await SQL_DELETE.rows(connection, endpoint_id=endpoint_id)


SQL_LIST_SUBSCRIBED_ACCOUNTS: Final = Statement("""
SELECT DISTINCT account_id FROM webhook_endpoints WHERE types IS NULL OR %(type)s = ANY(types)
""")


async def list_subscribed_accounts(connection: Connection, type_: str) -> frozenset[AccountId]:
    rows = await SQL_LIST_SUBSCRIBED_ACCOUNTS.rows(connection, type=type_)
    return frozenset(AccountId(row["account_id"]) for row in rows)


class ProblemKind(IntEnum):
    """The problems of an endpoint in the order in which a list shows them."""

    FAILING = 0
    BEHIND = 1
    DISABLED = 2


@dataclass(frozen=True, slots=True)
class UnhealthyCursor:
    """The place of an endpoint in the list; the next page begins after it."""

    kind: ProblemKind
    since: datetime
    endpoint_id: UUID


FIRST: Final = UnhealthyCursor(ProblemKind.FAILING, datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))


@dataclass(frozen=True, slots=True)
class UnhealthyEndpoint:
    """An endpoint that is failing, far behind or disabled, its account, and its last attempt."""

    kind: ProblemKind
    # When it began to fail; for an endpoint that is only behind, when it was last changed.
    since: datetime
    id: EndpointId
    account_id: AccountId
    business: str
    url: str
    state: str
    reason: str | None
    failures: int
    failing_since: datetime | None
    backoff_until: datetime | None
    succeeded_at: datetime | None
    behind: int
    # At most RETRIES_MAX.
    retries: int
    last_attempt_at: datetime | None
    last_status: int | None
    problem: str | None

    @property
    def cursor(self) -> UnhealthyCursor:
        return UnhealthyCursor(self.kind, self.since, self.id)


# Not a scan of all endpoints: failing and disabled ones have indexes of their own, and one that is behind has
# a lease, a backoff or a wake-up row. A range with two ends, or an order with a limit, uses its index even in
# a table without statistics.
SQL_LIST_UNHEALTHY: Final = Statement("""
WITH candidates AS MATERIALIZED (
    SELECT id FROM webhook_endpoints WHERE failing_since BETWEEN '-infinity' AND 'infinity'
     UNION
    SELECT id FROM webhook_endpoints WHERE state = 'disabled'
     UNION
    (SELECT id FROM webhook_endpoints WHERE worker IS NOT NULL ORDER BY worker LIMIT %(leased_max)s)
     UNION
    SELECT id FROM webhook_endpoints WHERE rest_until BETWEEN '-infinity' AND 'infinity'
     UNION
    SELECT endpoint_id FROM webhook_bells
), looked_at AS MATERIALIZED (
    SELECT e.id, e.account_id, e.url, e.state, e.reason, e.failures, e.failing_since, e.rest_until,
           e.succeeded_at, coalesce(e.failing_since, e.changed_at) AS since,
           coalesce((SELECT last FROM event_counters c WHERE c.account_id = e.account_id), 0) - e.position
               AS behind
      FROM candidates
     CROSS JOIN LATERAL (SELECT * FROM webhook_endpoints WHERE id = candidates.id OFFSET 0) AS e
     WHERE e.state <> 'paused'
), unhealthy AS (
    SELECT CASE WHEN state = 'disabled' THEN 2 WHEN failing_since IS NOT NULL THEN 0 ELSE 1 END AS kind,
           looked_at.*
      FROM looked_at
     WHERE state = 'disabled' OR failing_since IS NOT NULL OR behind >= %(behind_min)s
), shown AS MATERIALIZED (
    SELECT *
      FROM unhealthy
     WHERE (kind, since, id) > (%(after_kind)s::integer, %(after_since)s::timestamptz, %(after_id)s::uuid)
     ORDER BY kind, since, id
     LIMIT %(count_max)s
)
SELECT shown.kind, shown.since, shown.id, shown.account_id, a.business, shown.url, shown.state, shown.reason,
       shown.failures, shown.failing_since, shown.rest_until, shown.succeeded_at, shown.behind,
       (SELECT count(*)
          FROM (SELECT
                  FROM webhook_retries r
                 WHERE r.endpoint_id = shown.id
                 LIMIT %(retries_max)s) AS counted) AS retries,
       tried.at, tried.status, tried.problem
  FROM shown
  JOIN accounts a ON a.id = shown.account_id
  LEFT JOIN LATERAL (
       SELECT at, status, problem
         FROM webhook_attempts
        WHERE endpoint_id = shown.id
          AND id >= %(attempts_since)s
        ORDER BY id DESC
        LIMIT 1
       ) AS tried ON true
 ORDER BY shown.kind, shown.since, shown.id
""")


async def list_unhealthy(
    connection: Connection, count_max: int, attempts_since: UUID, after: UnhealthyCursor = FIRST
) -> Sequence[UnhealthyEndpoint]:
    """Return failing, slow and disabled endpoints, the oldest problem of each kind first.

    The last attempt is looked for from the id `attempts_since` on.
    """
    rows = await SQL_LIST_UNHEALTHY.rows(
        connection,
        behind_min=BEHIND_MIN,
        retries_max=RETRIES_MAX,
        leased_max=LEASED_MAX,
        after_kind=after.kind,
        after_since=after.since,
        after_id=after.endpoint_id,
        attempts_since=attempts_since,
        count_max=count_max,
    )
    return [UnhealthyEndpoint(ProblemKind(kind), *others) for kind, *others in rows]
