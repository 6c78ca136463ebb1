"""Top up: the amount and what it buys, the ways to pay, and the latest payments."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import TOP_UP as TOP_UP_PREFIX
from tumira.core.ids import TopUpId, write_id
from tumira.core.settings.payments import Payments
from tumira.core.translation import _, mark
from tumira.dashboard.pages.landing import PriceOffer, offers
from tumira.dashboard.session import TOP_UP, CustomerSession, Services, private
from tumira.html import top_up_words
from tumira.html.forms import (
    NOT_AN_AMOUNT,
    TYPED_MAX,
    Faults,
    Form,
    TextField,
    read_path_id,
    read_query_id,
)
from tumira.html.redirect import redirect
from tumira.pricing.destinations import Tariff
from tumira.pricing.store import get_tariff
from tumira.topups import start as start_voucher
from tumira.topups import store as top_ups
from tumira.topups.states import TOP_UP_MAX, TOP_UP_MIN, TopUp
from tumira.topups.voucher_pins import Issuer

PAY_BY_WALLET: Final = TOP_UP + "/wallet"
PAY_BY_USDT: Final = TOP_UP + "/usdt"
PAY_BY_VOUCHER: Final = TOP_UP + "/voucher"
AMOUNTS: Final = tuple(map(Decimal, (5, 10, 20, 50, 100)))
PAGE: Final = 20

_CENT: Final = Decimal("0.01")

STALE: Final = mark("This page was open for too long. Check your entries and send the form again.")


class AmountForm(Form):
    amount = TextField(cut=TYPED_MAX)


@dataclass(frozen=True, slots=True)
class WayToPay:
    """A way to pay: what people know it by, what happens next, and the page on which it begins."""

    name: str
    next_step: str
    link: str
    path: str


def routes(services: Services) -> Sequence[Route]:
    return [private(services, TOP_UP, show_top_up)]


def path_of(top_up_id: TopUpId) -> str:
    return f"{TOP_UP}/{write_id(TOP_UP_PREFIX, top_up_id)}"


async def show_top_up(session: CustomerSession) -> Response:
    given = AmountForm.parse_query(session.request).amount.data
    amount = suggest_amount(given)
    faults = {"amount": _(NOT_AN_AMOUNT)} if given and money.parse(given) is None else {}
    before = read_query_id(session.request, TOP_UP_PREFIX, "before")
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        issuers = await start_voucher.list_issuers(connection, session.services.payments)
        found = await top_ups.list_of_account(
            connection, session.account_id, PAGE + 1, TopUpId(before) if before else top_ups.LAST
        )
    return session.page(
        "top_up.html.jinja",
        422 if faults else 200,
        ways=_ways(session.services.payments, issuers),
        given=given if amount is None else amount,
        faults=faults,
        top_ups=found[:PAGE],
        words=top_up_words,
        path_of=path_of,
        is_first=before is None,
        older=write_id(TOP_UP_PREFIX, found[PAGE - 1].id) if len(found) > PAGE else None,
        **amount_values(tariff, amount),
    )


def suggest_amount(given: str) -> Decimal | None:
    """Return the amount to fill in for a missing amount: whole cents, within what can be topped up.

    None for what is no amount.
    """
    amount = money.parse(given)
    return None if amount is None else min(max(TOP_UP_MIN, amount), TOP_UP_MAX).quantize(_CENT, ROUND_CEILING)


def amount_values(tariff: Tariff, amount: Decimal | None) -> Mapping[str, object]:
    """Return what the field for an amount shows: its bounds, amounts to choose from, and what it buys."""
    return {
        "amount": amount,
        "amounts": AMOUNTS,
        "smallest": TOP_UP_MIN,
        "largest": TOP_UP_MAX,
        "offers": _active(tariff, amount or Decimal(0)),
    }


def _active(tariff: Tariff, amount: Decimal) -> Sequence[PriceOffer]:
    return [one for one in offers(tariff, amount) if not one.is_coming]


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


async def find_top_up(session: CustomerSession) -> TopUp:
    """Return the account's top-up that the address names; answer 404 for another account's."""
    missing = _("This payment does not exist")
    top_up_id = TopUpId(read_path_id(session.request, TOP_UP_PREFIX, missing))
    async with session.database.connection() as connection:
        top_up = await top_ups.find(connection, session.account_id, top_up_id)
    if top_up is None:
        raise HTTPException(404, missing)
    return top_up


def _ways(payments: Payments, issuers: Sequence[Issuer]) -> Sequence[WayToPay]:
    ways = []
    if payments.paynow is not None:
        ways.append(
            WayToPay(
                _("EcoCash, OneMoney, InnBucks or card"),
                _("Confirm on your phone, or enter your card on the secure page of Paynow."),
                _("Pay with mobile money or card"),
                PAY_BY_WALLET,
            )
        )
    if payments.usdt is not None:
        ways.append(
            WayToPay(
                "USDT",
                _("Send USDT on BNB Smart Chain (BEP20) from any wallet or exchange to your own address."),
                _("Pay with USDT"),
                PAY_BY_USDT,
            )
        )
    if issuers:
        ways.append(
            WayToPay(
                _any_of([_(issuer.title) for issuer in issuers]),
                _("Enter the PIN of the voucher. Its value is added to your balance."),
                _("Redeem a voucher"),
                PAY_BY_VOUCHER,
            )
        )
    return ways


def _any_of(names: Sequence[str]) -> str:
    *others, last = names
    return _("{others} or {last}").format(others=", ".join(others), last=last) if others else last
