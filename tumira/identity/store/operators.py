"""Who runs the gateway, and who of them is signed in?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

import asyncpg

from tumira.core.ids import OperatorId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

IDLE_HOURS: Final = 8
HOURS_MAX: Final = 24
# How long somebody may take between the password and the rest.
PENDING_MINUTES: Final = 10


class Role(StrEnum):
    """What an operator may do."""

    # Look at everything, and change nothing.
    VIEWER = "viewer"
    ADMIN = "admin"


class SignInStage(StrEnum):
    """How far somebody has come in."""

    NEW = "new"
    CODE = "code"
    IN = "in"


@dataclass(frozen=True, slots=True)
class Operator:
    """Somebody who runs the gateway."""

    id: OperatorId
    phone: str
    name: str
    role: Role
    password_hash: str = field(repr=False)
    one_time_until: datetime | None
    totp_secret: bytes | None = field(repr=False)
    totp_last_step: int
    created_at: datetime
    removed_at: datetime | None
    recovery_codes: int
    seen_at: datetime | None


_SELECT: Final = """
SELECT o.id, o.phone, o.name, o.role, o.password_hash, o.one_time_until, o.totp_secret, o.totp_last_step,
       o.created_at, o.removed_at,
       (SELECT count(*) FROM operator_recovery_codes c WHERE c.operator_id = o.id) AS recovery_codes,
       (SELECT max(seen_at) FROM operator_sessions s WHERE s.operator_id = o.id AND s.stage = 'in') AS seen_at
  FROM operators o
"""


def _operator(row: asyncpg.Record) -> Operator:
    return Operator(**{**dict(row), "role": Role(row["role"])})


SQL_FIND_BY_PHONE: Final = Statement(_SELECT + "WHERE o.phone = %(phone)s AND o.removed_at IS NULL")


async def find_by_phone(connection: Connection, phone: str) -> Operator | None:
    """Return who signs in with this number."""
    row = await SQL_FIND_BY_PHONE.row(connection, phone=phone)
    return None if row is None else _operator(row)


# Held until the commit: a code, a password or a role that is changed meanwhile waits for us.
SQL_HOLD: Final = Statement(
    _SELECT + "WHERE o.id = %(operator_id)s AND o.removed_at IS NULL FOR NO KEY UPDATE OF o"
)


async def hold(connection: Connection, operator_id: OperatorId) -> Operator | None:
    """Lock an operator who is not removed, and return them as they are now."""
    row = await SQL_HOLD.row(connection, operator_id=operator_id)
    return None if row is None else _operator(row)


SQL_LIST: Final = Statement(_SELECT + "ORDER BY o.removed_at IS NOT NULL, o.created_at LIMIT %(count_max)s")


async def list_all(connection: Connection, count_max: int) -> Sequence[Operator]:
    """Return all operators, also those who were removed."""
    return [_operator(row) for row in await SQL_LIST.rows(connection, count_max=count_max)]


# Whoever was removed and comes back begins anew.
SQL_INSERT: Final = Statement("""
INSERT INTO operators (id, phone, name, role, password_hash, one_time_until)
VALUES (%(operator_id)s, %(phone)s, %(name)s, %(role)s, %(password_hash)s,
        clock_timestamp() + %(good_for)s::interval)
    ON CONFLICT (phone) DO UPDATE
   SET name = excluded.name, role = excluded.role, password_hash = excluded.password_hash,
       one_time_until = excluded.one_time_until, totp_secret = NULL, totp_last_step = 0, removed_at = NULL
 WHERE operators.removed_at IS NOT NULL
RETURNING id
""")


async def insert(
    connection: Connection,
    operator_id: OperatorId,
    *,
    phone: str,
    name: str,
    role: Role,
    password_hash: str,
    good_for: timedelta,
) -> OperatorId | None:
    """Add an operator with a password that is good once; None when the number has one already."""
    found = await SQL_INSERT.value(
        connection,
        operator_id=operator_id,
        phone=phone,
        name=name,
        role=role,
        password_hash=password_hash,
        good_for=good_for,
    )
    return None if found is None else OperatorId(found)


SQL_RESET: Final = Statement("""
WITH codes AS (
    DELETE FROM operator_recovery_codes WHERE operator_id = %(operator_id)s
), ended AS (
    DELETE FROM operator_sessions WHERE operator_id = %(operator_id)s
)
UPDATE operators
   SET password_hash = %(password_hash)s, one_time_until = clock_timestamp() + %(good_for)s::interval,
       totp_secret = NULL, totp_last_step = 0
 WHERE id = %(operator_id)s
""")


async def reset(
    connection: Connection, operator_id: OperatorId, password_hash: str, good_for: timedelta
) -> None:
    """Give an operator a new password that is good once; sessions and the second factor end."""
    await SQL_RESET.rows(connection, operator_id=operator_id, password_hash=password_hash, good_for=good_for)


SQL_REMOVE: Final = Statement("""
WITH codes AS (
    DELETE FROM operator_recovery_codes WHERE operator_id = %(operator_id)s
), ended AS (
    DELETE FROM operator_sessions WHERE operator_id = %(operator_id)s
)
UPDATE operators SET removed_at = clock_timestamp(), totp_secret = NULL WHERE id = %(operator_id)s
""")


async def remove(connection: Connection, operator_id: OperatorId) -> None:
    """Let an operator in no more."""
    await SQL_REMOVE.rows(connection, operator_id=operator_id)


SQL_DROP_SECRET: Final = Statement("""
WITH ended AS (
    DELETE FROM operator_sessions WHERE operator_id = %(operator_id)s
)
UPDATE operators SET totp_secret = NULL, totp_last_step = 0 WHERE id = %(operator_id)s
""")


async def drop_secret(connection: Connection, operator_id: OperatorId) -> None:
    """Forget a secret that no device was shown to have, and end whatever was begun with it."""
    await SQL_DROP_SECRET.rows(connection, operator_id=operator_id)


SQL_BEGIN_FACTOR: Final = Statement("""
UPDATE operators SET totp_secret = coalesce(totp_secret, %(secret)s) WHERE id = %(operator_id)s
RETURNING totp_secret
""")


async def begin_factor(connection: Connection, operator_id: OperatorId, secret: bytes) -> bytes:
    """Keep a secret for an operator's device, and return it, or the one that was kept before."""
    kept: bytes = await SQL_BEGIN_FACTOR.value(connection, operator_id=operator_id, secret=secret)
    return kept


SQL_MOVE_IN: Final = Statement("""
WITH codes AS (
    INSERT INTO operator_recovery_codes (operator_id, sha256)
    SELECT %(operator_id)s, unnest(%(sha256s)s::bytea[])
)
UPDATE operators
   SET password_hash = %(password_hash)s, one_time_until = NULL, totp_last_step = %(step)s
 WHERE id = %(operator_id)s
""")


async def move_in(
    connection: Connection,
    operator_id: OperatorId,
    password_hash: str,
    step: int,
    recovery_sha256s: Sequence[bytes],
) -> None:
    """Keep the password that an operator chose, now that they have shown their device."""
    await SQL_MOVE_IN.rows(
        connection,
        operator_id=operator_id,
        password_hash=password_hash,
        step=step,
        sha256s=recovery_sha256s,
    )


SQL_TAKE_STEP: Final = Statement("""
UPDATE operators
   SET totp_last_step = %(step)s
 WHERE id = %(operator_id)s
   AND totp_last_step < %(step)s
RETURNING 1
""")


async def take_step(connection: Connection, operator_id: OperatorId, step: int) -> bool:
    """Use up the code of a step and of all before it; False if it was used before."""
    return await SQL_TAKE_STEP.value(connection, operator_id=operator_id, step=step) is not None


SQL_TAKE_RECOVERY_CODE: Final = Statement("""
DELETE FROM operator_recovery_codes WHERE operator_id = %(operator_id)s AND sha256 = %(sha256)s RETURNING 1
""")


async def take_recovery_code(connection: Connection, operator_id: OperatorId, sha256: bytes) -> bool:
    """Use up a recovery code; False if there is none such."""
    found = await SQL_TAKE_RECOVERY_CODE.value(connection, operator_id=operator_id, sha256=sha256)
    return found is not None


@dataclass(frozen=True, slots=True)
class SignedInOperator:
    """An operator at a browser, and how far they have come in."""

    session_id: UUID
    operator_id: OperatorId
    phone: str
    name: str
    role: Role
    stage: SignInStage
    # True when the session was last seen so long ago that this time is worth a write.
    is_news: bool


SQL_INSERT_SESSION: Final = Statement("""
INSERT INTO operator_sessions (id, token_sha256, operator_id, stage, address, browser)
VALUES (%(session_id)s, %(token_sha256)s, %(operator_id)s, %(stage)s, %(address)s, %(browser)s)
""")


async def insert_session(
    connection: Connection,
    session_id: UUID,
    token_sha256: bytes,
    operator_id: OperatorId,
    stage: SignInStage,
    address: str,
    browser: str,
) -> None:
    """Begin a session, or the first part of one."""
    await SQL_INSERT_SESSION.rows(
        connection,
        session_id=session_id,
        token_sha256=token_sha256,
        operator_id=operator_id,
        stage=stage,
        address=address,
        browser=browser,
    )


SQL_FIND_VISITOR: Final = Statement(f"""
SELECT s.id, o.id, o.phone, o.name, o.role, s.stage, s.seen_at < clock_timestamp() - interval '1 minute'
  FROM operator_sessions s
  JOIN operators o ON o.id = s.operator_id
 WHERE s.token_sha256 = %(token_sha256)s
   AND o.removed_at IS NULL
   AND s.seen_at > clock_timestamp() - interval '{IDLE_HOURS} hours'
   AND s.created_at > clock_timestamp()
       - CASE s.stage WHEN 'in' THEN interval '{HOURS_MAX} hours'
            ELSE interval '{PENDING_MINUTES} minutes' END
""")  # noqa: S608 - only constants are put in


async def find_session(connection: Connection, token_sha256: bytes) -> SignedInOperator | None:
    """Return who holds this token; None if nobody does, or not any more."""
    row = await SQL_FIND_VISITOR.row(connection, token_sha256=token_sha256)
    if row is None:
        return None
    session_id, operator_id, phone, name, role, stage, is_news = row
    return SignedInOperator(
        session_id, OperatorId(operator_id), phone, name, Role(role), SignInStage(stage), is_news
    )


SQL_MARK_SEEN: Final = Statement(
    "UPDATE operator_sessions SET seen_at = clock_timestamp() WHERE id = %(session_id)s"
)


async def mark_seen(connection: Connection, session_id: UUID) -> None:
    """Note that a session is in use."""
    await SQL_MARK_SEEN.rows(connection, session_id=session_id)


SQL_DELETE_SESSION: Final = Statement("DELETE FROM operator_sessions WHERE token_sha256 = %(token_sha256)s")


async def delete_session(connection: Connection, token_sha256: bytes) -> None:
    """End a session; its token opens nothing any more."""
    await SQL_DELETE_SESSION.rows(connection, token_sha256=token_sha256)


SQL_DELETE_OLD: Final = Statement(f"""
WITH old AS MATERIALIZED (
    SELECT id FROM operator_sessions
     WHERE created_at < clock_timestamp() - interval '{HOURS_MAX} hours'
     ORDER BY created_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM operator_sessions WHERE id = ANY(ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM old
""")  # noqa: S608 - only constants are put in


async def delete_old(connection: Connection, count_max: int) -> int:
    """Forget sessions that are over, and return how many."""
    return int(await SQL_DELETE_OLD.value(connection, count_max=count_max))
