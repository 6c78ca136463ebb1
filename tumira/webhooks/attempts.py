"""The attempts to deliver events to webhook endpoints."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from tumira.core.ids import AccountId, EndpointId, EventId
from tumira.postgres.columns import columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


class Attempt(Struct, frozen=True, gc=False):
    """The columns of `webhook_attempts`."""

    id: UUID
    endpoint_id: EndpointId
    event_id: EventId
    sequence: int
    type: str
    number: int
    at: datetime
    duration_ms: int
    status: int | None
    problem: str | None
    answer: str
    next_at: datetime | None


async def insert_attempts(connection: Connection, attempts: Sequence[Attempt]) -> None:
    await connection.copy_records_to_table(
        "webhook_attempts", records=map(structs.astuple, attempts), columns=Attempt.__struct_fields__
    )


SQL_INSERT_MISSING: Final = Statement("""
INSERT INTO webhook_attempts (id, endpoint_id, event_id, sequence, type, number, at, duration_ms, status,
                              problem, answer, next_at)
SELECT *
  FROM unnest(%(id)s::uuid[], %(endpoint_id)s::uuid[], %(event_id)s::uuid[], %(sequence)s::bigint[],
              %(type)s::text[], %(number)s::smallint[], %(at)s::timestamptz[], %(duration_ms)s::integer[],
              %(status)s::smallint[], %(problem)s::text[], %(answer)s::text[], %(next_at)s::timestamptz[])
    ON CONFLICT (endpoint_id, id) DO NOTHING
""")


async def insert_missing_attempts(connection: Connection, attempts: Sequence[Attempt]) -> None:
    """Insert attempts, leaving out those that an earlier transaction has inserted already."""
    await SQL_INSERT_MISSING.rows(connection, **columns(Attempt, attempts))


LOWEST: Final = UUID(int=0)
HIGHEST: Final = UUID(int=(1 << 128) - 1)

# The owner of the endpoint is checked once and not for every attempt.
_ATTEMPT: Final = """
SELECT id, endpoint_id, event_id, sequence, type, number, at, duration_ms, status, problem, answer, next_at
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND (%(account_id)s::uuid IS NULL
        OR EXISTS (SELECT FROM webhook_endpoints WHERE id = %(endpoint_id)s AND account_id = %(account_id)s))
"""

SQL_LIST_ATTEMPTS: Final = Statement(
    _ATTEMPT
    + """
   AND (event_id = %(event_id)s OR %(event_id)s::uuid IS NULL)
   AND id >= %(since)s
   AND id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
"""
)


async def list_attempts(
    connection: Connection,
    account_id: AccountId | None,
    endpoint_id: EndpointId,
    count_max: int,
    *,
    event_id: EventId | None = None,
    since: UUID = LOWEST,
    before: UUID = HIGHEST,
) -> Sequence[Attempt]:
    """Return attempts at an endpoint, newest first, of one event or of all.

    Those at another account's endpoint are left out; without an account, none are.
    """
    rows = await SQL_LIST_ATTEMPTS.rows(
        connection,
        account_id=account_id,
        endpoint_id=endpoint_id,
        event_id=event_id,
        since=since,
        before=before,
        count_max=count_max,
    )
    return [Attempt(*row) for row in rows]


SQL_FIND_ATTEMPT: Final = Statement(_ATTEMPT + "AND id = %(attempt_id)s")


async def find_attempt(
    connection: Connection, account_id: AccountId, endpoint_id: EndpointId, attempt_id: UUID
) -> Attempt | None:
    """Return an attempt; None for an unknown id and for another account's endpoint."""
    row = await SQL_FIND_ATTEMPT.row(
        connection, account_id=account_id, endpoint_id=endpoint_id, attempt_id=attempt_id
    )
    return None if row is None else Attempt(*row)


# Test events, which have the number 0, are left out: they are sent once.
SQL_LIST_FAILED_EVENTS: Final = Statement("""
SELECT sequence, event_id
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND id >= %(since)s
   AND sequence > 0
   AND (type = ANY(%(types)s::text[]) OR %(types)s::text[] IS NULL)
 GROUP BY sequence, event_id
HAVING NOT bool_or(coalesce(status BETWEEN 200 AND 299, false))
 ORDER BY sequence
 LIMIT %(count_max)s
""")


async def list_failed_events(
    connection: Connection, endpoint_id: EndpointId, since: UUID, types: Sequence[str] | None, count_max: int
) -> Sequence[tuple[int, EventId]]:
    """Return the events of these types of which every attempt since then failed, oldest first."""
    rows = await SQL_LIST_FAILED_EVENTS.rows(
        connection, endpoint_id=endpoint_id, since=since, types=types, count_max=count_max
    )
    return [(row["sequence"], EventId(row["event_id"])) for row in rows]
