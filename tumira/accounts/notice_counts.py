"""Counts of the notices that each account and operator was sent, by kind."""

from typing import Final
from uuid import UUID

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# A day begins with the first notice; the first one after it begins another day.
SQL_TAKE: Final = Statement("""
INSERT INTO security_notices AS n (subject, kind, count)
VALUES (%(subject)s, %(kind)s, 1)
    ON CONFLICT (subject, kind) DO UPDATE
   SET count = CASE WHEN n.since < clock_timestamp() - interval '1 day' THEN 1
                    ELSE least(n.count + 1, 1000000) END,
       since = CASE WHEN n.since < clock_timestamp() - interval '1 day' THEN clock_timestamp()
                    ELSE n.since END
RETURNING count
""")


async def take(connection: Connection, subject: UUID, kind: str) -> int:
    """Count one more notice of a kind, and return the count of its day."""
    return int(await SQL_TAKE.value(connection, subject=subject, kind=kind))
