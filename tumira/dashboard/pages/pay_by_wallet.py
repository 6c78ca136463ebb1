"""How does somebody pay by mobile money or card?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.errors import FieldError, OperatorError
from tumira.dashboard.one_press import STALE, new_form_id, read_form_id, was_started
from tumira.dashboard.pages.landing import offers
from tumira.dashboard.pages.top_up import AMOUNTS, PAY_BY_WALLET, path_of
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Form, read_form
from tumira.html.redirect import redirect
from tumira.pricing.store import get_tariff
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.start import start_paynow
from tumira.topups.states import TOP_UP_MAX, TOP_UP_MIN

FIELDS: Final = frozenset({"amount", "wallet", "phone"})
GIVEN_MAX: Final = 40

_ZIMBABWE: Final = "+263"


@dataclass(frozen=True, slots=True)
class Draft:
    """What somebody filled in."""

    amount: str
    wallet: str
    phone: str


def routes(services: Services) -> Sequence[Route]:
    """Return where this page is."""
    return [
        private(services, PAY_BY_WALLET, show),
        private(services, PAY_BY_WALLET, pay, "POST"),
    ]


async def show(session: CustomerSession) -> Response:
    """Show the form, with an amount in it where one was chosen."""
    _check_offered(session)
    query = session.request.query_params
    given = Form({name: query.getlist(name) for name in FIELDS})
    own = session.customer.phone if session.customer.phone.startswith(_ZIMBABWE) else ""
    draft = Draft(
        given.text("amount")[:GIVEN_MAX],
        given.text("wallet")[:GIVEN_MAX] or Wallet.ECOCASH,
        given.text("phone")[:GIVEN_MAX] or own,
    )
    return await _page(session, draft, {})


async def _page(
    session: CustomerSession, draft: Draft, faults: Mapping[str, str], status: int = 200
) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    amount = money.parse(draft.amount)
    return session.page(
        "pay_by_wallet.html.jinja",
        status,
        draft=draft,
        faults=faults,
        form_id=new_form_id(),
        wallets=Wallet,
        amounts=AMOUNTS,
        offers=[one for one in offers(tariff, amount or Decimal(0)) if not one.is_coming],
        amount=amount if amount is not None and TOP_UP_MIN <= amount <= TOP_UP_MAX else None,
        smallest=TOP_UP_MIN,
        largest=TOP_UP_MAX,
    )


async def pay(session: CustomerSession) -> Response:
    """Start a top-up, and lead to it."""
    form = await read_form(session.request)
    _check_offered(session)
    draft = Draft(
        form.text("amount")[:GIVEN_MAX], form.text("wallet")[:GIVEN_MAX], form.text("phone")[:GIVEN_MAX]
    )
    form_id = read_form_id(form.text("form"))
    if form_id is None:
        return await _page(session, draft, {"": STALE}, 409)
    if draft.wallet not in set(Wallet):
        return await _page(session, draft, {"wallet": "Choose one of these."}, 422)
    try:
        top_up_id = await start_paynow(
            session.database,
            session.services.payments,
            session.account_id,
            Wallet(draft.wallet),
            money.parse(draft.amount),
            draft.phone or None,
            top_up_id=form_id,
        )
    except OperatorError as error:
        if await was_started(session.database, session.account_id, form_id):
            return redirect(path_of(form_id))
        return await _page(session, draft, {_field_of(error): str(error)}, 422)
    return redirect(path_of(top_up_id))


def _check_offered(session: CustomerSession) -> None:
    if session.services.payments.paynow is None:
        raise HTTPException(404, "You cannot pay by mobile money or card here")


def _field_of(error: OperatorError) -> str:
    """Return beside which field a fault stands; none is for the whole form."""
    return error.field if isinstance(error, FieldError) and error.field in FIELDS else ""
