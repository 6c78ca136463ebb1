"""Commands for destinations and prices."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timezone
from decimal import Decimal
from typing import Any, Final

import click

from tumira.audit_log import Actor
from tumira.cli.output import AmountType, actor, json_option, show, show_all, with_database
from tumira.core import money
from tumira.core.days import LOCAL_TIME
from tumira.core.errors import OperatorError
from tumira.postgres.pool import Database
from tumira.pricing.actions import SCHEDULED_MAX, add_destination, schedule_price, set_price, withdraw_price
from tumira.pricing.destinations import Destination, Price, PriceStatus
from tumira.pricing.store import ScheduledPrice, get_tariff, list_scheduled

NATIONAL_LENGTH_MAX: Final = 14


class MomentType(click.ParamType[datetime]):
    """A moment as ISO 8601 writes it; without a zone it is the time of Harare and Johannesburg."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=timezone(LOCAL_TIME))
            return moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no moment, such as 2030-01-31T06:00 or …T04:00Z.", param, ctx)


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
    await add_destination(database, added, Actor(actor()))
    show(_destination(added), as_json=as_json, title="Destination added.")


@destination.command("list")
@json_option
@with_database
async def destination_list(database: Database, *, as_json: bool) -> None:
    """List the countries."""
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
    show_all([_destination(one) for one in tariff.destinations], as_json=as_json, empty="No destinations.")


@click.group()
def price() -> None:
    """Set and list prices."""


@price.command("set")
@click.option("--channel", default="sms", show_default=True)
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--price", "price_usd", type=AmountType(), required=True, help="USD per segment.")
@click.option(
    "--status",
    type=click.Choice([one.value for one in PriceStatus]),
    default=PriceStatus.ACTIVE.value,
    show_default=True,
)
@json_option
@with_database
async def price_set(
    database: Database, *, channel: str, country: str, price_usd: Decimal, status: str, as_json: bool
) -> None:
    """Set a price; it counts from the next call."""
    new = Price(channel, country, price_usd, PriceStatus(status))
    await set_price(database, new, Actor(actor()))
    show(_price(new), as_json=as_json, title="Price set.")


@price.command("list")
@json_option
@with_database
async def price_list(database: Database, *, as_json: bool) -> None:
    """List all prices."""
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
    show_all([_price(one) for one in tariff.prices], as_json=as_json, empty="No prices.")


@price.command("schedule")
@click.option("--channel", default="sms", show_default=True)
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--price", "price_usd", type=AmountType(), required=True, help="USD per segment.")
@click.option(
    "--from", "from_at", type=MomentType(), required=True, help="As in 2030-01-31T06:00, UTC+02:00."
)
@json_option
@with_database
async def price_schedule_add(
    database: Database, *, channel: str, country: str, price_usd: Decimal, from_at: datetime, as_json: bool
) -> None:
    """Have a price count from a moment on; a worker puts it into force."""
    added = await schedule_price(
        database, channel=channel, country=country, price_usd=price_usd, from_at=from_at, actor=Actor(actor())
    )
    show(_scheduled(added), as_json=as_json, title="Price scheduled.")


@price.command("scheduled")
@json_option
@with_database
async def price_scheduled(database: Database, *, as_json: bool) -> None:
    """List the prices to come."""
    async with database.connection() as connection:
        found = await list_scheduled(connection, SCHEDULED_MAX)
    show_all([_scheduled(one) for one in found], as_json=as_json, empty="No price is to come.")


@price.command("withdraw")
@click.option("--channel", default="sms", show_default=True)
@click.option("--country", required=True, help="Two letters, like ZM.")
@click.option("--from", "from_at", type=MomentType(), required=True, help="From when it would count.")
@json_option
@with_database
async def price_withdraw(
    database: Database, *, channel: str, country: str, from_at: datetime, as_json: bool
) -> None:
    """Withdraw a price to come."""
    withdrawn = await withdraw_price(
        database, channel=channel, country=country, from_at=from_at, actor=Actor(actor())
    )
    show({**_scheduled(withdrawn), "withdrawn": True}, as_json=as_json, title="Price withdrawn.")


def _lengths(text: str) -> tuple[int, ...]:
    parts: Sequence[str] = text.split(",")
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= NATIONAL_LENGTH_MAX for part in parts):
        raise OperatorError(f"--national-length is {text!r}; give the number of digits, like 9, or 8,9.")
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


def _scheduled(one: ScheduledPrice) -> Mapping[str, Any]:
    return {
        "channel": one.channel,
        "country": one.country,
        "price_usd": money.write(one.price_usd),
        "from_at": one.from_at,
        "set_by": one.set_by,
    }
