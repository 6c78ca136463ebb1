"""Destinations, prices and scheduled prices in the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff


@dataclass(frozen=True, slots=True)
class ScheduledPrice:
    channel: str
    country: str
    price_usd: Decimal
    from_at: datetime
    set_by: str
    created_at: datetime


# One statement, so that version and rows are of one moment.
SQL_TARIFF: Final = Statement("""
SELECT (SELECT version FROM tariff) AS version,
       (SELECT array_agg(DISTINCT country || '-' || network) FROM routes WHERE network IS NOT NULL) AS routed,
       d.country, d.calling_code, d.name, d.national_lengths, p.channel, p.status, p.price_usd
  FROM destinations d
  LEFT JOIN prices p ON p.country = d.country
 ORDER BY d.created_at, d.country, p.status, p.created_at
""")


async def get_tariff(connection: Connection) -> Tariff:
    rows = await SQL_TARIFF.rows(connection)
    assert rows, "the first migration inserts two destinations"
    destinations = {
        row["country"]: Destination(
            row["country"], row["calling_code"], row["name"], tuple(row["national_lengths"])
        )
        for row in rows
    }
    prices = [
        Price(row["channel"], row["country"], row["price_usd"], PriceStatus(row["status"]))
        for row in rows
        if row["channel"] is not None
    ]
    return Tariff(rows[0]["version"], list(destinations.values()), prices, frozenset(rows[0]["routed"] or ()))


SQL_INSERT_DESTINATION: Final = Statement("""
INSERT INTO destinations (country, calling_code, name, national_lengths)
VALUES (%(country)s, %(calling_code)s, %(name)s, %(national_lengths)s)
    ON CONFLICT (country) DO NOTHING
RETURNING country
""")


async def insert_destination(connection: Connection, destination: Destination) -> bool:
    """Add a country, and tell whether it was new."""
    inserted = await SQL_INSERT_DESTINATION.value(
        connection,
        country=destination.country,
        calling_code=destination.calling_code,
        name=destination.name,
        national_lengths=list(destination.national_lengths),
    )
    return inserted is not None


SQL_SET_PRICE: Final = Statement("""
INSERT INTO prices (channel, country, status, price_usd)
VALUES (%(channel)s, %(country)s, %(status)s, %(price_usd)s)
    ON CONFLICT (channel, country, status) DO UPDATE SET price_usd = excluded.price_usd
""")


async def set_price(
    connection: Connection, channel: str, country: str, status: PriceStatus, price_usd: Decimal
) -> None:
    await SQL_SET_PRICE.rows(connection, channel=channel, country=country, status=status, price_usd=price_usd)


SQL_LIST_COUNTRIES: Final = Statement("SELECT country FROM destinations ORDER BY country")


async def list_countries(connection: Connection) -> Sequence[str]:
    """Return the countries of all destinations, priced or not."""
    return [row["country"] for row in await SQL_LIST_COUNTRIES.rows(connection)]


# Held until commit, so that two concurrent inserts do not exceed the maximum.
SQL_LOCK_SCHEDULE: Final = Statement("SELECT pg_advisory_xact_lock(hashtext('tumira price schedule'))")

SQL_COUNT_SCHEDULED: Final = Statement("SELECT count(*) FROM price_schedule")


async def lock_schedule(connection: Connection) -> int:
    """Lock the schedule until commit, and return how many prices it holds."""
    await SQL_LOCK_SCHEDULE.rows(connection)
    return int(await SQL_COUNT_SCHEDULED.value(connection))


# Compared with the database's clock, which also decides when the price becomes due.
SQL_INSERT_SCHEDULED: Final = Statement("""
INSERT INTO price_schedule (channel, country, price_usd, from_at, set_by)
SELECT %(channel)s, %(country)s, %(price_usd)s, %(from_at)s, %(set_by)s
 WHERE %(from_at)s > clock_timestamp()
    ON CONFLICT (channel, country, from_at) DO NOTHING
RETURNING channel, country, price_usd, from_at, set_by, created_at
""")


async def insert_scheduled(
    connection: Connection, *, channel: str, country: str, price_usd: Decimal, from_at: datetime, set_by: str
) -> ScheduledPrice | None:
    """Schedule a price; None when the moment has passed or already has a price."""
    row = await SQL_INSERT_SCHEDULED.row(
        connection, channel=channel, country=country, price_usd=price_usd, from_at=from_at, set_by=set_by
    )
    return None if row is None else ScheduledPrice(*row)


SQL_LIST_SCHEDULED: Final = Statement("""
SELECT channel, country, price_usd, from_at, set_by, created_at
  FROM price_schedule
 ORDER BY from_at, channel, country
 LIMIT %(count_max)s
""")


async def list_scheduled(connection: Connection, count_max: int) -> Sequence[ScheduledPrice]:
    """Return the scheduled prices, the next one first."""
    rows = await SQL_LIST_SCHEDULED.rows(connection, count_max=count_max)
    return [ScheduledPrice(*row) for row in rows]


SQL_DELETE_SCHEDULED: Final = Statement("""
DELETE FROM price_schedule
 WHERE channel = %(channel)s
   AND country = %(country)s
   AND from_at = %(from_at)s
RETURNING channel, country, price_usd, from_at, set_by, created_at
""")


async def delete_scheduled(
    connection: Connection, channel: str, country: str, from_at: datetime
) -> ScheduledPrice | None:
    """Delete a scheduled price and return it; None when there is none."""
    row = await SQL_DELETE_SCHEDULED.row(connection, channel=channel, country=country, from_at=from_at)
    return None if row is None else ScheduledPrice(*row)


# A price that is being withdrawn in another transaction is skipped.
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
    """Remove and return the due prices, in order; the caller sets them in the same transaction."""
    rows = await SQL_TAKE_DUE.rows(connection, count_max=count_max)
    return [ScheduledPrice(*row) for row in rows]


# Every change of a price raises the tariff's version. Its row is locked before the price, and a transaction
# that changes several prices keeps it locked from the first one on.
SQL_LOCK_TARIFF: Final = Statement("SELECT version FROM tariff FOR NO KEY UPDATE")

SQL_GET_PRICE: Final = Statement("""
SELECT price_usd
  FROM prices
 WHERE channel = %(channel)s
   AND country = %(country)s
   AND status = %(status)s
   FOR NO KEY UPDATE
""")


async def lock_price(
    connection: Connection, channel: str, country: str, status: PriceStatus
) -> Decimal | None:
    """Lock the tariff and a price, and return the price; None when there is none."""
    await SQL_LOCK_TARIFF.rows(connection)
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
    """Delete the announcement of a price that is charged now."""
    await SQL_DELETE_ANNOUNCED.rows(connection, channel=channel, country=country, price_usd=price_usd)
