"""The margin of a month: what messages cost and earned, by carrier, network or account."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts.store import SYSTEM
from tumira.console.session import OperatorSession, Services, page
from tumira.core.days import local_day
from tumira.core.ids import ACCOUNT, write_id
from tumira.core.translation import _, mark
from tumira.delivery import margin as margins
from tumira.delivery.margin import NO_CARRIER, Margin, MarginBy, end_of_month, month_of
from tumira.html.forms import TYPED_MAX, ListFilterForm, TextField
from tumira.html.page import write_exact_usd
from tumira.pricing.networks import NAMES
from tumira.pricing.store import get_tariff

MARGIN: Final = "/operator/margin"
MONTHS_SHOWN: Final = 24

WAYS: Final = {
    MarginBy.CARRIER: mark("Carrier"),
    MarginBy.NETWORK: mark("Network"),
    MarginBy.ACCOUNT: mark("Account"),
}
_FOUR_DECIMALS: Final = Decimal("0.0001")


class MarginForm(ListFilterForm):
    month = TextField(cut=TYPED_MAX)
    by = TextField(cut=TYPED_MAX)


def routes(services: Services) -> Sequence[Route]:
    return page(services, MARGIN, show_margin)


async def show_margin(session: OperatorSession) -> Response:
    asked = MarginForm.parse_query(session.request)
    this_month = local_day(datetime.now(UTC)).replace(day=1)
    months = _months(this_month)
    first_day = month_of(asked.month.data) or this_month
    by = MarginBy(asked.by.data) if asked.by.data in set(MarginBy) else MarginBy.CARRIER
    async with session.database.connection() as connection:
        rows = await margins.read(connection, first_day, end_of_month(first_day), by)
        total = await margins.read_total(connection, first_day, end_of_month(first_day))
        names = (await get_tariff(connection)).names
    return session.page(
        "margin.html.jinja",
        rows=rows,
        total=total,
        by=by,
        ways=[(way.value, _(words)) for way, words in WAYS.items()],
        title=_(WAYS[by]),
        month=first_day,
        months=[(f"{one:%Y-%m}", f"{one:%B %Y}") for one in months],
        is_full=len(rows) >= margins.ROWS_MAX,
        label=lambda one: _label(one, by, names),
        link=lambda one: _link(one, by),
        money=_write,
        share=_share,
    )


def _months(this_month: date) -> Sequence[date]:
    found = [this_month]
    while len(found) < MONTHS_SHOWN:
        found.append((found[-1] - timedelta(days=1)).replace(day=1))
    return found


def _label(one: Margin, by: MarginBy, names: dict[str, str]) -> str:
    if by is MarginBy.NETWORK:
        country, _sign, network = one.key.partition("-")
        return f"{names.get(country, country)}, {NAMES.get(network, _('other networks'))}"
    if by is MarginBy.ACCOUNT and one.key == str(SYSTEM):
        return _("Tumira (codes and notices)")
    return one.name or (_("No carrier known") if one.key == str(NO_CARRIER) else _("(no name)"))


def _link(one: Margin, by: MarginBy) -> str | None:
    if by is MarginBy.CARRIER and one.name is not None:
        return f"/operator/carriers/{one.name}"
    if by is MarginBy.ACCOUNT and one.key != str(SYSTEM):
        return f"/operator/accounts/{write_id(ACCOUNT, margins.account_of(one))}"
    return None


def _write(amount: Decimal) -> str:
    return write_exact_usd(amount.quantize(_FOUR_DECIMALS, ROUND_HALF_EVEN))


def _share(one: Margin) -> str:
    """Write the margin as a share of the revenue."""
    return f"{100 * one.margin / one.revenue:.1f} %" if one.revenue > 0 else "\N{EN DASH}"
