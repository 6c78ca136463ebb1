"""Adds, removes and lists routes, and sets exchange rates."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from tumira import audit_log
from tumira.audit_log import OPERATOR, Actor
from tumira.carriers import store as carriers
from tumira.carriers.manage import check_priority, get_carrier
from tumira.carriers.routes import store
from tumira.carriers.routes.rules import CarrierRoute, list_losing
from tumira.carriers.store import Carrier
from tumira.carriers.url import read_source
from tumira.core.errors import FieldError, OperatorError
from tumira.core.money import CURRENCY
from tumira.core.translation import _
from tumira.postgres import migrate, nodes
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.networks import list_networks, write_network
from tumira.pricing.store import get_tariff

COST_MAX: Final = Decimal(1000)
RATE_MAX: Final = Decimal(1_000_000)
RATE_MIN: Final = Decimal("0.00000001")
# Older nodes know nothing of queues by network: their workers would leave such messages waiting.
MIGRATION: Final = "routes"

_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_PLAIN: Final = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,8})?")
_COST_DECIMALS: Final = 6


def parse_decimal(text: str) -> Decimal | None:
    """Read a cost or a rate such as `0.011`; None for anything else."""
    return Decimal(text) if _PLAIN.fullmatch(text) else None


async def add_route(
    database: Database,
    *,
    country: str,
    network: str | None,
    carrier: str,
    priority: int,
    cost: Decimal | None,
    currency: str = CURRENCY,
    sender: str | None = None,
    actor: Actor = OPERATOR,
) -> bool:
    """Add a route, or change the one of this network and carrier, and tell whether it is new.

    Messages are routed by it from the next call on.
    """
    check_priority(priority)
    if cost is not None and not _is_cost(cost):
        text = _("Enter a cost from 0 to {most} with at most six decimals, for example 0.011.")
        raise FieldError("cost", text.format(most=COST_MAX))
    if sender is not None:
        try:
            read_source(_("The sender"), sender)
        except ValueError as error:
            raise FieldError("sender", str(error)) from None
    async with database.transaction() as connection:
        await _check_network(connection, country, network)
        found = await _find(connection, country, carrier)
        if currency not in await store.list_rates(connection):
            text = _(
                "There is no exchange rate for {currency}. Set it first, as in: tumira rate set ZAR 0.055."
            )
            named = currency if _CURRENCY.fullmatch(currency) else _("this currency")
            raise FieldError("currency", text.format(currency=named))
        if network is not None:
            await _refuse_beside_older(connection)
        is_new = await store.upsert(
            connection,
            country=country,
            network=network,
            carrier_id=found.id,
            priority=priority,
            cost=cost,
            currency=currency,
            sender=sender,
        )
        price = "cost not known" if cost is None else f"{cost:f} {currency} a segment"
        detail = f"{_describe(country, network)} by {carrier}: priority {priority}, {price}"
        if sender is not None:
            detail += f", sender {sender}"
        await audit_log.record_by_operator(
            connection, actor, "route added" if is_new else "route changed", detail
        )
    return is_new


async def remove_route(
    database: Database, *, country: str, network: str | None, carrier: str, actor: Actor = OPERATOR
) -> None:
    """Remove a route; waiting messages go where they would go without it."""
    found = await get_carrier(database, carrier)
    async with database.transaction() as connection:
        if not await store.delete(connection, country, network, found.id):
            raise OperatorError(_("There is no such route. `tumira route list` shows all routes."))
        detail = f"{_describe(country, network)} by {carrier}"
        await audit_log.record_by_operator(connection, actor, "route removed", detail)


async def list_routes(database: Database) -> tuple[Sequence[CarrierRoute], Sequence[CarrierRoute]]:
    """Return all routes, and those of them that cost more than the price of their country."""
    async with database.connection() as connection:
        routes = await store.list_routes(connection)
        tariff = await get_tariff(connection)
    return routes, [route for route, _price in list_losing(routes, tariff.prices)]


async def set_rate(database: Database, currency: str, usd: Decimal, *, actor: Actor = OPERATOR) -> None:
    """Set what a unit of a currency is worth in US dollars, for segments that are submitted from now on."""
    if not _CURRENCY.fullmatch(currency) or currency == CURRENCY:
        raise FieldError(
            "rate_currency", _("Enter a currency of three letters other than USD, for example ZAR.")
        )
    if not RATE_MIN <= usd <= RATE_MAX:
        text = _("Enter what one unit is worth in US dollars, up to {most}, for example 0.055.")
        raise FieldError("usd", text.format(most=RATE_MAX))
    async with database.transaction() as connection:
        await store.set_rate(connection, currency, usd)
        await audit_log.record_by_operator(
            connection, actor, "exchange rate set", f"1 {currency} = {usd:f} USD"
        )


def _is_cost(cost: Decimal) -> bool:
    exponent = cost.as_tuple().exponent
    return 0 <= cost <= COST_MAX and isinstance(exponent, int) and -exponent <= _COST_DECIMALS


def _describe(country: str, network: str | None) -> str:
    return country if network is None else f"{country}, {write_network(network)}"


async def _check_network(connection: Connection, country: str, network: str | None) -> None:
    destinations = [one.country for one in (await get_tariff(connection)).destinations]
    if country not in destinations:
        text = _("Choose a country that you can send to: {known}.")
        raise FieldError("country", text.format(known=", ".join(sorted(destinations))))
    known = list_networks(country)
    if network is not None and network not in known:
        text = _("Choose a network of {country}: {known}. Leave it out for the whole country.")
        if not known:
            text = _("The networks of {country} are not known. Leave the network out for the whole country.")
        raise FieldError("network", text.format(country=country, known=", ".join(known)))


async def _find(connection: Connection, country: str, name: str) -> Carrier:
    # Locked, so that it is not removed meanwhile.
    found = await carriers.find(connection, name, lock=True)
    if found is None:
        raise FieldError("carrier", _("Choose a carrier from the list. `tumira carrier list` shows all."))
    if not found.covers(country):
        text = _("{carrier} does not serve {country}. Add the country to the carrier first.")
        raise FieldError("carrier", text.format(carrier=name, country=country))
    return found


async def _refuse_beside_older(connection: Connection) -> None:
    step = next(one.number for one in migrate.known() if one.name.endswith(f"_{MIGRATION}_pre"))
    older = await nodes.list_older(connection, step)
    if older:
        text = _("A node of an older version still runs ({node}). Add routes to networks after the upgrade.")
        raise OperatorError(text.format(node=older[0].id))
