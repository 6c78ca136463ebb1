"""The attempts to deliver events to webhook endpoints."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from tumira.core.ids import AccountId, EndpointId, EventId
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


SQL_INSERT_ATTEMPT_ONCE: Final = Statement("""
INSERT INTO webhook_attempts (id, endpoint_id, event_id, sequence, type, number, at, duration_ms, status,
                              problem, answer, next_at)
VALUES (%(id)s, %(endpoint_id)s, %(event_id)s, %(sequence)s, %(type)s, %(number)s, %(at)s, %(duration_ms)s,
        %(status)s, %(problem)s, %(answer)s, %(next_at)s)
    ON CONFLICT (endpoint_id, id) DO NOTHING
""")


async def insert_attempts_once(connection: Connection, attempts: Sequence[Attempt]) -> None:
    """Insert attempts that an earlier transaction may have inserted already."""
    await SQL_INSERT_ATTEMPT_ONCE.each(connection, [structs.asdict(attempt) for attempt in attempts])


# Larger than every id.
HIGHEST: Final = UUID(int=(1 << 128) - 1)

# The owner of the endpoint is checked once and not for every attempt.
_OWN: Final = """
SELECT id, endpoint_id, event_id, sequence, type, number, at, duration_ms, status, problem, answer, next_at
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND EXISTS (SELECT FROM webhook_endpoints WHERE id = %(endpoint_id)s AND account_id = %(account_id)s)
"""

SQL_LIST_OWN_ATTEMPTS: Final = Statement(
    _OWN
    + """
   AND id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
"""
)


async def list_own_attempts(
    connection: Connection, account_id: AccountId, endpoint_id: EndpointId, before: UUID, count_max: int
) -> Sequence[Attempt]:
    """Return the attempts at an account's endpoint before the one with this id, newest first."""
    rows = await SQL_LIST_OWN_ATTEMPTS.rows(
        connection, account_id=account_id, endpoint_id=endpoint_id, before=before, count_max=count_max
    )
    return [Attempt(*row) for row in rows]


SQL_FIND_ATTEMPT: Final = Statement(_OWN + "AND id = %(attempt_id)s")


async def find_attempt(
    connection: Connection, account_id: AccountId, endpoint_id: EndpointId, attempt_id: UUID
) -> Attempt | None:
    """Return an attempt; None for an unknown id and for another account's endpoint."""
    row = await SQL_FIND_ATTEMPT.row(
        connection, account_id=account_id, endpoint_id=endpoint_id, attempt_id=attempt_id
    )
    return None if row is None else Attempt(*row)


SQL_FIND_LATEST_ATTEMPT: Final = Statement(
    _OWN
    + """
   AND event_id = %(event_id)s
   AND id >= %(since)s
 ORDER BY id DESC
 LIMIT 1
"""
)


async def find_latest_attempt(
    connection: Connection, account_id: AccountId, endpoint_id: EndpointId, event_id: EventId, since: UUID
) -> Attempt | None:
    """Return the latest attempt of an event since the attempt with this id."""
    row = await SQL_FIND_LATEST_ATTEMPT.row(
        connection, account_id=account_id, endpoint_id=endpoint_id, event_id=event_id, since=since
    )
    return None if row is None else Attempt(*row)


SQL_LIST_ATTEMPTS: Final = Statement("""
SELECT id, endpoint_id, event_id, sequence, type, number, at, duration_ms, status, problem, answer, next_at
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND (event_id = %(event_id)s OR %(event_id)s::uuid IS NULL)
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_attempts(
    connection: Connection, endpoint_id: EndpointId, event_id: EventId | None, count_max: int
) -> Sequence[Attempt]:
    """Return the latest attempts at an endpoint, of one event or of all, newest first."""
    rows = await SQL_LIST_ATTEMPTS.rows(
        connection, endpoint_id=endpoint_id, event_id=event_id, count_max=count_max
    )
    return [Attempt(*row) for row in rows]


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
    connection: Connection,
    endpoint_id: EndpointId,
    since: UUID,
    types: Sequence[str] | None,
    count_max: int,
) -> Sequence[tuple[int, EventId]]:
    """Return the events of these types of which every attempt since then failed, oldest first."""
    rows = await SQL_LIST_FAILED_EVENTS.rows(
        connection, endpoint_id=endpoint_id, since=since, types=types, count_max=count_max
    )
    return [(row["sequence"], EventId(row["event_id"])) for row in rows]
