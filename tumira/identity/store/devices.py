"""Known devices: browsers that have signed in before, each with attempts of its own."""

from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

DAYS_KEPT: Final = 90
# More than a person uses; the least recently used one makes room.
PER_PHONE_MAX: Final = 20

SQL_IS_KNOWN: Final = Statement(f"""
SELECT true
  FROM devices
 WHERE phone = %(phone)s
   AND token_sha256 = %(token_sha256)s
   AND seen_at > clock_timestamp() - interval '{DAYS_KEPT} days'
""")  # noqa: S608 - only constants are put in


async def is_known(connection: Connection, phone: str, token_sha256: bytes) -> bool:
    found = await SQL_IS_KNOWN.value(connection, phone=phone, token_sha256=token_sha256)
    return found is not None


# The browser gets a new token with every sign-in, so that a planted one is worth nothing. Other accounts that
# the browser is known for move to the new token.
SQL_MOVE: Final = Statement(
    "UPDATE devices SET token_sha256 = %(new_sha256)s WHERE token_sha256 = %(old_sha256)s"
)
SQL_REMEMBER: Final = Statement("""
WITH surplus AS (
    DELETE FROM devices
     WHERE phone = %(phone)s
       AND token_sha256 IN (
           SELECT token_sha256
             FROM devices
            WHERE phone = %(phone)s
              AND token_sha256 <> %(token_sha256)s
            ORDER BY seen_at DESC
           OFFSET %(others_max)s)
)
INSERT INTO devices (phone, token_sha256)
VALUES (%(phone)s, %(token_sha256)s)
    ON CONFLICT (phone, token_sha256) DO UPDATE SET seen_at = clock_timestamp()
""")


async def remember(connection: Connection, phone: str, old_sha256: bytes | None, new_sha256: bytes) -> None:
    """Record a sign-in with this number in the browser that had the old token."""
    if old_sha256 is not None:
        await SQL_MOVE.rows(connection, old_sha256=old_sha256, new_sha256=new_sha256)
    await SQL_REMEMBER.rows(connection, phone=phone, token_sha256=new_sha256, others_max=PER_PHONE_MAX - 1)


SQL_DELETE_ALL: Final = Statement("DELETE FROM devices WHERE phone = %(phone)s")


async def delete_all(connection: Connection, phone: str) -> None:
    await SQL_DELETE_ALL.rows(connection, phone=phone)
