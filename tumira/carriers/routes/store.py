"""Routes and exchange rates."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from tumira.carriers.routes.rules import CarrierRoute
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

SQL_LIST: Final = Statement("""
SELECT routes.carrier_id, carriers.name, routes.country, routes.network, routes.priority, routes.cost,
       routes.currency, rates.usd, routes.sender
  FROM routes
  JOIN carriers ON carriers.id = routes.carrier_id
  JOIN rates ON rates.currency = routes.currency
 ORDER BY routes.country, routes.network NULLS LAST, routes.priority, routes.cost * rates.usd, carriers.name
""")


async def list_routes(connection: Connection) -> Sequence[CarrierRoute]:
    """Return all routes, by country and network, the first in use in front."""
    return [CarrierRoute(*row) for row in await SQL_LIST.rows(connection)]


# A row without an xmax was inserted.
SQL_UPSERT: Final = Statement("""
INSERT INTO routes (country, network, carrier_id, priority, cost, currency, sender)
VALUES (%(country)s, %(network)s, %(carrier_id)s, %(priority)s, %(cost)s, %(currency)s, %(sender)s)
    ON CONFLICT (country, network, carrier_id) DO UPDATE
   SET priority = excluded.priority, cost = excluded.cost, currency = excluded.currency,
       sender = excluded.sender
RETURNING xmax = 0
""")


async def upsert(
    connection: Connection,
    *,
    country: str,
    network: str | None,
    carrier_id: int,
    priority: int,
    cost: Decimal | None,
    currency: str,
    sender: str | None,
) -> bool:
    """Add a route or change the one of this network and carrier, and tell whether it is new."""
    is_new = await SQL_UPSERT.value(
        connection,
        country=country,
        network=network,
        carrier_id=carrier_id,
        priority=priority,
        cost=cost,
        currency=currency,
        sender=sender,
    )
    return bool(is_new)


SQL_DELETE: Final = Statement("""
DELETE FROM routes
 WHERE country = %(country)s
   AND network IS NOT DISTINCT FROM %(network)s
   AND carrier_id = %(carrier_id)s
RETURNING 1
""")


async def delete(connection: Connection, country: str, network: str | None, carrier_id: int) -> bool:
    found = await SQL_DELETE.value(connection, country=country, network=network, carrier_id=carrier_id)
    return found is not None


SQL_DELETE_OF_CARRIER: Final = Statement("""
DELETE FROM routes USING carriers WHERE carriers.id = routes.carrier_id AND carriers.name = %(name)s
""")


async def delete_of_carrier(connection: Connection, name: str) -> None:
    await SQL_DELETE_OF_CARRIER.rows(connection, name=name)


SQL_RATES: Final = Statement("SELECT currency, usd FROM rates ORDER BY currency")


async def list_rates(connection: Connection) -> Mapping[str, Decimal]:
    """Return what a unit of each currency is worth in US dollars."""
    return {row["currency"]: row["usd"] for row in await SQL_RATES.rows(connection)}


SQL_SET_RATE: Final = Statement("""
INSERT INTO rates (currency, usd)
VALUES (%(currency)s, %(usd)s)
    ON CONFLICT (currency) DO UPDATE SET usd = excluded.usd, set_at = clock_timestamp()
""")


async def set_rate(connection: Connection, currency: str, usd: Decimal) -> None:
    await SQL_SET_RATE.rows(connection, currency=currency, usd=usd)
