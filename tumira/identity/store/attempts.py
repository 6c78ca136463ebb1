"""Passwords and codes that were tried in vain, counted by what was tried, for which number and from where."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tumira.identity.code_rules import AttemptLimits
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


class AttemptKind(StrEnum):
    """What was tried; tries of one kind do not use up those of another."""

    PASSWORD = "password"  # noqa: S105 - a kind, and no password
    # The second factor, by who knew the password; and by who had the code of a forgotten one.
    FACTOR = "factor"
    RESET_FACTOR = "reset factor"
    # A password that somebody who is signed in says once more.
    PROOF = "proof"
    # Details of a sign-up, sent once more while its code is awaited.
    CORRECTION = "correction"
    # Anything else, in a browser in which its owner has signed in before.
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Budget:
    """The tries of one caller: `origin` is an address, or a browser that is known."""

    kind: AttemptKind
    phone: str
    origin: str
    limits: AttemptLimits


# Two tries for the same number, or from the same origin, count one after the other.
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


async def take(connection: Connection, budget: Budget) -> timedelta | None:
    """Count a try, before anybody knows whether it succeeds; or say how long the next one has to wait."""
    kind, phone, origin, limits = budget.kind.value, budget.phone, budget.origin, budget.limits
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


# Those of others still count: a guesser gets no new tries because the owner signs in meanwhile.
SQL_FORGIVE: Final = Statement("DELETE FROM attempts WHERE phone = %(phone)s AND address = %(origin)s")


async def forgive(connection: Connection, phone: str, origin: str) -> None:
    """Forget what was tried for a number from where its owner has shown who they are."""
    await SQL_FORGIVE.rows(connection, phone=phone, origin=origin)


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
