"""Who is signed in?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

IDLE_HOURS: Final = 24
DAYS_MAX: Final = 30
# How long somebody whose password was right may take to find their device.
PENDING_MINUTES: Final = 5

SQL_INSERT: Final = Statement("""
INSERT INTO sessions (id, token_sha256, account_id, address, browser)
VALUES (%(session_id)s, %(token_sha256)s, %(account_id)s, %(address)s, %(browser)s)
""")


async def insert(
    connection: Connection,
    session_id: UUID,
    token_sha256: bytes,
    account_id: AccountId,
    address: str,
    browser: str,
) -> None:
    """Begin a session."""
    await SQL_INSERT.rows(
        connection,
        session_id=session_id,
        token_sha256=token_sha256,
        account_id=account_id,
        address=address,
        browser=browser,
    )


@dataclass(frozen=True, slots=True)
class SignedInCustomer:
    """Somebody who is signed in: their session and, as every page shows it, their account."""

    session_id: UUID
    account_id: AccountId
    phone: str
    name: str
    business: str
    balance: Decimal
    suspended: bool
    # True when the session was last seen so long ago that this time is worth a write.
    is_news: bool
    # False while only an e-mail address was proved: then everything can be looked at, and nothing changed.
    phone_proved: bool


_VALID: Final = f"""
s.seen_at > clock_timestamp() - interval '{IDLE_HOURS} hours'
   AND s.created_at > clock_timestamp() - interval '{DAYS_MAX} days'
"""

# A session that began while its account was being closed opens nothing either.
SQL_FIND: Final = Statement(f"""
SELECT s.id, a.id, a.phone, a.name, a.business, a.balance, a.suspended_at IS NOT NULL,
       s.seen_at < clock_timestamp() - interval '1 minute',
       l.account_id IS NULL OR l.phone_proved_at IS NOT NULL
  FROM sessions s
  JOIN accounts a ON a.id = s.account_id
  LEFT JOIN logins l ON l.account_id = a.id
 WHERE s.token_sha256 = %(token_sha256)s
   AND a.closed_at IS NULL
   AND {_VALID}
""")  # noqa: S608 - only constants are put in


async def find(connection: Connection, token_sha256: bytes) -> SignedInCustomer | None:
    """Return who holds this token; None if nobody does, or not any more."""
    row = await SQL_FIND.row(connection, token_sha256=token_sha256)
    return None if row is None else SignedInCustomer(*row)


SQL_MARK_SEEN: Final = Statement("UPDATE sessions SET seen_at = clock_timestamp() WHERE id = %(session_id)s")


async def mark_seen(connection: Connection, session_id: UUID) -> None:
    """Note that a session is in use."""
    await SQL_MARK_SEEN.rows(connection, session_id=session_id)


SQL_DELETE: Final = Statement("DELETE FROM sessions WHERE token_sha256 = %(token_sha256)s")


async def delete(connection: Connection, token_sha256: bytes) -> None:
    """End a session; its token opens nothing any more."""
    await SQL_DELETE.rows(connection, token_sha256=token_sha256)


SQL_DELETE_ALL: Final = Statement("""
WITH halves AS (
    DELETE FROM half_sessions WHERE account_id = %(account_id)s
)
DELETE FROM sessions WHERE account_id = %(account_id)s
""")


async def delete_all(connection: Connection, account_id: AccountId) -> None:
    """End all sessions of an account, also those that wait for the second factor."""
    await SQL_DELETE_ALL.rows(connection, account_id=account_id)


SQL_DELETE_OTHERS: Final = Statement("""
WITH halves AS (
    DELETE FROM half_sessions WHERE account_id = %(account_id)s
)
DELETE FROM sessions WHERE account_id = %(account_id)s AND id <> %(session_id)s RETURNING 1
""")


async def delete_others(connection: Connection, account_id: AccountId, session_id: UUID) -> int:
    """End all sessions of an account but this one, and return how many."""
    return len(await SQL_DELETE_OTHERS.rows(connection, account_id=account_id, session_id=session_id))


SQL_DELETE_OWN: Final = Statement("""
DELETE FROM sessions WHERE account_id = %(account_id)s AND id = %(session_id)s RETURNING browser
""")


async def delete_own(connection: Connection, account_id: AccountId, session_id: UUID) -> str | None:
    """End one of an account's sessions and return its browser; None when it has no such session."""
    browser: str | None = await SQL_DELETE_OWN.value(connection, account_id=account_id, session_id=session_id)
    return browser


SQL_INSERT_HALF: Final = Statement("""
INSERT INTO half_sessions (token_sha256, account_id, password_hash)
VALUES (%(token_sha256)s, %(account_id)s, %(password_hash)s)
""")


async def insert_pending(
    connection: Connection, token_sha256: bytes, account_id: AccountId, password_hash: str | None = None
) -> None:
    """Let somebody go on to the second factor; a forgotten password is set only after that."""
    await SQL_INSERT_HALF.rows(
        connection, token_sha256=token_sha256, account_id=account_id, password_hash=password_hash
    )


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """Somebody whose second factor is awaited, and the password that they want to have after it."""

    account_id: AccountId
    phone: str
    password_hash: str | None


SQL_FIND_HALF: Final = Statement(f"""
SELECT a.id, a.phone, h.password_hash
  FROM half_sessions h
  JOIN accounts a ON a.id = h.account_id
 WHERE h.token_sha256 = %(token_sha256)s
   AND h.created_at > clock_timestamp() - interval '{PENDING_MINUTES} minutes'
   AND a.closed_at IS NULL
""")  # noqa: S608 - only constants are put in


async def find_pending(connection: Connection, token_sha256: bytes) -> PendingSignIn | None:
    """Return who holds this token; None if nobody does, or not any more."""
    row = await SQL_FIND_HALF.row(connection, token_sha256=token_sha256)
    return None if row is None else PendingSignIn(*row)


SQL_DELETE_HALF: Final = Statement(
    "DELETE FROM half_sessions WHERE token_sha256 = %(token_sha256)s RETURNING 1"
)


async def delete_pending(connection: Connection, token_sha256: bytes) -> bool:
    """Use up such a token; False if that has happened before."""
    return await SQL_DELETE_HALF.value(connection, token_sha256=token_sha256) is not None


@dataclass(frozen=True, slots=True)
class Session:
    """A session as its owner sees it."""

    id: UUID
    address: str
    browser: str
    created_at: datetime
    seen_at: datetime


SQL_LIST: Final = Statement(f"""
SELECT s.id, s.address, s.browser, s.created_at, s.seen_at
  FROM sessions s
 WHERE s.account_id = %(account_id)s
   AND {_VALID}
 ORDER BY s.seen_at DESC
 LIMIT 100
""")  # noqa: S608 - only constants are put in


async def list_sessions(connection: Connection, account_id: AccountId) -> Sequence[Session]:
    """Return where an account is signed in, the latest first."""
    return [Session(*row) for row in await SQL_LIST.rows(connection, account_id=account_id)]


SQL_DELETE_OLD: Final = Statement(f"""
WITH old AS MATERIALIZED (
    SELECT s.id
      FROM sessions s
     WHERE NOT ({_VALID})
     LIMIT %(count_max)s
       FOR UPDATE OF s SKIP LOCKED
), deleted AS (
    DELETE FROM sessions WHERE id = ANY(ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM old
""")  # noqa: S608 - only constants are put in


SQL_DELETE_OLD_HALVES: Final = Statement(f"""
WITH old AS MATERIALIZED (
    SELECT token_sha256
      FROM half_sessions
     WHERE created_at < clock_timestamp() - interval '{PENDING_MINUTES} minutes'
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM half_sessions WHERE token_sha256 = ANY(ARRAY(SELECT token_sha256 FROM old))
)
SELECT count(*) FROM old
""")  # noqa: S608 - only constants are put in


async def delete_old(connection: Connection, count_max: int) -> int:
    """Forget sessions that are over, up to `count_max` of each kind, and return how many."""
    halves = int(await SQL_DELETE_OLD_HALVES.value(connection, count_max=count_max))
    return halves + int(await SQL_DELETE_OLD.value(connection, count_max=count_max))
