"""Which tries at an endpoint does its owner look at, and what never arrived there?"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId, EndpointId, EventId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.webhooks.attempts import Attempt

# Larger than every id.
HIGHEST: Final = UUID(int=(1 << 128) - 1)

# Whose the endpoint is, is looked at once and not for every try.
_OWN: Final = """
SELECT id, endpoint_id, event_id, sequence, type, number, at, duration_ms, status, problem, answer, next_at
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND EXISTS (SELECT FROM webhook_endpoints WHERE id = %(endpoint_id)s AND account_id = %(account_id)s)
"""

SQL_LIST_BEFORE: Final = Statement(
    _OWN
    + """
   AND id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
"""
)


async def list_before(
    connection: Connection, account_id: AccountId, endpoint_id: EndpointId, before: UUID, count_max: int
) -> Sequence[Attempt]:
    """Return the tries at an account's endpoint before one of them, newest first."""
    rows = await SQL_LIST_BEFORE.rows(
        connection, account_id=account_id, endpoint_id=endpoint_id, before=before, count_max=count_max
    )
    return [Attempt(*row) for row in rows]


SQL_FIND: Final = Statement(_OWN + "AND id = %(attempt_id)s")


async def find(
    connection: Connection, account_id: AccountId, endpoint_id: EndpointId, attempt_id: UUID
) -> Attempt | None:
    """Return a try at an account's endpoint; None for an unknown one and for somebody else's."""
    row = await SQL_FIND.row(
        connection, account_id=account_id, endpoint_id=endpoint_id, attempt_id=attempt_id
    )
    return None if row is None else Attempt(*row)


SQL_FIND_LATEST: Final = Statement(
    _OWN
    + """
   AND event_id = %(event_id)s
   AND id >= %(since)s
 ORDER BY id DESC
 LIMIT 1
"""
)


async def find_latest(
    connection: Connection, account_id: AccountId, endpoint_id: EndpointId, event_id: EventId, since: UUID
) -> Attempt | None:
    """Return the latest try of an event, if there was one since then."""
    row = await SQL_FIND_LATEST.row(
        connection, account_id=account_id, endpoint_id=endpoint_id, event_id=event_id, since=since
    )
    return None if row is None else Attempt(*row)


# Tests, which have no number, are left out: they are sent once.
SQL_LIST_FAILED: Final = Statement("""
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


async def list_failed(
    connection: Connection,
    endpoint_id: EndpointId,
    since: UUID,
    types: Sequence[str] | None,
    count_max: int,
) -> Sequence[tuple[int, EventId]]:
    """Return the events of these types that were tried since then in vain, oldest first."""
    rows = await SQL_LIST_FAILED.rows(
        connection, endpoint_id=endpoint_id, since=since, types=types, count_max=count_max
    )
    return [(row["sequence"], EventId(row["event_id"])) for row in rows]


SQL_COUNT_TESTS: Final = Statement("""
SELECT count(*) FROM webhook_retries WHERE endpoint_id = %(endpoint_id)s AND sequence = 0
""")


async def count_tests(connection: Connection, endpoint_id: EndpointId) -> int:
    """Return how many tests wait to be sent to an endpoint that we hold."""
    return int(await SQL_COUNT_TESTS.value(connection, endpoint_id=endpoint_id))
