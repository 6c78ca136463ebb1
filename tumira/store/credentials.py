"""Which API keys are there, and whose are they?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from tumira.ids import AccountId, KeyId
from tumira.store.sql import Connection, Statement


class Scope(StrEnum):
    """What a key may be used for."""

    SEND = "messages:send"
    READ = "messages:read"
    ACCOUNT = "account:read"


@dataclass(frozen=True, slots=True)
class Secret:
    """What never changes about a key, and so may be remembered: whose it is and what proves it."""

    key_id: KeyId
    account_id: AccountId
    sha256: bytes


SQL_FIND_SECRET: Final = Statement("SELECT id, account_id, secret_sha256 FROM api_keys WHERE id = %(key_id)s")


async def find_secret(connection: Connection, key_id: KeyId) -> Secret | None:
    """Return what proves the ownership of a key, or None for a key that does not exist."""
    row = await SQL_FIND_SECRET.row(connection, key_id=key_id)
    return None if row is None else Secret(*row)


SQL_INSERT: Final = Statement("""
INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes)
VALUES (%(key_id)s, %(account_id)s, %(name)s, %(sha256)s, %(scopes)s)
""")


async def insert(connection: Connection, secret: Secret, name: str, scopes: Sequence[Scope]) -> None:
    """Add a key."""
    await SQL_INSERT.rows(
        connection,
        key_id=secret.key_id,
        account_id=secret.account_id,
        name=name,
        sha256=secret.sha256,
        scopes=[scope.value for scope in scopes],
    )


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as its owner sees it after creation."""

    id: KeyId
    account_id: AccountId
    name: str
    scopes: Sequence[str]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


SQL_LIST: Final = Statement("""
SELECT id, account_id, name, scopes, created_at, last_used_at, revoked_at
  FROM api_keys
 WHERE account_id = %(account_id)s
 ORDER BY id
""")


async def list_of_account(connection: Connection, account_id: AccountId) -> Sequence[ApiKey]:
    """Return an account's keys, oldest first."""
    return [ApiKey(*row) for row in await SQL_LIST.rows(connection, account_id=account_id)]


SQL_COUNT_IN_USE: Final = Statement(
    "SELECT count(*) FROM api_keys WHERE account_id = %(account_id)s AND revoked_at IS NULL"
)


async def count_in_use(connection: Connection, account_id: AccountId) -> int:
    """Return how many keys of an account are not revoked."""
    return int(await SQL_COUNT_IN_USE.value(connection, account_id=account_id))


SQL_LIST_ALL: Final = Statement("""
SELECT id, account_id, name, scopes, created_at, last_used_at, revoked_at
  FROM api_keys
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_all(connection: Connection, count_max: int) -> Sequence[ApiKey]:
    """Return the keys of all accounts, oldest first; for the operator."""
    return [ApiKey(*row) for row in await SQL_LIST_ALL.rows(connection, count_max=count_max)]


SQL_MARK_REVOKED: Final = Statement("""
UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = %(key_id)s
RETURNING id, account_id, name, scopes, created_at, last_used_at, revoked_at
""")


async def mark_revoked(connection: Connection, key_id: KeyId) -> ApiKey | None:
    """End a key's use from the next call on; None when there is no such key."""
    row = await SQL_MARK_REVOKED.row(connection, key_id=key_id)
    return None if row is None else ApiKey(*row)
