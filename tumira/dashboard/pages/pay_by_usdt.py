"""Pay with USDT: the account's own address, and the deposits that arrived."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.settings.payments import Usdt
from tumira.dashboard.pages.top_up import PAY_BY_USDT, AmountForm, path_of
from tumira.dashboard.session import VERIFY, CustomerSession, Services, private
from tumira.html import qr_code, top_up_words
from tumira.html.redirect import redirect
from tumira.html.top_up_words import write_money
from tumira.topups.start import start_usdt
from tumira.topups.states import TOP_UP_MAX, TOP_UP_MIN, Currency
from tumira.topups.usdt import deposits
from tumira.topups.usdt.addresses import network_name, payment_link, with_checksum

DEPOSITS_MAX: Final = 20

_log: Final = structlog.get_logger()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, PAY_BY_USDT, show),
        private(services, PAY_BY_USDT + "/deposits", show_deposits),
    ]


async def show(session: CustomerSession) -> Response:
    usdt = _settings(session)
    if not session.customer.phone_proved:
        # An address is given out with the page, and what is paid there belongs to the account for good.
        return redirect(VERIFY)
    given = AmountForm.parse_query(session.request).amount.data
    amount, faults = _read_amount(given)
    try:
        place = await start_usdt(session.database, session.services.payments, session.account_id)
    except OperatorError as error:
        # What is wrong is the operator's to put right, and nobody may pay before that.
        _log.error("no address for USDT", problem=str(error))
        raise HTTPException(503, "Your address cannot be shown now; please tell the operator") from None
    link = payment_link(usdt.contract, usdt.chain_id, place.address, amount)
    return session.page(
        "pay_by_usdt.html.jinja",
        422 if faults else 200,
        address=place.address,
        picture=await qr_code.draw(place.address),
        link=link,
        link_picture=await qr_code.draw(link),
        amount=None if amount is None else write_money(amount, Currency.USDT),
        given=given,
        faults=faults,
        network=network_name(usdt.chain_id),
        contract=with_checksum(usdt.contract),
        **await _deposits(session, usdt),
    )


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
        return None, {"amount": "Write how many USDT, like 5 or 12.50."}
    if not TOP_UP_MIN <= amount <= TOP_UP_MAX:
        return None, {"amount": f"From {TOP_UP_MIN} to {TOP_UP_MAX:,} USDT at a time."}
    return amount, {}


def _settings(session: CustomerSession) -> Usdt:
    usdt = session.services.payments.usdt
    if usdt is None:
        raise HTTPException(404, "You cannot pay with USDT here")
    return usdt
