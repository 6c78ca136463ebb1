"""Pay with USDT: the account's own deposit address, and the deposits that arrived."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.settings.payments import Usdt
from tumira.core.translation import _
from tumira.dashboard.pages.top_up import PAY_BY_USDT, AmountForm, path_of
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html import qr_code, top_up_words
from tumira.html.redirect import redirect
from tumira.html.top_up_words import write_money
from tumira.topups.start import assign_deposit_address, find_deposit_address
from tumira.topups.states import TOP_UP_MAX, TOP_UP_MIN, Currency
from tumira.topups.usdt import deposits
from tumira.topups.usdt.addresses import network_name, payment_link, with_checksum

DEPOSITS_MAX: Final = 20

_log: Final = structlog.get_logger()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, PAY_BY_USDT, show),
        private(services, PAY_BY_USDT, assign_address, "POST"),
        private(services, PAY_BY_USDT + "/deposits", show_deposits),
    ]


async def show(session: CustomerSession) -> Response:
    usdt = _settings(session)
    given = AmountForm.parse_query(session.request).amount.data
    with _unavailable_if_misconfigured():
        address = await find_deposit_address(session.database, session.services.payments, session.account_id)
    # The field for the amount comes with the address.
    amount, faults = _read_amount(given if address else "")
    link = address and payment_link(usdt.contract, usdt.chain_id, address, amount)
    return session.page(
        "pay_by_usdt.html.jinja",
        422 if faults else 200,
        address=address,
        picture=address and await qr_code.draw(address),
        link=link,
        link_picture=link and await qr_code.draw(link),
        amount=None if amount is None else write_money(amount, Currency.USDT),
        given=given,
        faults=faults,
        network=network_name(usdt.chain_id),
        contract=with_checksum(usdt.contract),
        **await _deposits(session, usdt),
    )


async def assign_address(session: CustomerSession) -> Response:
    """Give the account its address, which stays the same however often this is posted."""
    form = await AmountForm.read(session.request)
    _settings(session)
    with _unavailable_if_misconfigured():
        await assign_deposit_address(
            session.database, session.services.payments, session.account_id, session.actor
        )
    query = urlencode({"amount": form.amount.data}) if form.amount.data else ""
    return redirect(f"{PAY_BY_USDT}?{query}" if query else PAY_BY_USDT)


@contextmanager
def _unavailable_if_misconfigured() -> Iterator[None]:
    """Show no address while the operator's settings are wrong: nobody may pay before they are corrected."""
    try:
        yield
    except OperatorError as error:
        _log.error("no address for USDT", problem=str(error))
        raise HTTPException(
            503, _("We cannot show your deposit address right now. Try again later")
        ) from None


async def show_deposits(session: CustomerSession) -> Response:
    return session.services.templates.page(
        "usdt_deposits.html.jinja", **await _deposits(session, _settings(session))
    )


async def _deposits(session: CustomerSession, usdt: Usdt) -> Mapping[str, Any]:
    account_id = session.account_id
    async with session.database.connection() as connection:
        found = await deposits.list_of_account(connection, account_id, DEPOSITS_MAX)
        outstanding = await deposits.add_up(connection, usdt.chain_id, account_id)
    return {
        "deposits": found,
        "words": top_up_words,
        "path_of": path_of,
        "held": write_money(outstanding.held, Currency.USDT) if outstanding.held else None,
        "missing": write_money(outstanding.missing, Currency.USDT),
        "is_enough": not outstanding.missing,
        "confirmations": usdt.confirmations,
        "balance": session.customer.balance,
        "smallest": TOP_UP_MIN,
    }


def _read_amount(given: str) -> tuple[Decimal | None, Mapping[str, str]]:
    if not given:
        return None, {}
    amount = money.parse(given)
    if amount is None:
        return None, {"amount": _("Enter an amount in USDT, such as 5 or 12.50.")}
    if not TOP_UP_MIN <= amount <= TOP_UP_MAX:
        fault = _("Enter an amount from {smallest} to {largest} USDT.")
        return None, {"amount": fault.format(smallest=TOP_UP_MIN, largest=f"{TOP_UP_MAX:,}")}
    return amount, {}


def _settings(session: CustomerSession) -> Usdt:
    usdt = session.services.payments.usdt
    if usdt is None:
        raise HTTPException(404, _("USDT is not available here. Choose another way to pay"))
    return usdt
