"""The public pages: prices and ways to pay, content policy, terms, privacy and contact."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.content.store import KEPT as REFUSALS_KEPT
from tumira.core.settings.payments import Payments
from tumira.core.translation import mark
from tumira.dashboard.session import Services
from tumira.html.sign_in import public
from tumira.identity.store.sessions import DAYS_MAX
from tumira.pricing.destinations import PriceStatus, Tariff
from tumira.pricing.phone_numbers import DIGITS_LEFT, NUMBERS_KEPT
from tumira.pricing.store import get_tariff
from tumira.sending.lifecycle import TEXT_KEPT
from tumira.topups.start import list_issuers
from tumira.topups.states import TOP_UP_MIN
from tumira.topups.voucher_pins import Issuer

SMALLEST_TOP_UP: Final = TOP_UP_MIN
NO_CACHE: Final = {"Cache-Control": "no-cache"}
# Names, the same in every language but for the cards.
WALLETS: Final = ("EcoCash", "OneMoney", "InnBucks", mark("Visa or Mastercard"))
USDT: Final = "USDT (BEP20)"
ALL_METHODS: Final = ("EcoCash", "OneMoney", mark("Visa or Mastercard"), USDT, mark("Vouchers"))
# A text that may be sent, beside one that is refused. Messages of customers are not translated.
POLICY_EXAMPLES: Final = (
    ("Your order 1042 is on its way.", "Your order 1042 is on its way. Get 20% off your next order!"),
    (
        "Wallet: you received USD 20.00. Balance USD 31.40.",
        "Wallet: send USD 20 this week and get USD 1 back.",
    ),
    (
        "Dear parent, term 2 fees of USD 120 are due on 6 May.",
        "Dear parent, enrolment for 2027 is open. Limited places, visit our open day on Saturday.",
    ),
    (
        "Your loan: the instalment of R412 is due on 25 June.",
        "Your loan: you qualify for up to R15 000 more. Dial *120*555#.",
    ),
    ("Pharmacy: you have 312 points worth R31.20.", "Pharmacy: 3 for 2 on all vitamins until Sunday."),
    ("Mari yenyu USD 20 yapinda muwallet.", "Hwina USD 100 nhasi! Tumira WIN ku 32100."),
    (
        "Iphasela lakho selifikile, lilande ngaphambi koLwesihlanu.",
        "Uwine! Thenga idatha ka-R29 namuhla uthole i-2GB mahhala.",
    ),
    ("Jou afspraak by die kliniek is Dinsdag 10:00.", "Koop nou en kry 30% afslag op alle skoene."),
)


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


def payment_methods(payments: Payments, issuers: Sequence[Issuer]) -> Sequence[str]:
    """Name the ways to pay that the operator has set up."""
    return [
        *(WALLETS if payments.paynow else ()),
        *((USDT,) if payments.usdt else ()),
        *(issuer.title for issuer in issuers),
    ]


def routes(services: Services) -> Sequence[Route]:
    return [
        public(services, "/", show_landing),
        public(services, "/contact", show_contact),
        public(services, "/content-policy", show_content_policy),
        public(services, "/terms", show_terms),
        public(services, "/privacy", show_privacy),
    ]


async def show_landing(services: Services, _request: Request) -> Response:
    async with services.database.connection() as connection:
        tariff = await get_tariff(connection)
        issuers = await list_issuers(connection, services.payments)
    methods = payment_methods(services.payments, issuers)
    return services.templates.page(
        "landing.html.jinja",
        headers=NO_CACHE,
        offers=offers(tariff, SMALLEST_TOP_UP),
        smallest=SMALLEST_TOP_UP,
        methods=methods or ALL_METHODS,
        is_payable=bool(methods),
        public_url=services.public_url,
    )


async def show_contact(services: Services, _request: Request) -> Response:
    return services.templates.page("contact.html.jinja", headers=NO_CACHE, seller=services.seller)


async def show_terms(services: Services, _request: Request) -> Response:
    return services.templates.page(
        "terms.html.jinja", headers=NO_CACHE, smallest=SMALLEST_TOP_UP, seller=services.seller
    )


async def show_privacy(services: Services, _request: Request) -> Response:
    return services.templates.page(
        "privacy.html.jinja",
        headers=NO_CACHE,
        seller=services.seller,
        text_days=TEXT_KEPT.days,
        number_days=NUMBERS_KEPT.days,
        digits_left=DIGITS_LEFT,
        keep_weeks=services.keep_weeks,
        refusal_days=REFUSALS_KEPT.days,
        session_days=DAYS_MAX,
    )


async def show_content_policy(services: Services, _request: Request) -> Response:
    return services.templates.page("content_policy.html.jinja", headers=NO_CACHE, examples=POLICY_EXAMPLES)
