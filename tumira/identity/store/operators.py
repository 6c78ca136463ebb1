"""Operators: the people who run the gateway."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import asyncpg

from tumira.core.ids import OperatorId
from tumira.identity.principal import Principal, PrincipalKind
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


class Role(StrEnum):
    """What an operator may do."""

    # See everything and change nothing.
    VIEWER = "viewer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Operator:
    id: OperatorId
    phone: str
    name: str
    role: Role
    # Until when the one-time password is valid; None once the operator has chosen another.
    one_time_until: datetime | None
    has_secret: bool
    created_at: datetime
    removed_at: datetime | None
    seen_at: datetime | None

    @property
    def principal(self) -> Principal:
        return Principal(PrincipalKind.OPERATOR, self.id, self.phone)


_SELECT: Final = """
SELECT o.id, o.phone, o.name, o.role, o.one_time_until, o.totp_secret IS NOT NULL AS has_secret,
       o.created_at, o.removed_at,
       (SELECT max(seen_at) FROM operator_sessions s WHERE s.operator_id = o.id AND s.stage = 'in') AS seen_at
  FROM operators o
"""


def _operator(row: asyncpg.Record) -> Operator:
    return Operator(**{**dict(row), "role": Role(row["role"])})


SQL_FIND_BY_PHONE: Final = Statement(_SELECT + "WHERE o.phone = %(phone)s AND o.removed_at IS NULL")


async def find_by_phone(connection: Connection, phone: str) -> Operator | None:
    """Return the operator who signs in with this number."""
    row = await SQL_FIND_BY_PHONE.row(connection, phone=phone)
    return None if row is None else _operator(row)


SQL_FIND: Final = Statement(_SELECT + "WHERE o.id = %(operator_id)s AND o.removed_at IS NULL")


async def find(connection: Connection, operator_id: OperatorId) -> Operator | None:
    row = await SQL_FIND.row(connection, operator_id=operator_id)
    return None if row is None else _operator(row)


SQL_LIST: Final = Statement(_SELECT + "ORDER BY o.removed_at IS NOT NULL, o.created_at LIMIT %(count_max)s")


async def list_all(connection: Connection, count_max: int) -> Sequence[Operator]:
    """Return all operators, also removed ones."""
    return [_operator(row) for row in await SQL_LIST.rows(connection, count_max=count_max)]


# An operator who was removed and is added again starts from the beginning.
SQL_INSERT: Final = Statement("""
INSERT INTO operators (id, phone, name, role, password_hash, one_time_until)
VALUES (%(operator_id)s, %(phone)s, %(name)s, %(role)s, %(password_hash)s,
        clock_timestamp() + %(valid_for)s::interval)
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
    valid_for: timedelta,
) -> bool:
    """Add an operator with a one-time password; False when the number has one already."""
    inserted = await SQL_INSERT.value(
        connection,
        operator_id=operator_id,
        phone=phone,
        name=name,
        role=role,
        password_hash=password_hash,
        valid_for=valid_for,
    )
    return inserted is not None


SQL_RESET: Final = Statement("""
UPDATE operators
   SET password_hash = %(password_hash)s, one_time_until = clock_timestamp() + %(valid_for)s::interval
 WHERE id = %(operator_id)s
""")


async def reset(
    connection: Connection, operator_id: OperatorId, password_hash: str, valid_for: timedelta
) -> None:
    """Set a new one-time password."""
    await SQL_RESET.rows(
        connection, operator_id=operator_id, password_hash=password_hash, valid_for=valid_for
    )


SQL_MARK_REMOVED: Final = Statement(
    "UPDATE operators SET removed_at = clock_timestamp() WHERE id = %(operator_id)s"
)


async def mark_removed(connection: Connection, operator_id: OperatorId) -> None:
    await SQL_MARK_REMOVED.rows(connection, operator_id=operator_id)
