"""Commands for routes, exchange rates and the margin."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import click

from tumira.carriers.manage import PRIORITY_DEFAULT, PRIORITY_MAX
from tumira.carriers.routes import manage, store
from tumira.carriers.routes.rules import CarrierRoute
from tumira.cli.output import actor, choice, database_command, show, show_all, tell, wants_json
from tumira.core.days import local_day
from tumira.core.money import CURRENCY
from tumira.delivery import margin as margins
from tumira.delivery.margin import Margin, MarginBy, month_of
from tumira.postgres.pool import Database


class DecimalType(click.ParamType[Decimal]):
    """A plain number such as 0.011."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        found = value if isinstance(value, Decimal) else manage.parse_decimal(value)
        if found is None:
            self.fail(f"{value!r} is not a number such as 0.011.", param, ctx)
        return found


class MonthType(click.ParamType[date]):
    name = "month"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        found = value if isinstance(value, date) else month_of(value)
        if found is None:
            self.fail(f"{value!r} is not a month, such as 2027-01.", param, ctx)
        return found


NUMBER: Final = DecimalType()


@click.group()
def route() -> None:
    """Route messages to networks over carriers, each at its cost."""


@route.command("add")
@click.option("--country", required=True, help="Two letters, like ZW.")
@click.option("--network", help="Such as econet; the whole country when left out.")
@click.option("--carrier", required=True, help="The carrier's name.")
@click.option(
    "--priority",
    type=click.IntRange(0, PRIORITY_MAX),
    default=PRIORITY_DEFAULT,
    show_default=True,
    help="The lowest is used first, and of one priority the cheapest.",
)
@click.option("--cost", type=NUMBER, help="What the carrier takes for a segment.")
@click.option("--currency", default=CURRENCY, show_default=True, help="The currency of the cost.")
@click.option("--sender", help="What recipients see where a customer has no name; the carrier's without it.")
@database_command
async def route_add(
    database: Database,
    *,
    country: str,
    network: str | None,
    carrier: str,
    priority: int,
    cost: Decimal | None,
    currency: str,
    sender: str | None,
) -> None:
    """Add a route, or change the one of this network and carrier; it counts from the next call."""
    added = await manage.add_route(
        database,
        country=country.upper(),
        network=None if network is None else network.lower(),
        carrier=carrier,
        priority=priority,
        cost=cost,
        currency=currency.upper(),
        sender=sender,
        actor=actor(),
    )
    routes, losing = await manage.list_routes(database)
    key = (carrier, country.upper(), None if network is None else network.lower())
    new = next(one for one in routes if (one.carrier, one.country, one.network) == key)
    if new in losing and not wants_json():
        tell("This route costs more than your price for a segment: every message that takes it loses money.")
    title = "Route added." if added else "Route changed."
    show({**_route(new, is_losing=new in losing), "added": added}, title=title)


@route.command("list")
@database_command
async def route_list(database: Database) -> None:
    """List the routes, by country and network, those used first in front."""
    routes, losing = await manage.list_routes(database)
    show_all(
        [_route(one, is_losing=one in losing) for one in routes],
        empty="No routes: each carrier serves its countries by its priority.",
    )


@route.command("remove")
@click.option("--country", required=True, help="Two letters, like ZW.")
@click.option("--network", help="Such as econet; left out for the route of the whole country.")
@click.option("--carrier", required=True, help="The carrier's name.")
@database_command
async def route_remove(database: Database, *, country: str, network: str | None, carrier: str) -> None:
    """Remove a route; waiting messages go where they would go without it."""
    key = {"country": country.upper(), "network": None if network is None else network.lower()}
    await manage.remove_route(
        database, country=country.upper(), network=key["network"], carrier=carrier, actor=actor()
    )
    show({**key, "carrier": carrier, "removed": True}, title="Route removed.")


def _route(one: CarrierRoute, *, is_losing: bool) -> Mapping[str, Any]:
    return {
        "country": one.country,
        "network": "all" if one.network is None and not wants_json() else one.network,
        "carrier": one.carrier,
        "priority": one.priority,
        "cost": None if one.cost is None else f"{one.cost:f}",
        "currency": one.currency,
        "cost_usd": None if one.cost_usd is None else f"{one.cost_usd:f}",
        "losing": is_losing,
        "sender": one.sender,
    }


@click.group()
def rate() -> None:
    """Set and list exchange rates, for costs that are not in US dollars."""


@rate.command("set")
@click.argument("currency")
@click.argument("usd", type=NUMBER)
@database_command
async def rate_set(database: Database, *, currency: str, usd: Decimal) -> None:
    """Set what one unit of CURRENCY is worth in US dollars, as in `tumira rate set ZAR 0.055`."""
    await manage.set_rate(database, currency.upper(), usd, actor=actor())
    show({"currency": currency.upper(), "usd": f"{usd:f}"}, title="Exchange rate set.")


@rate.command("list")
@database_command
async def rate_list(database: Database) -> None:
    """List the exchange rates."""
    async with database.connection() as connection:
        rates = await store.list_rates(connection)
    show_all([{"currency": currency, "usd": f"{usd.normalize():f}"} for currency, usd in rates.items()])


@click.command()
@click.option("--month", type=MonthType(), help="As in 2027-01; this month when left out.")
@click.option("--by", type=choice(MarginBy), default=MarginBy.CARRIER.value, show_default=True)
@database_command
async def margin(database: Database, *, month: date | None, by: str) -> None:
    """Show what messages cost and earned in a month, the lowest margin first."""
    first_day = (month or local_day(datetime.now(UTC))).replace(day=1)
    last_day = margins.end_of_month(first_day)
    async with database.connection() as connection:
        rows = await margins.read(connection, first_day, last_day, MarginBy(by))
        total = await margins.read_total(connection, first_day, last_day)
    shown = [{by: margins.write_name(one, MarginBy(by)), **_margin(one)} for one in rows]
    if wants_json():
        show({"month": f"{first_day:%Y-%m}", "by": by, "total": _margin(total), "rows": shown})
        return
    show_all([*shown, {by: "total", **_margin(total)}])


def _margin(one: Margin) -> Mapping[str, Any]:
    return {
        "segments": one.segments,
        "unpriced": one.unpriced,
        "revenue": f"{one.revenue:.4f}",
        "cost": f"{one.cost_usd:.6f}",
        "margin": f"{one.margin:.6f}",
    }
