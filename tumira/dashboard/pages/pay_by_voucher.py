"""Pay with a voucher, whose PIN is encrypted and never shown again."""

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.ids import TOP_UP, TopUpId
from tumira.core.translation import _
from tumira.dashboard.pages.top_up import PAY_BY_VOUCHER, STALE, start_once
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html import top_up_words
from tumira.html.forms import TYPED_MAX, Faults, Form, FormId, TextField, new_form_id
from tumira.topups import start as start_voucher
from tumira.topups.states import TOP_UP_MIN
from tumira.topups.voucher_pins import TYPED_MAX as PIN_TYPED_MAX
from tumira.topups.voucher_pins import Issuer

_SOUTH_AFRICA: Final = "+27"


class VoucherForm(Form):
    provider = TextField(cut=TYPED_MAX)
    value = TextField(cut=TYPED_MAX)
    phone = TextField(cut=TYPED_MAX)
    pin = TextField(cut=PIN_TYPED_MAX + 1, is_secret=True)
    form = FormId(TOP_UP)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, PAY_BY_VOUCHER, show),
        private(services, PAY_BY_VOUCHER, redeem, "POST"),
    ]


async def show(session: CustomerSession) -> Response:
    issuers = await _offered(session)
    wanted = session.request.query_params.get("provider", "")
    provider = wanted if wanted in issuers else issuers[0].value
    own = session.customer.phone
    # Issuers send change inside their country alone.
    phone = own if own.startswith(_SOUTH_AFRICA) else ""
    draft = {"provider": provider, "value": "", "phone": phone}
    return _page(session, issuers, draft, {})


def _page(
    session: CustomerSession,
    issuers: Sequence[Issuer],
    draft: Mapping[str, str],
    faults: Faults,
    status: int = 200,
) -> Response:
    rate = session.services.payments.zar_rate
    return session.page(
        "pay_by_voucher.html.jinja",
        status,
        issuers=[(issuer, _without(issuer)) for issuer in issuers],
        asks_value=any(issuer.needs_value for issuer in issuers),
        asks_phone=any(_sends_change(issuer) for issuer in issuers),
        draft=draft,
        faults=faults,
        form_id=new_form_id(TOP_UP),
        typed_max=PIN_TYPED_MAX,
        smallest=TOP_UP_MIN,
        rate=None if rate is None else rate.rate,
        rate_words=None if rate is None else top_up_words.write_rate(rate.rate, rate.since),
    )


def _without(issuer: Issuer) -> str:
    """Return which fields a voucher can do without."""
    needless = {"value": not issuer.needs_value, "phone": not _sends_change(issuer)}
    return " ".join(name for name, is_needless in needless.items() if is_needless)


def _sends_change(issuer: Issuer) -> bool:
    return issuer in {Issuer.ONE_VOUCHER, Issuer.OTT}


async def redeem(session: CustomerSession) -> Response:
    """Start a top-up by a voucher, and lead to it."""
    form = await VoucherForm.read(session.request)
    issuers = await _offered(session)
    if form.form.data is None:
        return _page(session, issuers, form.filled, {"": _(STALE)}, 409)
    form_id = TopUpId(form.form.data)
    if form.provider.data not in issuers:
        return _page(session, issuers, form.filled, {"provider": _("Choose the type of your voucher.")}, 422)
    starting = start_voucher.start_voucher(
        session.database,
        session.services.payments,
        session.account_id,
        Issuer(form.provider.data),
        form.pin.data,
        value=money.parse(form.value.data),
        phone=form.phone.data or None,
        top_up_id=form_id,
        by=session.actor,
    )
    outcome = await start_once(session, form, form_id, starting)
    return outcome if isinstance(outcome, Response) else _page(session, issuers, form.filled, outcome, 422)


async def _offered(session: CustomerSession) -> Sequence[Issuer]:
    async with session.database.connection() as connection:
        issuers = await start_voucher.list_issuers(connection, session.services.payments)
    if not issuers:
        raise HTTPException(404, _("Vouchers are not available here. Choose another way to pay"))
    return issuers
