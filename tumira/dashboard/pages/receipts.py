"""Receipts of top-ups and of the operator's credits, to print.

The number of a receipt is that of its ledger entry: unique, ascending and never changed.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import ledger
from tumira.accounts.ledger import EntryKind
from tumira.core.ids import TOP_UP as TOP_UP_PREFIX
from tumira.core.ids import write_id
from tumira.core.translation import _, mark
from tumira.dashboard.pages.ledger import LEDGER, read_entry_id, write_receipt_number
from tumira.dashboard.pages.top_up import find_top_up, path_of
from tumira.dashboard.session import TOP_UP, CustomerSession, Services, private
from tumira.html import top_up_words as words
from tumira.html.redirect import redirect
from tumira.topups import lists as top_up_lists
from tumira.topups.lists import Movement
from tumira.topups.states import Currency, Method, TopUp, TopUpState

# A receipt of more deposits names the payment's reference alone.
TRANSACTIONS_MAX: Final = 100
RECEIPTS: Final = frozenset({TopUpState.CREDITED, TopUpState.REVERSED})

_MISSING: Final = mark("This receipt does not exist")

# A name and a value, beside each other on the receipt.
Facts = Sequence[tuple[str, str]]


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, TOP_UP + "/{id}/receipt", show_of_top_up),
        private(services, LEDGER + "/{entry}/receipt", show_of_entry),
    ]


async def show_of_top_up(session: CustomerSession) -> Response:
    top_up = await find_top_up(session)
    if top_up.state not in RECEIPTS:
        raise HTTPException(404, _("There is no receipt yet: this payment has not been credited"))
    async with session.database.connection() as connection:
        credit, *_reversals = await top_up_lists.list_movements(connection, top_up.id)
        transactions = await top_up_lists.list_transactions(
            connection, session.account_id, top_up.id, TRANSACTIONS_MAX
        )
    return _page(
        session,
        credit,
        _payment_facts(top_up, transactions),
        back=path_of(top_up.id),
        is_reversed=top_up.state is TopUpState.REVERSED,
    )


def _payment_facts(top_up: TopUp, transactions: Sequence[str]) -> Facts:
    assert top_up.paid is not None
    name = words.name_of(top_up.method, top_up.provider)
    facts = [
        (_("Method"), f"{name} (Paynow)" if top_up.method is Method.PAYNOW else name),
        (_("Amount paid"), words.write_money(top_up.paid, top_up.currency)),
    ]
    if top_up.currency is Currency.ZAR:
        facts.append((_("Exchange rate"), words.write_rate(top_up.rate, top_up.rate_on)))
    if top_up.currency is Currency.USDT:
        facts.append((_("Exchange rate"), _("1 USDT = US$1.00")))
    facts.append((_("Payment reference"), write_id(TOP_UP_PREFIX, top_up.id)))
    if top_up.provider_reference and top_up.method is not Method.USDT:
        facts.append((_("Provider reference"), top_up.provider_reference))
    return [*facts, *((_("Transaction"), one) for one in transactions)]


async def show_of_entry(session: CustomerSession) -> Response:
    """Show the receipt of a ledger entry that the operator credited; that of a top-up stands with it."""
    entry_id = read_entry_id(session.request.path_params["entry"], _(_MISSING))
    async with session.database.connection() as connection:
        entry = await ledger.find_entry(connection, session.account_id, entry_id)
        if entry is None or entry.amount <= 0 or entry.kind is EntryKind.REFUNDS:
            raise HTTPException(404, _(_MISSING))
        if entry.kind is EntryKind.TOP_UPS:
            found = await top_up_lists.list_by_transfer(connection, session.account_id, [entry_id])
            if entry_id not in found:
                raise HTTPException(404, _(_MISSING))
            return redirect(path_of(found[entry_id].id) + "/receipt")
    credit = Movement(entry.id, entry.amount, entry.created_at)
    facts = [(_("Method"), _("Credited manually")), (_("Note"), entry.note or "")]
    return _page(session, credit, facts, back=LEDGER)


def _page(
    session: CustomerSession,
    credit: Movement,
    facts: Facts,
    *,
    back: str,
    is_reversed: bool = False,
) -> Response:
    seller = session.services.seller
    tax = seller.tax_in(credit.amount)
    return session.page(
        "receipt.html.jinja",
        number=write_receipt_number(credit.id),
        credit=credit,
        facts=facts,
        back=back,
        seller=seller,
        tax=tax,
        net=None if tax is None else credit.amount - tax,
        tax_rate=None if seller.tax_rate is None else f"{seller.tax_rate.normalize():f}",
        is_reversed=is_reversed,
        printed_at=datetime.now(UTC),
        public_url=session.services.public_url,
    )
