"""Deletion of what has expired: sessions, pending sign-ins, verifications, attempts and known devices."""

from typing import Final

from tumira.identity.principal import PrincipalKind
from tumira.identity.store import devices, invites, sessions, verifications
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Tables, the columns of their age, and how long rows are kept. Codes go with their verifications.
_KEPT_FOR: Final = (
    ("half_sessions", "created_at", f"{sessions.PENDING_MINUTES} minutes"),
    ("verifications", "created_at", f"{2 * verifications.HOURS_KEPT} hours"),
    ("attempts", "at", "1 day"),
    ("devices", "seen_at", f"{devices.DAYS_KEPT} days"),
    ("invites", "created_at", f"{invites.DAYS_KEPT} days"),
)
_EXPIRED: Final = (
    ("sessions", "created_at", f"NOT ({sessions.VALID[PrincipalKind.CUSTOMER]})"),
    ("operator_sessions", "created_at", f"NOT ({sessions.VALID[PrincipalKind.OPERATOR]})"),
    *((table, age, f"{age} < clock_timestamp() - interval '{kept}'") for table, age, kept in _KEPT_FOR),
)

SQL_DELETE: Final = [
    Statement(f"""
WITH old AS MATERIALIZED (
    SELECT s.ctid FROM {table} s WHERE {expired} ORDER BY {age} LIMIT %(count_max)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM old))
)
SELECT count(*) FROM old
""")  # noqa: S608 - only constants are put in
    for table, age, expired in _EXPIRED
]


async def delete_expired(connection: Connection, count_max: int) -> int:
    """Delete up to `count_max` expired rows of each table, and return how many."""
    return sum([int(await statement.value(connection, count_max=count_max)) for statement in SQL_DELETE])
