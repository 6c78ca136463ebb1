"""Which countries do we reach, and at which price?"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff

# One statement, so that version and rows are of one moment.
SQL_TARIFF: Final = Statement("""
SELECT (SELECT version FROM tariff) AS version,
       d.country, d.calling_code, d.name, d.national_lengths, p.channel, p.status, p.price_usd
  FROM destinations d
  LEFT JOIN prices p ON p.country = d.country
 ORDER BY d.created_at, d.country, p.status, p.created_at
""")


async def get_tariff(connection: Connection) -> Tariff:
    """Read all destinations and prices."""
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
    return Tariff(rows[0]["version"], list(destinations.values()), prices)


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
    """Set the one price of this channel, country and status."""
    await SQL_SET_PRICE.rows(connection, channel=channel, country=country, status=status, price_usd=price_usd)


SQL_LIST_COUNTRIES: Final = Statement("SELECT country FROM destinations ORDER BY country")


async def list_countries(connection: Connection) -> Sequence[str]:
    """Return the countries that messages may go to, priced or not."""
    return [row["country"] for row in await SQL_LIST_COUNTRIES.rows(connection)]
