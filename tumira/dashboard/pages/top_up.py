"""Top up: the ways to pay, what an amount buys, and the latest top-ups."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import TOP_UP as TOP_UP_PREFIX
from tumira.core.ids import TopUpId, read_id, write_id
from tumira.core.settings.payments import Payments
from tumira.dashboard.pages.landing import SMALLEST_TOP_UP, PriceOffer, offers
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html import top_up_words
from tumira.html.forms import TYPED_MAX, Faults, Form, TextField
from tumira.html.page import write_usd
from tumira.html.redirect import redirect
from tumira.pricing.destinations import Tariff
from tumira.pricing.store import get_tariff
from tumira.topups import start as start_voucher
from tumira.topups import store as top_ups
from tumira.topups.voucher_pins import Issuer

TOP_UP: Final = "/dashboard/top-up"
PAY_BY_WALLET: Final = TOP_UP + "/wallet"
PAY_BY_USDT: Final = TOP_UP + "/usdt"
PAY_BY_VOUCHER: Final = TOP_UP + "/voucher"
AMOUNTS: Final = tuple(map(Decimal, (5, 10, 20, 50, 100)))
PAGE: Final = 20

_CENT: Final = Decimal("0.01")

STALE: Final = "This page was open for very long. Check it, and press again."


class AmountForm(Form):
    amount = TextField(cut=TYPED_MAX)


@dataclass(frozen=True, slots=True)
class WayToPay:
    """A way to pay: its name, what it needs, and the page on which it begins."""

    name: str
    needs: str
    link: str
    path: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """What an amount buys, in each country that can be sent to."""

    amount: Decimal
    offers: Sequence[PriceOffer]


def routes(services: Services) -> Sequence[Route]:
    return [private(services, TOP_UP, show_top_up)]


def path_of(top_up_id: TopUpId) -> str:
    return f"{TOP_UP}/{write_id(TOP_UP_PREFIX, top_up_id)}"


async def show_top_up(session: CustomerSession) -> Response:
    given = AmountForm.parse_query(session.request).amount.data
    amount, faults = _read_amount(given)
    before = _read_before(session)
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        issuers = await start_voucher.list_issuers(connection, session.services.payments)
        found = await top_ups.list_of_account(
            connection, session.account_id, PAGE + 1, before or top_ups.LAST
        )
    return session.page(
        "top_up.html.jinja",
        422 if faults else 200,
        ways=_ways(session.services.payments, issuers),
        bundles=[_bundle(tariff, one) for one in AMOUNTS],
        chosen=None if amount is None else _bundle(tariff, amount),
        given=given,
        faults=faults,
        smallest=SMALLEST_TOP_UP,
        top_ups=found[:PAGE],
        words=top_up_words,
        path_of=path_of,
        is_first=before is None,
        older=write_id(TOP_UP_PREFIX, found[PAGE - 1].id) if len(found) > PAGE else None,
    )


async def start_once(
    session: CustomerSession, form: Form, form_id: TopUpId, starting: Awaitable[TopUpId]
) -> Response | Faults:
    """Start a top-up and lead to it; return what is wrong, beside its field or for the whole form."""
    try:
        return redirect(path_of(await starting))
    except OperatorError as error:
        async with session.database.connection() as connection:
            found = await top_ups.find(connection, session.account_id, form_id)
        if found is not None:
            # This form was posted before: what is wrong with it now was not wrong then.
            return redirect(path_of(form_id))
        field = error.field if isinstance(error, FieldError) and error.field in form else ""
        return {field: str(error)}


def _ways(payments: Payments, issuers: Sequence[Issuer]) -> Sequence[WayToPay]:
    ways = []
    if payments.paynow is not None:
        ways.append(
            WayToPay(
                "Mobile money or card",
                "EcoCash, OneMoney or InnBucks on a number in Zimbabwe, or a bank card, through Paynow.",
                "Pay by mobile money or card",
                PAY_BY_WALLET,
            )
        )
    if payments.usdt is not None:
        ways.append(
            WayToPay(
                "USDT",
                "From any wallet or exchange that sends USDT on BNB Smart Chain (BEP20), to an address of "
                "your own.",
                "Pay with USDT",
                PAY_BY_USDT,
            )
        )
    if issuers:
        titles = [issuer.title for issuer in issuers]
        listed = " or ".join(filter(None, (", ".join(titles[:-1]), titles[-1])))
        ways.append(WayToPay("Voucher", f"The PIN of a {listed}.", "Redeem a voucher", PAY_BY_VOUCHER))
    return ways


def _read_before(session: CustomerSession) -> TopUpId | None:
    text = session.request.query_params.get("before")
    if text is None:
        return None
    before = read_id(TOP_UP_PREFIX, text)
    if before is None:
        raise HTTPException(404, "There is no such page")
    return TopUpId(before)


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
