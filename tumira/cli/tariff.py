"""Commands for destinations and prices."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Final

import click

from tumira.cli.output import AmountType, TimeType, actor, choice, database_command, show, show_all
from tumira.core.days import LOCAL_TIME
from tumira.core.errors import OperatorError
from tumira.postgres.pool import Database
from tumira.pricing.actions import SCHEDULED_MAX, add_destination, schedule_price, set_price, withdraw_price
from tumira.pricing.destinations import Destination, Price, PriceStatus
from tumira.pricing.store import ScheduledPrice, get_tariff, list_scheduled

NATIONAL_LENGTH_MAX: Final = 14
# Without a zone it is the time of Harare and Johannesburg.
MOMENT: Final = TimeType(
    "moment", timezone(LOCAL_TIME), "is no moment, such as 2030-01-31T06:00 or …T04:00Z."
)


@click.group()
def destination() -> None:
    """Add and list the countries that can be sent to."""


@destination.command("add")
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--calling-code", required=True, help="Without the plus, like 260.")
@click.option("--name", required=True, help="The country's name.")
@click.option("--national-length", required=True, help="Digits after the calling code, like 9, or 8,9.")
@database_command
async def destination_add(
    database: Database, *, country: str, calling_code: str, name: str, national_length: str
) -> None:
    """Add a country; it can be sent to once it has an active price."""
    added = Destination(country, calling_code.removeprefix("+"), name, _lengths(national_length))
    await add_destination(database, added, actor())
    show(asdict(added), title="Destination added.")


@destination.command("list")
@database_command
async def destination_list(database: Database) -> None:
    """List the countries."""
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
    show_all([asdict(one) for one in tariff.destinations], empty="No destinations.")


@click.group()
def price() -> None:
    """Set and list prices."""


@price.command("set")
@click.option("--channel", default="sms", show_default=True)
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--price", "price_usd", type=AmountType(), required=True, help="USD per segment.")
@click.option("--status", type=choice(PriceStatus), default=PriceStatus.ACTIVE.value, show_default=True)
@database_command
async def price_set(
    database: Database, *, channel: str, country: str, price_usd: Decimal, status: str
) -> None:
    """Set a price; it counts from the next call."""
    new = Price(channel, country, price_usd, PriceStatus(status))
    await set_price(database, new, actor())
    show(asdict(new), title="Price set.")


@price.command("list")
@database_command
async def price_list(database: Database) -> None:
    """List all prices."""
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
    show_all([asdict(one) for one in tariff.prices], empty="No prices.")


@price.command("schedule")
@click.option("--channel", default="sms", show_default=True)
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--price", "price_usd", type=AmountType(), required=True, help="USD per segment.")
@click.option("--from", "from_at", type=MOMENT, required=True, help="As in 2030-01-31T06:00, UTC+02:00.")
@database_command
async def price_schedule_add(
    database: Database, *, channel: str, country: str, price_usd: Decimal, from_at: datetime
) -> None:
    """Have a price count from a moment on; a worker puts it into force."""
    added = await schedule_price(
        database, channel=channel, country=country, price_usd=price_usd, from_at=from_at, actor=actor()
    )
    show(_scheduled(added), title="Price scheduled.")


@price.command("scheduled")
@database_command
async def price_scheduled(database: Database) -> None:
    """List the prices to come."""
    async with database.connection() as connection:
        found = await list_scheduled(connection, SCHEDULED_MAX)
    show_all([_scheduled(one) for one in found], empty="No price is to come.")


@price.command("withdraw")
@click.option("--channel", default="sms", show_default=True)
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--from", "from_at", type=MOMENT, required=True, help="From when it would count.")
@database_command
async def price_withdraw(database: Database, *, channel: str, country: str, from_at: datetime) -> None:
    """Withdraw a price to come."""
    withdrawn = await withdraw_price(
        database, channel=channel, country=country, from_at=from_at, actor=actor()
    )
    show({**_scheduled(withdrawn), "withdrawn": True}, title="Price withdrawn.")


def _lengths(text: str) -> tuple[int, ...]:
    parts: Sequence[str] = text.split(",")
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= NATIONAL_LENGTH_MAX for part in parts):
        raise OperatorError(f"--national-length is {text!r}; give the number of digits, like 9, or 8,9.")
    return tuple(int(part) for part in parts)


def _scheduled(one: ScheduledPrice) -> Mapping[str, Any]:
    values = asdict(one)
    del values["created_at"]
    return values
