"""How does money come to an account, and what does an amount buy?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.dashboard.pages.landing import SMALLEST_TOP_UP, Offer, offers
from tumira.dashboard.visits import Services, Visit, private
from tumira.html.forms import Form
from tumira.html.layout import write_usd
from tumira.rules import money
from tumira.rules.destinations import Tariff
from tumira.store import prices

TOP_UP: Final = "/dashboard/top-up"
AMOUNTS: Final = tuple(map(Decimal, (5, 10, 20, 50, 100)))

_CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Method:
    """A way to pay: its name, what somebody needs for it, and the page on which it begins."""

    name: str
    needs: str
    path: str


# Those for which the operator has set a provider up.
METHODS: Final[Sequence[Method]] = ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """What an amount buys, in each country that can be sent to."""

    amount: Decimal
    offers: Sequence[Offer]


def routes(services: Services) -> Sequence[Route]:
    """Return where this page is."""
    return [private(services, TOP_UP, show_top_up)]


async def show_top_up(visit: Visit) -> Response:
    """Show the ways to pay, and what amounts buy."""
    query = visit.request.query_params
    given = Form({"amount": query.getlist("amount")}).text("amount")
    amount, faults = _read_amount(given)
    async with visit.services.database.connection() as connection:
        tariff = await prices.get_tariff(connection)
    return visit.page(
        "top_up.html.jinja",
        422 if faults else 200,
        methods=METHODS,
        bundles=[_bundle(tariff, one) for one in AMOUNTS],
        chosen=None if amount is None else _bundle(tariff, amount),
        given=given,
        faults=faults,
        smallest=SMALLEST_TOP_UP,
    )


def _read_amount(given: str) -> tuple[Decimal | None, Mapping[str, str]]:
    if not given:
        return None, {}
    amount = money.parse(given)
    if amount is None or amount % _CENT:
        return None, {"amount": "Write the amount in US dollars, like 5 or 12.50."}
    if amount < SMALLEST_TOP_UP:
        return None, {"amount": f"The smallest top-up is {write_usd(SMALLEST_TOP_UP)}."}
    return amount, {}


def _bundle(tariff: Tariff, amount: Decimal) -> Bundle:
    return Bundle(amount, [one for one in offers(tariff, amount) if not one.is_coming])
