"""Routes: which carrier takes the messages to which network, at what cost; and exchange rates."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.carriers.manage import PRIORITY_DEFAULT
from tumira.carriers.routes import manage, store
from tumira.console.session import OperatorSession, Services, page
from tumira.core.errors import OperatorError
from tumira.core.money import CURRENCY
from tumira.core.translation import _, mark
from tumira.delivery.carrier_health import list_carriers
from tumira.html.forms import TYPED_MAX, Form, FormRefused, TextField, Whole
from tumira.html.redirect import redirect
from tumira.pricing.networks import NAMES, NETWORKS, OTHER, TABLE_DATE
from tumira.pricing.store import get_tariff

ROUTES: Final = "/operator/routes"
# What the form sends for a whole country.
WHOLE: Final = "-"

DONE: Final = {
    "added": mark("Route added. It applies to the next message."),
    "changed": mark("Route changed. It applies to the next message."),
    "removed": mark("Route removed. Waiting messages go where they would go without it."),
    "rate": mark("Exchange rate saved. It applies to segments that are submitted from now on."),
}
_PRIORITY_MAX: Final = 10**9 - 1


class DecimalField(TextField):
    """A plain number such as 0.011; None where the field was left empty."""

    data: Decimal | None  # type: ignore[assignment]

    def convert(self, text: str) -> Decimal | None:
        if not text:
            return None
        found = manage.parse_decimal(text)
        if found is None:
            raise ValueError(_("Enter a number, for example 0.011."))
        return found


class _KeyForm(Form):
    country = TextField(cut=TYPED_MAX)
    network = TextField(cut=TYPED_MAX)
    carrier = TextField(cut=TYPED_MAX)

    @property
    def place(self) -> tuple[str, str | None]:
        """Return the country and the network, which the list of networks holds together."""
        country, _sign, network = self.network.data.partition(WHOLE)
        return (self.country.data or country).upper(), network or None


class RouteForm(_KeyForm):
    priority = Whole(0, _PRIORITY_MAX, cut=TYPED_MAX)
    cost = DecimalField(cut=TYPED_MAX)
    currency = TextField(cut=TYPED_MAX)
    sender = TextField(cut=TYPED_MAX)


class RateForm(Form):
    rate_currency = TextField(cut=TYPED_MAX)
    usd = DecimalField(cut=TYPED_MAX)


def routes(services: Services) -> Sequence[Route]:
    forms = {"": add, "/remove": remove, "/rates": set_rate}
    return page(services, ROUTES, show_routes, forms)


async def show_routes(session: OperatorSession) -> Response:
    routes, losing = await manage.list_routes(session.database)
    carriers = await list_carriers(session.database)
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        rates = await store.list_rates(connection)
    names = tariff.names
    return session.page(
        "routes.html.jinja",
        routes=routes,
        losing=losing,
        health={one.carrier.name: one.health for one in carriers},
        names=names,
        networks=NAMES,
        table_date=TABLE_DATE,
        places=_places(names),
        carriers=[(one.carrier.name, one.carrier.name) for one in carriers],
        currencies=[(one, one) for one in rates],
        rates=[(currency, f"{usd.normalize():f}") for currency, usd in rates.items() if currency != CURRENCY],
        filled={"priority": str(PRIORITY_DEFAULT), "currency": CURRENCY},
        done=DONE,
        write_cost=_write_cost,
    )


def _places(names: Any) -> Sequence[tuple[str, str]]:
    """Return what a route can lead to: each country, and the networks of it that are known."""
    found: list[tuple[str, str]] = []
    for country, name in names.items():
        found.append((country + WHOLE, _("{country}, all networks").format(country=name)))
        known = [one for one in NETWORKS if one.country == country]
        found.extend((f"{country}{WHOLE}{one.key}", f"{name}, {one.name}") for one in known)
        if known:
            found.append((f"{country}{WHOLE}{OTHER}", _("{country}, other networks").format(country=name)))
    return found


def _write_cost(cost: Decimal) -> str:
    """Write a cost without the zeros at its end, but with two decimals at least."""
    whole, _point, decimals = f"{cost.normalize():f}".partition(".")
    return f"{whole}.{decimals:0<2}"


async def add(session: OperatorSession) -> Response:
    form = await RouteForm.accept(session.request)
    country, network = form.place
    with form.blame():
        added = await manage.add_route(
            session.database,
            country=country,
            network=network,
            carrier=form.carrier.data,
            priority=form.priority.data,
            cost=form.cost.data,
            currency=form.currency.data or CURRENCY,
            sender=form.sender.data or None,
            actor=session.actor,
        )
    return redirect(f"{ROUTES}?done={'added' if added else 'changed'}")


async def remove(session: OperatorSession) -> Response:
    form = await _KeyForm.read(session.request)
    country, network = form.place
    try:
        await manage.remove_route(
            session.database,
            country=country,
            network=network,
            carrier=form.carrier.data,
            actor=session.actor,
        )
    except OperatorError as error:
        raise FormRefused({"": str(error)}) from None
    return redirect(ROUTES + "?done=removed")


async def set_rate(session: OperatorSession) -> Response:
    form = await RateForm.accept(session.request)
    with form.blame("usd"):
        await manage.set_rate(
            session.database,
            form.rate_currency.data.upper(),
            form.usd.data or Decimal(0),
            actor=session.actor,
        )
    return redirect(ROUTES + "?done=rate")
