"""Pay by mobile money or card, through Paynow."""

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.ids import TOP_UP, TopUpId
from tumira.core.translation import _, mark
from tumira.dashboard.pages.top_up import PAY_BY_WALLET, STALE, amount_values, start_once, suggest_amount
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import TYPED_MAX, Choice, Faults, Form, FormId, TextField, new_form_id
from tumira.pricing.store import get_tariff
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.start import start_paynow
from tumira.topups.states import TOP_UP_MAX, TOP_UP_MIN

_ZIMBABWE: Final = "+263"


class WalletForm(Form):
    amount = TextField(cut=TYPED_MAX)
    wallet = Choice(Wallet, mark("Choose how to pay."), cut=TYPED_MAX)
    phone = TextField(cut=TYPED_MAX)
    form = FormId(TOP_UP)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, PAY_BY_WALLET, show),
        private(services, PAY_BY_WALLET, pay, "POST"),
    ]


async def show(session: CustomerSession) -> Response:
    _check_offered(session)
    given = WalletForm.parse_query(session.request).filled
    own = session.customer.phone if session.customer.phone.startswith(_ZIMBABWE) else ""
    suggested = suggest_amount(given["amount"])
    draft = {
        "amount": given["amount"] if suggested is None else str(suggested),
        "wallet": given["wallet"] or Wallet.ECOCASH,
        "phone": given["phone"] or own,
    }
    return await _page(session, draft, {})


async def _page(
    session: CustomerSession, draft: Mapping[str, str], faults: Faults, status: int = 200
) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    amount = money.parse(draft["amount"])
    return session.page(
        "pay_by_wallet.html.jinja",
        status,
        draft=draft,
        faults=faults,
        form_id=new_form_id(TOP_UP),
        wallets=Wallet,
        **amount_values(tariff, amount if amount and TOP_UP_MIN <= amount <= TOP_UP_MAX else None),
    )


async def pay(session: CustomerSession) -> Response:
    """Start a top-up, and lead to it."""
    form = await WalletForm.read(session.request)
    _check_offered(session)
    if form.form.data is None:
        return await _page(session, form.filled, {"": _(STALE)}, 409)
    form_id = TopUpId(form.form.data)
    if form.faults:
        return await _page(session, form.filled, form.faults, 422)
    starting = start_paynow(
        session.database,
        session.services.payments,
        session.account_id,
        Wallet(form.wallet.data),
        money.parse(form.amount.data),
        form.phone.data or None,
        top_up_id=form_id,
        by=session.actor,
    )
    outcome = await start_once(session, form, form_id, starting)
    return outcome if isinstance(outcome, Response) else await _page(session, form.filled, outcome, 422)


def _check_offered(session: CustomerSession) -> None:
    if session.services.payments.paynow is None:
        raise HTTPException(
            404, _("Mobile money and cards are not available here. Choose another way to pay")
        )
