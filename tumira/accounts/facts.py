"""What the console shows of one account: some of its keys, endpoints and refused texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tumira.accounts.api_keys import ApiKey
from tumira.core.ids import AccountId, EndpointId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Keys in use before revoked ones; an account has at most a hundred in use.
SQL_KEYS: Final = Statement("""
SELECT id, account_id, name, scopes, created_at, last_used_at, revoked_at
  FROM api_keys
 WHERE account_id = %(account_id)s
 ORDER BY revoked_at IS NULL DESC, id DESC
 LIMIT %(count_max)s
""")


async def list_keys(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[ApiKey]:
    """Return an account's keys, those in use first, then the newest first."""
    rows = await SQL_KEYS.rows(connection, account_id=account_id, count_max=count_max)
    return [ApiKey(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class ShownEndpoint:
    """A webhook endpoint with its state."""

    id: EndpointId
    url: str
    state: str
    failures: int
    failing_since: datetime | None
    succeeded_at: datetime | None


SQL_ENDPOINTS: Final = Statement("""
SELECT id, url, state, failures, failing_since, succeeded_at
  FROM webhook_endpoints
 WHERE account_id = %(account_id)s
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_endpoints(
    connection: Connection, account_id: AccountId, count_max: int
) -> Sequence[ShownEndpoint]:
    rows = await SQL_ENDPOINTS.rows(connection, account_id=account_id, count_max=count_max)
    return [ShownEndpoint(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class RefusedTexts:
    """How many texts were refused while that is kept, and how often."""

    texts: int
    times: int


SQL_REFUSED: Final = Statement("""
SELECT count(*) AS texts, coalesce(sum(count), 0)::bigint AS times
  FROM content_refusals
 WHERE account_id = %(account_id)s
""")


async def count_refused(connection: Connection, account_id: AccountId) -> RefusedTexts:
    row = await SQL_REFUSED.row(connection, account_id=account_id)
    assert row is not None
    return RefusedTexts(*row)
