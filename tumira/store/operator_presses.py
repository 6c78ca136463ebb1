"""Was a form of the console carried out before? One that moves money is carried out once."""

from typing import Final
from uuid import UUID

from tumira.store.sql import Connection, Statement

# Of two that come at once, the second waits here for the commit of the first.
SQL_TAKE: Final = Statement("""
INSERT INTO operator_presses (id)
VALUES (%(press)s)
    ON CONFLICT (id) DO NOTHING
RETURNING 1
""")


async def take(connection: Connection, press: UUID) -> bool:
    """Carry a form out, in the transaction that does what it says; False if that was done before."""
    return await SQL_TAKE.value(connection, press=press) is not None
