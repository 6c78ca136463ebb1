"""The front page: what the service is, what it costs, and how to begin."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.dashboard.session import Services
from tumira.html.sign_in import public
from tumira.pricing.destinations import PriceStatus, Tariff
from tumira.pricing.store import get_tariff

SMALLEST_TOP_UP: Final = Decimal(5)


@dataclass(frozen=True, slots=True)
class PriceOffer:
    """What a segment to a country costs, now or soon, and how many the smallest top-up buys."""

    country: str
    price: Decimal
    is_coming: bool
    buys: int


def offers(tariff: Tariff, amount: Decimal) -> Sequence[PriceOffer]:
    """List all prices, each country's present one first, with what an amount buys."""
    names = tariff.names
    found = [
        PriceOffer(
            names[price.country],
            price.price_usd,
            price.status is PriceStatus.COMING_SOON,
            int(amount / price.price_usd) if price.price_usd else 0,
        )
        for price in tariff.prices
        if price.channel == "sms"
    ]
    places = list(names.values())
    return sorted(found, key=lambda offer: (places.index(offer.country), offer.is_coming))


def routes(services: Services) -> Sequence[Route]:
    return [public(services, "/", show_landing)]


async def show_landing(services: Services, _request: Request) -> Response:
    async with services.database.connection() as connection:
        tariff = await get_tariff(connection)
    return services.templates.page(
        "landing.html.jinja",
        headers={"Cache-Control": "no-cache"},
        offers=offers(tariff, SMALLEST_TOP_UP),
        smallest=SMALLEST_TOP_UP,
        public_url=services.public_url,
    )
