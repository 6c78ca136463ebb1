"""How does the operator change destinations and prices?"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import click

from tumira.actions import operate
from tumira.cli.output import AmountType, json_option, show, show_all, with_database
from tumira.errors import Trouble
from tumira.rules import money
from tumira.rules.destinations import Destination, Price, PriceStatus
from tumira.store import prices
from tumira.store.database import Database

NATIONAL_LENGTH_MAX = 14


@click.group()
def destination() -> None:
    """Add and list the countries that can be sent to."""


@destination.command("add")
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--calling-code", required=True, help="Without the plus, like 260.")
@click.option("--name", required=True, help="The country's name.")
@click.option("--national-length", required=True, help="Digits after the calling code, like 9, or 8,9.")
@json_option
@with_database
async def destination_add(
    database: Database, *, country: str, calling_code: str, name: str, national_length: str, as_json: bool
) -> None:
    """Add a country; it can be sent to once it has an active price."""
    added = Destination(country, calling_code.removeprefix("+"), name, _lengths(national_length))
    await operate.add_destination(database, added)
    show(_destination(added), as_json=as_json, title="Destination added.")


@destination.command("list")
@json_option
@with_database
async def destination_list(database: Database, *, as_json: bool) -> None:
    """List the countries."""
    async with database.connection() as connection:
        tariff = await prices.get_tariff(connection)
    show_all([_destination(one) for one in tariff.destinations], as_json=as_json, empty="No destinations.")


@click.group()
def price() -> None:
    """Set and list prices."""


@price.command("set")
@click.option("--channel", default="sms", show_default=True)
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--price", "price_usd", type=AmountType(), required=True, help="USD per segment.")
@click.option("--status", type=click.Choice(list(PriceStatus)), default=PriceStatus.ACTIVE, show_default=True)
@json_option
@with_database
async def price_set(
    database: Database, *, channel: str, country: str, price_usd: Decimal, status: str, as_json: bool
) -> None:
    """Set a price; it counts from the next call."""
    new = Price(channel, country, price_usd, PriceStatus(status))
    await operate.set_price(database, new)
    show(_price(new), as_json=as_json, title="Price set.")


@price.command("list")
@json_option
@with_database
async def price_list(database: Database, *, as_json: bool) -> None:
    """List all prices."""
    async with database.connection() as connection:
        tariff = await prices.get_tariff(connection)
    show_all([_price(one) for one in tariff.prices], as_json=as_json, empty="No prices.")


def _lengths(text: str) -> tuple[int, ...]:
    parts: Sequence[str] = text.split(",")
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= NATIONAL_LENGTH_MAX for part in parts):
        raise Trouble(f"--national-length is {text!r}; give the number of digits, like 9, or 8,9.")
    return tuple(int(part) for part in parts)


def _destination(one: Destination) -> Mapping[str, Any]:
    return {
        "country": one.country,
        "calling_code": one.calling_code,
        "name": one.name,
        "national_lengths": list(one.national_lengths),
    }


def _price(one: Price) -> Mapping[str, Any]:
    return {
        "channel": one.channel,
        "country": one.country,
        "price_usd": money.write(one.price_usd),
        "status": str(one.status),
    }
