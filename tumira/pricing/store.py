"""Which prices count from a later moment on?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.destinations import PriceStatus


@dataclass(frozen=True, slots=True)
class ScheduledPrice:
    """What a segment will cost from a moment on, and who said so."""

    channel: str
    country: str
    price_usd: Decimal
    from_at: datetime
    set_by: str
    created_at: datetime


# Held until the commit, so that two who add at once do not add one too many.
SQL_HOLD: Final = Statement("SELECT pg_advisory_xact_lock(hashtext('tumira price schedule'))")

SQL_COUNT: Final = Statement("SELECT count(*) FROM price_schedule")


async def hold_and_count(connection: Connection) -> int:
    """Keep others from scheduling prices, and return how many wait."""
    await SQL_HOLD.rows(connection)
    return int(await SQL_COUNT.value(connection))


# By the database's clock, which also says when it is time.
SQL_INSERT: Final = Statement("""
INSERT INTO price_schedule (channel, country, price_usd, from_at, set_by)
SELECT %(channel)s, %(country)s, %(price_usd)s, %(from_at)s, %(set_by)s
 WHERE %(from_at)s > clock_timestamp()
    ON CONFLICT (channel, country, from_at) DO NOTHING
RETURNING channel, country, price_usd, from_at, set_by, created_at
""")


async def insert(
    connection: Connection, *, channel: str, country: str, price_usd: Decimal, from_at: datetime, set_by: str
) -> ScheduledPrice | None:
    """Schedule a price; None when its moment has passed, or has a price already."""
    row = await SQL_INSERT.row(
        connection, channel=channel, country=country, price_usd=price_usd, from_at=from_at, set_by=set_by
    )
    return None if row is None else ScheduledPrice(*row)


SQL_LIST: Final = Statement("""
SELECT channel, country, price_usd, from_at, set_by, created_at
  FROM price_schedule
 ORDER BY from_at, channel, country
 LIMIT %(count_max)s
""")


async def list_all(connection: Connection, count_max: int) -> Sequence[ScheduledPrice]:
    """Return the prices to come, the next one first."""
    rows = await SQL_LIST.rows(connection, count_max=count_max)
    return [ScheduledPrice(*row) for row in rows]


SQL_DELETE: Final = Statement("""
DELETE FROM price_schedule
 WHERE channel = %(channel)s
   AND country = %(country)s
   AND from_at = %(from_at)s
RETURNING channel, country, price_usd, from_at, set_by, created_at
""")


async def delete(
    connection: Connection, channel: str, country: str, from_at: datetime
) -> ScheduledPrice | None:
    """Withdraw a price that does not count yet, and return it; None when there is none."""
    row = await SQL_DELETE.row(connection, channel=channel, country=country, from_at=from_at)
    return None if row is None else ScheduledPrice(*row)


# Whoever withdraws one just now holds it, and it is left to them.
SQL_TAKE_DUE: Final = Statement("""
WITH due AS MATERIALIZED (
    SELECT channel, country, from_at
      FROM price_schedule
     WHERE from_at <= clock_timestamp()
     ORDER BY from_at, channel, country
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM price_schedule
     WHERE (channel, country, from_at) IN (SELECT channel, country, from_at FROM due)
 RETURNING channel, country, price_usd, from_at, set_by, created_at
)
SELECT channel, country, price_usd, from_at, set_by, created_at FROM taken ORDER BY from_at, channel, country
""")


async def take_due(connection: Connection, count_max: int) -> Sequence[ScheduledPrice]:
    """Take out the prices whose moment has come, in their order: put them into force in this transaction."""
    rows = await SQL_TAKE_DUE.rows(connection, count_max=count_max)
    return [ScheduledPrice(*row) for row in rows]


# Every change of a price raises the tariff's version. Its row is locked before the price: whoever changes
# several prices holds it from the first one on.
SQL_HOLD_TARIFF: Final = Statement("SELECT version FROM tariff FOR NO KEY UPDATE")

SQL_GET_PRICE: Final = Statement("""
SELECT price_usd
  FROM prices
 WHERE channel = %(channel)s
   AND country = %(country)s
   AND status = %(status)s
   FOR NO KEY UPDATE
""")


async def hold_price(
    connection: Connection, channel: str, country: str, status: PriceStatus
) -> Decimal | None:
    """Return a price as it is until this transaction changes it; None when there is none."""
    await SQL_HOLD_TARIFF.rows(connection)
    found: Decimal | None = await SQL_GET_PRICE.value(
        connection, channel=channel, country=country, status=status
    )
    return found


SQL_DELETE_ANNOUNCED: Final = Statement("""
DELETE FROM prices
 WHERE channel = %(channel)s
   AND country = %(country)s
   AND status = 'coming_soon'
   AND price_usd = %(price_usd)s
""")


async def delete_announced(connection: Connection, channel: str, country: str, price_usd: Decimal) -> None:
    """Stop announcing a price that is charged now."""
    await SQL_DELETE_ANNOUNCED.rows(connection, channel=channel, country=country, price_usd=price_usd)
