"""Failed attempts at passwords and codes, counted by kind, number and address."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tumira.identity.code_rules import AttemptLimits
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


class AttemptKind(StrEnum):
    """What was tried; each kind has a limit of its own."""

    PASSWORD = "password"  # noqa: S105 - a kind, and no password
    # The second factor after a password; and after the code of a password reset.
    FACTOR = "factor"
    RESET_FACTOR = "reset factor"
    # The password of a customer who is signed in.
    PROOF = "proof"
    # Corrected details of a sign-up that waits for its code.
    CORRECTION = "correction"
    # Any of these in a browser where the owner has signed in before.
    DEVICE = "device"


# Attempts for the same number, or from the same origin, are counted one after the other.
SQL_LOCK: Final = Statement("""
SELECT pg_advisory_xact_lock(hashtextextended(subject, 1))
  FROM (SELECT unnest(ARRAY[%(phone)s::text, %(origin)s::text]) AS subject ORDER BY 1) AS subjects
""")

SQL_COUNT: Final = Statement("""
WITH of_phone AS MATERIALIZED (
    SELECT at, address
      FROM attempts
     WHERE phone = %(phone)s AND kind = %(kind)s AND at > clock_timestamp() - %(window)s::interval
), of_origin AS MATERIALIZED (
    SELECT at
      FROM attempts
     WHERE address = %(origin)s AND at > clock_timestamp() - %(window)s::interval
)
SELECT (SELECT count(*) FROM of_phone WHERE address = %(origin)s) AS of_pair,
       (SELECT min(at) FROM of_phone WHERE address = %(origin)s) AS pair_since,
       (SELECT count(*) FROM of_phone) AS of_phone,
       (SELECT min(at) FROM of_phone) AS phone_since,
       (SELECT count(*) FROM of_origin) AS of_origin,
       (SELECT min(at) FROM of_origin) AS origin_since,
       clock_timestamp() AS now
""")

SQL_INSERT: Final = Statement(
    "INSERT INTO attempts (kind, phone, address) VALUES (%(kind)s, %(phone)s, %(origin)s)"
)


async def take(
    connection: Connection, kind: AttemptKind, phone: str, origin: str, limits: AttemptLimits
) -> timedelta | None:
    """Count an attempt before its result is known; or return how long the next one has to wait.

    `origin` is an address or a known browser.
    """
    await SQL_LOCK.rows(connection, phone=phone, origin=origin)
    row = await SQL_COUNT.row(connection, kind=kind, phone=phone, origin=origin, window=limits.window)
    assert row is not None
    now: datetime = row["now"]
    over: list[timedelta] = [
        since + limits.window - now
        for count, since, count_max in (
            (row["of_pair"], row["pair_since"], limits.per_pair),
            (row["of_phone"], row["phone_since"], limits.per_phone),
            (row["of_origin"], row["origin_since"], limits.per_address),
        )
        if count_max is not None and count >= count_max
    ]
    if over:
        return max(over)
    await SQL_INSERT.rows(connection, kind=kind, phone=phone, origin=origin)
    return None


# Those of other origins still count: a guesser gets no new attempts because the owner signs in.
SQL_FORGIVE: Final = Statement("DELETE FROM attempts WHERE phone = %(phone)s AND address = %(origin)s")


async def forgive(connection: Connection, phone: str, origin: str) -> None:
    await SQL_FORGIVE.rows(connection, phone=phone, origin=origin)
