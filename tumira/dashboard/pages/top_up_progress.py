"""One top-up: its progress, what is left to do, and its receipt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit

from starlette.responses import Response
from starlette.routing import Route

from tumira.core.ids import TOP_UP as TOP_UP_PREFIX
from tumira.core.ids import write_id
from tumira.core.settings.payments import Payments
from tumira.dashboard.pages.papers.invoices import RECEIPTS
from tumira.dashboard.pages.top_up import (
    PAY_BY_USDT,
    PAY_BY_VOUCHER,
    PAY_BY_WALLET,
    find_top_up,
    path_of,
)
from tumira.dashboard.session import TOP_UP, CustomerSession, Services, private
from tumira.html import qr_code
from tumira.html import top_up_words as words
from tumira.html.form_body import read_fields
from tumira.html.qr_code import QrCode
from tumira.html.redirect import redirect
from tumira.topups import store as top_ups
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.start import secret_of
from tumira.topups.states import OPEN_STATES, Currency, FailureReason, Method, TopUp, TopUpState
from tumira.topups.voucher_pins import ChangeVoucher, Seal, read_change

# The address by which the InnBucks app opens with a code in it.
INNBUCKS_APP: Final = "schinn.wbpycode://innbucks.co.zw?pymInnCode="
CODE_MAX: Final = 40

_AGAIN: Final[Mapping[Method, str]] = {
    Method.PAYNOW: PAY_BY_WALLET,
    Method.USDT: PAY_BY_USDT,
    Method.VOUCHER: PAY_BY_VOUCHER,
}


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, TOP_UP + "/{id}", show),
        private(services, TOP_UP + "/{id}/progress", show_progress),
        private(services, TOP_UP + "/{id}/noted", forget_change, "POST"),
    ]


@dataclass(frozen=True, slots=True)
class Code:
    """What the InnBucks app takes: a code to type, to read off the screen, or to open the app with."""

    text: str
    link: str
    expires_at: datetime | None
    picture: QrCode | None


async def show(session: CustomerSession) -> Response:
    return session.page("top_up_one.html.jinja", **await _progress(session))


async def show_progress(session: CustomerSession) -> Response:
    return session.services.templates.page("top_up_progress.html.jinja", **await _progress(session))


async def _progress(session: CustomerSession) -> Mapping[str, Any]:
    top_up = await find_top_up(session)
    state, badge = words.state_of(top_up)
    is_payable = top_up.state is TopUpState.PENDING and top_up.method is Method.PAYNOW
    payments = session.services.payments
    return {
        "top_up": top_up,
        "here_path": path_of(top_up.id),
        "reference": write_id(TOP_UP_PREFIX, top_up.id),
        "name": words.name_of(top_up.method, top_up.provider),
        "asked": None if top_up.asked is None else words.write_money(top_up.asked, top_up.currency),
        "rate": _rate(top_up),
        "state": state,
        "badge": badge,
        "told": words.told(top_up),
        "is_open": top_up.state in OPEN_STATES
        and (top_up.state is not TopUpState.DOUBT or top_up.due_at is not None),
        "is_tall": top_up.provider == Wallet.INNBUCKS
        and top_up.state in {TopUpState.STARTED, TopUpState.PENDING},
        "instructions": top_up.kept.get("instructions") if is_payable else None,
        "code": await _code(top_up) if is_payable and top_up.provider == Wallet.INNBUCKS else None,
        "card_page": _card_page(payments, top_up) if is_payable else None,
        "usdt_path": PAY_BY_USDT if top_up.method is Method.USDT and payments.usdt is not None else None,
        "again": _again(payments, top_up),
        "has_receipt": top_up.state in RECEIPTS,
        "needs_support": top_up.state is TopUpState.REVERSED
        or (top_up.state is TopUpState.DOUBT and top_up.due_at is None)
        or top_up.reason == FailureReason.NOT_CONFIGURED,
        "has_change": top_up.sealed_change is not None,
        "change": _change(payments, top_up),
        "balance": session.customer.balance,
    }


def _rate(top_up: TopUp) -> str | None:
    return words.write_rate(top_up.rate, top_up.rate_on) if top_up.currency is Currency.ZAR else None


async def _code(top_up: TopUp) -> Code | None:
    text = top_up.kept.get("code", "")
    # It comes from outside: what cannot be such a code is not shown as one.
    if not text or len(text.encode()) > CODE_MAX or not text.isprintable():
        return None
    expires = top_up.kept.get("code_expires")
    return Code(
        text=text,
        link=INNBUCKS_APP + quote(text, safe=""),
        expires_at=None if expires is None else datetime.fromisoformat(expires),
        picture=await qr_code.draw(text),
    )


def _card_page(payments: Payments, top_up: TopUp) -> str | None:
    address = top_up.kept.get("browser_url")
    if address is None or payments.paynow is None:
        return None
    there, allowed = urlsplit(address), urlsplit(payments.paynow.url)
    return address if (there.scheme, there.netloc) == (allowed.scheme, allowed.netloc) else None


def _again(payments: Payments, top_up: TopUp) -> str | None:
    if top_up.state not in {TopUpState.FAILED, TopUpState.EXPIRED} and not words.cannot_be_paid(top_up):
        return None
    path = _AGAIN[top_up.method]
    match top_up.method:
        case Method.PAYNOW if payments.paynow is not None:
            return f"{path}?amount={top_up.asked}&wallet={quote(top_up.provider)}"
        case Method.USDT if payments.usdt is not None:
            return path
        case Method.VOUCHER:
            return f"{path}?provider={quote(top_up.provider)}"
    return None


def _change(payments: Payments, top_up: TopUp) -> ChangeVoucher | None:
    """Open the voucher that holds what was left over; None where there is none, or its key was changed."""
    secret = secret_of(payments, top_up.provider)
    if top_up.sealed_change is None or secret is None:
        return None
    text = Seal(secret).open(top_up.sealed_change)
    return None if text is None else read_change(text)


async def forget_change(session: CustomerSession) -> Response:
    """Erase a change voucher that its owner has noted."""
    await read_fields(session.request)
    top_up = await find_top_up(session)
    async with session.database.transaction() as connection:
        await top_ups.forget_change(connection, session.account_id, top_up.id)
    return redirect(path_of(top_up.id))
