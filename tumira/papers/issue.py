"""Makes the papers of credits and reversals, each once and numbered without gaps.

The transaction that moves the money leaves a row that says so. Papers are made right after it, by a worker or
by the page that shows one, whichever comes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tumira.accounts import store as accounts
from tumira.core.days import local_day
from tumira.core.ids import TOP_UP, AccountId, write_id
from tumira.core.settings.seller import Seller
from tumira.core.translation import _
from tumira.html import top_up_words as words
from tumira.papers import details, store, tax
from tumira.papers.content import PaperContent, PaperSeries, Party
from tumira.papers.store import DuePaper, Paper
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import write_phone
from tumira.topups import lists as top_up_lists
from tumira.topups import store as top_ups
from tumira.topups.states import Currency, Method

PAPERS_AT_ONCE: Final = 50
ISSUE_EVERY_S: Final = 2.0
# A paper of more deposits names the payment's reference alone.
TRANSACTIONS_MAX: Final = 100
DEFAULT_SELLER: Final = "Tumira"

Facts = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PaperIssuer:
    """Who makes papers: the seller of the settings, and the address of the dashboard."""

    seller: Seller
    public_url: str

    @property
    def party(self) -> Party:
        return Party(
            self.seller.name or DEFAULT_SELLER,
            self.seller.address or "",
            self.seller.tax_number or "",
            (self.public_url,) if self.public_url else (),
        )


async def issue_due(database: Database, issuer: PaperIssuer, up_to: int | None = None) -> int:
    """Make papers that are due, and return how many; with `up_to` no further than to this transfer."""
    async with database.connection() as connection:
        if not await store.has_due(connection):
            return 0
    async with database.transaction() as connection:
        last = await store.lock_series(connection)
        due = await store.list_due(connection, PAPERS_AT_ONCE, up_to)
        for one in due:
            content = await _write(connection, issuer, one, last)
            await store.insert(connection, one, content)
            if content.series in last:
                last[content.series] = content.number
    return len(due)


async def find_or_issue(
    database: Database, issuer: PaperIssuer, account_id: AccountId, transfer_id: int
) -> Paper | None:
    """Return the paper of an account's transfer; None where the transfer needs none."""
    while True:
        async with database.connection() as connection:
            found = await store.find_by_transfer(connection, account_id, transfer_id)
            if found is not None or not await store.list_waiting(connection, [transfer_id]):
                return found
        await issue_due(database, issuer, transfer_id)


async def buyer_of(connection: Connection, account_id: AccountId) -> Party:
    """Return how an account is named on a paper that is made now."""
    account = await accounts.find(connection, account_id)
    assert account is not None, "accounts are never deleted"
    known = await details.get_details(connection, account_id)
    return Party(
        known.name or account.business,
        known.address,
        known.tax_number,
        (account.name, write_phone(account.phone)),
    )


async def _write(
    connection: Connection, issuer: PaperIssuer, due: DuePaper, last: dict[PaperSeries, int]
) -> PaperContent:
    if not due.is_credit:
        return await _credit_note(connection, issuer, due, last[PaperSeries.CREDIT_NOTE] + 1)
    heading, rate = await _tax(connection, issuer.seller, due)
    if due.by_entry:
        series, number = PaperSeries.ENTRY, due.transfer_id
    else:
        series = PaperSeries.RECEIPT if rate is None else PaperSeries.INVOICE
        number = last[series] + 1
    return PaperContent(
        series=series,
        number=number,
        heading=heading,
        at=due.created_at,
        seller=issuer.party,
        buyer=await buyer_of(connection, due.account_id),
        description=_("Prepaid credit for SMS messages"),
        total=due.amount,
        tax_rate=rate,
        facts=await _payment_facts(connection, due),
    )


async def _tax(connection: Connection, seller: Seller, due: DuePaper) -> tuple[str, Decimal | None]:
    """Return what the paper is called, and the tax rate on the day of the credit; None for no tax."""
    if due.by_entry:
        return _("Receipt"), seller.tax_rate
    if seller.tax_rate is not None:
        return _(tax.DEFAULT_HEADING), seller.tax_rate
    if seller.tax_number is not None and seller.country is not None:
        found = await tax.find_rate(connection, seller.country, local_day(due.created_at))
        if found is not None:
            return _(found.heading), found.rate
    return _("Receipt"), None


async def _credit_note(
    connection: Connection, issuer: PaperIssuer, due: DuePaper, number: int
) -> PaperContent:
    """Write a credit note for what was taken back of a reversed top-up, at the tax rate of its paper."""
    assert due.top_up_id is not None, "only top-ups are reversed"
    original = await store.find_of_top_up(connection, due.top_up_id)
    facts = [(_("Payment reference"), write_id(TOP_UP, due.top_up_id))]
    if original is not None:
        what = f"{original.content.heading} {original.number}"
        facts.insert(0, (_("Corrects"), what))
    return PaperContent(
        series=PaperSeries.CREDIT_NOTE,
        number=number,
        heading=_("Credit note"),
        at=due.created_at,
        seller=issuer.party,
        buyer=await buyer_of(connection, due.account_id),
        description=_("Prepaid credit taken back, because the payment was reversed"),
        total=due.amount,
        tax_rate=None if original is None else original.content.tax_rate,
        facts=facts,
        corrects=None if original is None else original.number,
    )


async def _payment_facts(connection: Connection, due: DuePaper) -> Facts:
    if due.top_up_id is None:
        return [(_("Method"), _("Credited manually")), (_("Note"), due.note or "")]
    top_up = await top_ups.find_any(connection, due.top_up_id)
    if top_up is None or top_up.paid is None:
        # The audit finds it; other papers do not wait for that.
        return [(_("Payment reference"), write_id(TOP_UP, due.top_up_id))]
    name = words.name_of(top_up.method, top_up.provider)
    facts = [
        (_("Method"), f"{name} (Paynow)" if top_up.method is Method.PAYNOW else name),
        (_("Amount paid"), words.write_money(top_up.paid, top_up.currency)),
    ]
    if top_up.currency is Currency.ZAR:
        facts.append((_("Exchange rate"), words.write_rate(top_up.rate, top_up.rate_on)))
    if top_up.currency is Currency.USDT:
        facts.append((_("Exchange rate"), _("1 USDT = US$1.00")))
    facts.append((_("Payment reference"), write_id(TOP_UP, top_up.id)))
    if top_up.provider_reference and top_up.method is not Method.USDT:
        facts.append((_("Provider reference"), top_up.provider_reference))
    transactions = await top_up_lists.list_transactions(
        connection, top_up.account_id, top_up.id, TRANSACTIONS_MAX
    )
    return [*facts, *((_("Transaction"), one) for one in transactions)]
