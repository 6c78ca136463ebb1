"""API keys: their shape, `tmr_<public id>_<secret>`, and their rows; only a hash of the secret is kept."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import KEY, AccountId, KeyId, read_id, write_id
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Beyond every key.
NEWEST: Final = KeyId(UUID(int=(1 << 128) - 1))

_SHAPE: Final = re.compile(r"tmr_([0-9a-z]{26})_([0-9a-z]{32})")


class ParsedKey(Struct, frozen=True):
    key_id: KeyId
    secret: str


def parse_key(text: str) -> ParsedKey | None:
    """Parse a key; None for any other text."""
    match = _SHAPE.fullmatch(text)
    key_id = None if match is None else read_id(KEY, KEY + match[1])
    return None if match is None or key_id is None else ParsedKey(KeyId(key_id), match[2])


def write_key(key: ParsedKey) -> str:
    """Write a key, to be shown once."""
    return f"tmr_{write_id('', key.key_id)}_{key.secret}"


class Scope(StrEnum):
    SEND = "messages:send"
    READ = "messages:read"
    ACCOUNT = "account:read"


@dataclass(frozen=True, slots=True)
class KeySecret:
    """The constant part of a key, which may be cached: its account and the hash of its secret."""

    key_id: KeyId
    account_id: AccountId
    sha256: bytes


SQL_FIND_SECRET: Final = Statement("SELECT id, account_id, secret_sha256 FROM api_keys WHERE id = %(key_id)s")


async def find_secret(connection: Connection, key_id: KeyId) -> KeySecret | None:
    row = await SQL_FIND_SECRET.row(connection, key_id=key_id)
    return None if row is None else KeySecret(*row)


SQL_INSERT: Final = Statement("""
INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes)
VALUES (%(key_id)s, %(account_id)s, %(name)s, %(sha256)s, %(scopes)s)
""")


async def insert(connection: Connection, secret: KeySecret, name: str, scopes: Sequence[Scope]) -> None:
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


_KEYS: Final = """
SELECT id, account_id, name, scopes, created_at, last_used_at, revoked_at
  FROM api_keys
"""

SQL_LIST_IN_USE: Final = Statement(f"""{_KEYS}
 WHERE account_id = %(account_id)s
   AND revoked_at IS NULL
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_in_use(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[ApiKey]:
    """Return an account's keys that are not revoked, newest first."""
    rows = await SQL_LIST_IN_USE.rows(connection, account_id=account_id, count_max=count_max)
    return [ApiKey(*row) for row in rows]


SQL_LIST_REVOKED: Final = Statement(f"""{_KEYS} WHERE account_id = %(account_id)s
   AND revoked_at IS NOT NULL
   AND id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_revoked(
    connection: Connection, account_id: AccountId, count_max: int, before: KeyId = NEWEST
) -> Sequence[ApiKey]:
    """Return an account's revoked keys made before a given key, newest first."""
    rows = await SQL_LIST_REVOKED.rows(connection, account_id=account_id, before=before, count_max=count_max)
    return [ApiKey(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """How many keys are not revoked, and how many were made in 24 hours."""

    in_use: int
    made_today: int


SQL_COUNT: Final = Statement("""
SELECT count(*) FILTER (WHERE revoked_at IS NULL),
       count(*) FILTER (WHERE created_at > clock_timestamp() - interval '1 day')
  FROM api_keys
 WHERE account_id = %(account_id)s
""")


async def count(connection: Connection, account_id: AccountId) -> KeyCounts:
    row = await SQL_COUNT.row(connection, account_id=account_id)
    assert row is not None
    return KeyCounts(*row)


SQL_DELETE_OLDEST_REVOKED: Final = Statement("""
DELETE FROM api_keys
 WHERE id IN (
       SELECT id
         FROM api_keys
        WHERE account_id = %(account_id)s
          AND revoked_at IS NOT NULL
        ORDER BY id DESC
       OFFSET %(kept)s
       )
""")


async def delete_oldest_revoked(connection: Connection, account_id: AccountId, kept: int) -> None:
    """Delete all but the newest of an account's revoked keys."""
    await SQL_DELETE_OLDEST_REVOKED.rows(connection, account_id=account_id, kept=kept)


SQL_FIND: Final = Statement(f"{_KEYS} WHERE id = %(key_id)s AND account_id = %(account_id)s")


async def find(connection: Connection, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
    """Return an account's key; None for an unknown id and for another account's key."""
    row = await SQL_FIND.row(connection, account_id=account_id, key_id=key_id)
    return None if row is None else ApiKey(*row)


SQL_LIST_SOME: Final = Statement(f"""{_KEYS} WHERE %(account_id)s::uuid IS NULL OR account_id = %(account_id)s
 ORDER BY revoked_at IS NOT NULL, id
 LIMIT %(count_max)s
""")


async def list_some(connection: Connection, account_id: AccountId | None, count_max: int) -> Sequence[ApiKey]:
    """Return the keys of one account or of all, those in use first, then oldest first."""
    rows = await SQL_LIST_SOME.rows(connection, account_id=account_id, count_max=count_max)
    return [ApiKey(*row) for row in rows]


SQL_IS_IN_USE: Final = Statement("SELECT revoked_at IS NULL FROM api_keys WHERE id = %(key_id)s")


async def is_in_use(connection: Connection, key_id: KeyId) -> bool:
    return bool(await SQL_IS_IN_USE.value(connection, key_id=key_id))


SQL_MARK_REVOKED: Final = Statement("""
UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = %(key_id)s
RETURNING id, account_id, name, scopes, created_at, last_used_at, revoked_at
""")


async def mark_revoked(connection: Connection, key_id: KeyId) -> ApiKey | None:
    """Revoke a key from the next call on; None when there is no such key."""
    row = await SQL_MARK_REVOKED.row(connection, key_id=key_id)
    return None if row is None else ApiKey(*row)
