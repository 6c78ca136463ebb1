"""The overview: balance, what it buys, and the outcome of recent messages."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.core.days import local_day
from tumira.dashboard.pages.landing import offers
from tumira.dashboard.session import HOME, CustomerSession, Services, private
from tumira.delivery.store import binds
from tumira.html import chart
from tumira.pricing.store import get_tariff
from tumira.sending import daily_totals
from tumira.sending.daily_totals import Day, Waiting, WaitReason

WHY: Final = {
    WaitReason.TURN: "waiting for their turn",
    WaitReason.RETRY: "waiting for another try: the carrier could not take them at first",
    WaitReason.DOUBT: "waiting for word from the carrier, which may already have them",
    WaitReason.SENDING: "being handed to the carrier",
    WaitReason.RECEIPT: "with the carrier, waiting for the delivery receipt",
}
NO_CARRIER: Final = "waiting for a carrier: none is connected for {} at the moment; what expires is refunded"


def routes(services: Services) -> Sequence[Route]:
    return [private(services, HOME, show_overview)]


async def show_overview(session: CustomerSession) -> Response:
    account_id = session.account_id
    today = local_day(datetime.now(UTC))
    async with session.database.connection() as connection:
        ended = await daily_totals.days(connection, account_id, today - timedelta(days=chart.DAYS - 1), today)
        waiting = await daily_totals.waiting_by_day(connection, account_id)
        reasons = await daily_totals.waiting(connection, account_id) if waiting else []
        cut_off = await binds.countries_without_carrier(connection) if reasons else set()
        tariff = await get_tariff(connection)
    names = tariff.names
    days = chart.add_up(ended, waiting)
    return session.page(
        "overview.html.jinja",
        offers=[one for one in offers(tariff, session.customer.balance) if not one.is_coming],
        chart=chart.bars(days, today),
        today=chart.of_day(days, today),
        rates=_rates(ended, names),
        waiting=sum(count for _, count in waiting),
        reasons=[(one.count, names[one.country], _why(one, names, cut_off)) for one in reasons],
        explained=sum(one.count for one in reasons),
    )


def _rates(ended: Sequence[Day], names: Mapping[str, str]) -> Sequence[tuple[str, int, int, str]]:
    """Return for each country with messages that ended: its name, how many were delivered, of how many."""
    found = []
    for country, name in names.items():
        days = [one for one in ended if one.country == country]
        delivered, total = sum(one.delivered for one in days), sum(one.ended for one in days)
        if total:
            found.append((name, delivered, total, chart.rate(delivered, total)))
    return found


def _why(waiting: Waiting, names: Mapping[str, str], cut_off: set[str]) -> str:
    if waiting.country in cut_off and waiting.why in {WaitReason.TURN, WaitReason.RETRY}:
        return NO_CARRIER.format(names[waiting.country])
    return WHY[waiting.why]
