"""How often was a password or a code tried in vain, for a number and from an address?"""

from datetime import datetime, timedelta
from typing import Final

from tumira.rules.codes import AttemptLimits
from tumira.store.sql import Connection, Statement

# Two tries for the same number, or from the same address, count one after the other.
SQL_LOCK: Final = Statement("""
SELECT pg_advisory_xact_lock(hashtextextended(subject, 1))
  FROM (SELECT unnest(ARRAY[%(phone)s::text, %(address)s::text]) AS subject ORDER BY 1) AS subjects
""")

SQL_COUNT: Final = Statement("""
SELECT (SELECT count(*) FROM attempts
         WHERE phone = %(phone)s AND at > clock_timestamp() - %(window)s::interval) AS of_phone,
       (SELECT min(at) FROM attempts
         WHERE phone = %(phone)s AND at > clock_timestamp() - %(window)s::interval) AS phone_since,
       (SELECT count(*) FROM attempts
         WHERE address = %(address)s AND at > clock_timestamp() - %(window)s::interval) AS of_address,
       (SELECT min(at) FROM attempts
         WHERE address = %(address)s AND at > clock_timestamp() - %(window)s::interval) AS address_since,
       clock_timestamp() AS now
""")

SQL_INSERT: Final = Statement("INSERT INTO attempts (phone, address) VALUES (%(phone)s, %(address)s)")


async def take(connection: Connection, phone: str, address: str, limits: AttemptLimits) -> timedelta | None:
    """Count a try, before anybody knows whether it succeeds; or say how long the next one has to wait."""
    await SQL_LOCK.rows(connection, phone=phone, address=address)
    row = await SQL_COUNT.row(connection, phone=phone, address=address, window=limits.window)
    assert row is not None
    now: datetime = row["now"]
    over: list[timedelta] = [
        since + limits.window - now
        for count, since, count_max in (
            (row["of_phone"], row["phone_since"], limits.per_phone),
            (row["of_address"], row["address_since"], limits.per_address),
        )
        if count >= count_max
    ]
    if over:
        return max(over)
    await SQL_INSERT.rows(connection, phone=phone, address=address)
    return None


SQL_FORGIVE: Final = Statement("DELETE FROM attempts WHERE phone = %(phone)s")


async def forgive(connection: Connection, phone: str) -> None:
    """Forget the tries for a number whose owner has shown who they are; those for others still count."""
    await SQL_FORGIVE.rows(connection, phone=phone)


SQL_DELETE_OLD: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id
      FROM attempts
     WHERE at < clock_timestamp() - interval '1 day'
     ORDER BY at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM attempts WHERE id = ANY(ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM old
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    """Forget tries that count no more, and return how many."""
    return int(await SQL_DELETE_OLD.value(connection, count_max=count_max))
