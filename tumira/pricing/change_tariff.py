"""How does the operator add a country and set a price? Both count from the next call, and both are noted."""

from decimal import Decimal

import asyncpg

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.errors import Trouble
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing import prices
from tumira.pricing import store as price_schedule
from tumira.pricing.destinations import Destination, Price, PriceStatus


async def add_destination(database: Database, destination: Destination, actor: Actor) -> None:
    """Add a country; it can be sent to as soon as it has an active price."""
    try:
        async with database.transaction() as connection:
            if not await prices.insert_destination(connection, destination):
                raise Trouble(f"{destination.country} is a destination already; `tumira destination list`.")
            lengths = ", ".join(map(str, destination.national_lengths))
            detail = (
                f"{destination.name} ({destination.country}), +{destination.calling_code}, {lengths} digits"
            )
            await audit_log.record_by_operator(connection, actor, "destination added", detail)
    except asyncpg.CheckViolationError:
        raise Trouble(
            "A country is two capital letters and a calling code one to four digits, as in "
            "`--country ZM --calling-code 260`."
        ) from None


async def set_price(database: Database, price: Price, actor: Actor) -> None:
    """Set the price of a channel, country and status; it counts from the next call."""
    what = "price set" if price.status is PriceStatus.ACTIVE else "price announced"
    try:
        async with database.transaction() as connection:
            await put(connection, price, actor, what)
    except asyncpg.ForeignKeyViolationError:
        raise Trouble(
            f"{price.country} is not a destination; add it first with `tumira destination add`."
        ) from None
    except asyncpg.CheckViolationError:
        raise Trouble(f"The channel {price.channel} cannot be priced; use sms.") from None


async def put(connection: Connection, price: Price, actor: Actor, what: str, when: str = "") -> None:
    """Set a price, and note who did it and what it was before."""
    before = await price_schedule.hold_price(connection, price.channel, price.country, price.status)
    await prices.set_price(connection, price.channel, price.country, price.status, price.price_usd)
    detail = f"{price.channel} to {price.country}: {in_words(before)} → {in_words(price.price_usd)} USD{when}"
    await audit_log.record_by_operator(connection, actor, what, detail)


def in_words(price: Decimal | None) -> str:
    """Write a price for the records."""
    return "none" if price is None else money.write(price)
