"""How many notices about changes of their access each account and operator was sent lately."""

from typing import Final
from uuid import UUID

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# The first notice begins a day; when it has passed, the next one begins another.
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


async def count(connection: Connection, subject: UUID, kind: str) -> int:
    """Count one more notice of a kind, and return how many those of its day are."""
    return int(await SQL_TAKE.value(connection, subject=subject, kind=kind))
