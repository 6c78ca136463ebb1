"""The overview: what to do next, what needs attention, the latest batches and a month of traffic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tumira.accounts import api_keys
from tumira.accounts import store as accounts
from tumira.approvals import store as approvals
from tumira.core.days import local_day
from tumira.core.ids import ENDPOINT, UPLOAD, write_id
from tumira.core.translation import _, mark, ngettext
from tumira.dashboard.approving import APPROVALS
from tumira.dashboard.pages.landing import offers
from tumira.dashboard.pages.scheduled import list_lines
from tumira.dashboard.send_later import path_of
from tumira.dashboard.session import HOME, VERIFY, CustomerSession, Services, private
from tumira.delivery.store import binds
from tumira.html import chart
from tumira.html.cookies import Cookie
from tumira.html.page import HEADERS, PRIVATE, write_usd
from tumira.html.redirect import redirect
from tumira.identity.roles import MemberRole
from tumira.identity.store.sessions import SignedInCustomer
from tumira.postgres.connection import Connection
from tumira.pricing.store import get_tariff
from tumira.schedules import store as schedules
from tumira.schedules.store import ScheduleState
from tumira.schedules.times import write_start
from tumira.sending import daily_totals
from tumira.sending.daily_totals import Day, Waiting, WaitReason
from tumira.sending.search import Search
from tumira.uploads import store as uploads
from tumira.uploads.entries import list_entries
from tumira.webhooks import endpoints
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.manage import ENDPOINTS_MAX

HIDE_STEPS: Final = HOME + "/hide-steps"
LATEST: Final = 5
STOPPED_MAX: Final = 3
SCHEDULED_SHOWN: Final = 3
# So long the overview says that a scheduled send was not made.
TOLD_FOR: Final = timedelta(days=3)
URL_SHOWN: Final = 60
_YEAR_S: Final = 365 * 24 * 3600

WHY: Final = {
    WaitReason.TURN: mark("waiting to be sent"),
    WaitReason.RETRY: mark("waiting to be sent again, because the carrier could not take them at first"),
    WaitReason.DOUBT: mark("waiting for the carrier, which may already have them"),
    WaitReason.SENDING: mark("being handed to the carrier"),
    WaitReason.RECEIPT: mark("with the carrier, waiting for the delivery receipt"),
}
NO_CARRIER: Final = mark(
    "waiting, because no carrier is connected at the moment; messages that expire are refunded"
)


@dataclass(frozen=True, slots=True)
class FirstStep:
    """Something that a new customer does once."""

    name: str
    path: str
    is_done: bool


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that needs attention, and the page on which it is solved."""

    text: str
    path: str
    action: str
    # The route of the page, whose permission decides who gets the link.
    route: str


def routes(services: Services) -> Sequence[Route]:
    hidden = Cookie("tumira_first_steps", services.public_url, _YEAR_S)

    async def show(session: CustomerSession) -> Response:
        return await show_overview(session, show_steps=hidden.read(session.request) is None)

    async def hide_steps(_session: CustomerSession) -> Response:
        response = redirect(HOME)
        hidden.set(response, "hidden")
        return response

    return [
        private(services, HOME, show),
        private(services, HIDE_STEPS, hide_steps, "POST"),
        private(services, "/dashboard/balance/now", show_balance),
    ]


async def show_overview(session: CustomerSession, *, show_steps: bool) -> Response:
    account_id, customer = session.account_id, session.customer
    today = local_day(datetime.now(UTC))
    async with session.database.connection() as connection:
        ended = await daily_totals.days(connection, account_id, today - timedelta(days=chart.DAYS - 1), today)
        waiting = await daily_totals.waiting_by_day(connection, account_id)
        reasons = await daily_totals.waiting(connection, account_id) if waiting else []
        cut_off = await binds.countries_without_carrier(connection) if reasons else set()
        tariff = await get_tariff(connection)
        latest = (await list_entries(connection, account_id, Search(), LATEST)).entries
        own_endpoints = await endpoints.list_endpoints(connection, account_id, ENDPOINTS_MAX)
        alerts = await _list_alerts(connection, customer, own_endpoints)
        waiting_sends = await schedules.list_waiting(connection, account_id, SCHEDULED_SHOWN)
        scheduled = await list_lines(connection, waiting_sends)
        steps: Sequence[FirstStep] = []
        if show_steps:
            keys = await api_keys.list_some(connection, account_id, 1)
            steps = [
                FirstStep(_("Verify your phone number"), VERIFY, customer.phone_proved),
                FirstStep(_("Top up your balance"), "/dashboard/top-up", bool(customer.balance or latest)),
                FirstStep(_("Send a first message"), "/dashboard/compose", bool(latest)),
                FirstStep(_("For developers: create an API key"), "/dashboard/keys", bool(keys)),
                FirstStep(
                    _("For developers: add a webhook endpoint"), "/dashboard/webhooks", bool(own_endpoints)
                ),
            ]
    names = tariff.names
    days = chart.add_up(ended, waiting)
    return session.page(
        "overview.html.jinja",
        offers=[one for one in offers(tariff, customer.balance) if not one.is_coming],
        # They are the owner's: nobody else could do all of them.
        steps=[] if all(step.is_done for step in steps) or customer.role is not MemberRole.OWNER else steps,
        hide_path=HIDE_STEPS,
        alerts=alerts,
        latest=latest,
        scheduled=scheduled,
        is_open=any(entry.is_open for entry in latest),
        chart=chart.bars(days, today),
        today=chart.of_day(days, today),
        rates=_rates(ended, names),
        waiting=sum(count for _day, count in waiting),
        reasons=[(one.count, names[one.country], _why(one, cut_off)) for one in reasons],
        explained=sum(one.count for one in reasons),
    )


async def _list_alerts(
    connection: Connection, customer: SignedInCustomer, own_endpoints: Sequence[Endpoint]
) -> Sequence[Alert]:
    account = await accounts.find(connection, customer.account_id)
    stopped = await uploads.list_stopped(connection, customer.account_id, STOPPED_MAX)
    assert account is not None
    alerts = []
    waiting = await approvals.count_waiting(connection, customer.account_id)
    waiting += len(await schedules.list_unapproved(connection, customer.account_id))
    if waiting:
        words = ngettext("{count} send needs approval.", "{count} sends need approval.", waiting)
        alerts.append(Alert(words.format(count=waiting), APPROVALS, _("Look"), f"GET {APPROVALS}"))
    if 0 < customer.balance < account.low_balance:
        words = _("Your balance is low: {amount}.").format(amount=write_usd(customer.balance))
        alerts.append(Alert(words, "/dashboard/top-up", _("Top up"), "GET /dashboard/top-up"))
    for upload in stopped:
        words = _("Sending the file {name} stopped.").format(name=upload.file_name)
        path = f"/dashboard/upload/{write_id(UPLOAD, upload.id)}"
        alerts.append(Alert(words, path, _("See why"), "GET /dashboard/upload/{id}"))
    unsent = await schedules.list_ended(
        connection, customer.account_id, STOPPED_MAX, states=[ScheduleState.NOT_SENT], within=TOLD_FOR
    )
    for one in unsent:
        words = _("Your send of {start} was not made.").format(start=write_start(one.start_at))
        alerts.append(Alert(words, path_of(one.id), _("See why"), "GET /dashboard/scheduled/{id}"))
    for endpoint in own_endpoints:
        trouble = _trouble(endpoint)
        if trouble is not None:
            path = f"/dashboard/webhooks/{write_id(ENDPOINT, endpoint.id)}"
            url = _shorten(endpoint.url)
            route = "GET /dashboard/webhooks/{id}"
            alerts.append(Alert(_(trouble).format(url=url), path, _("See details"), route))
    return alerts


def _shorten(url: str) -> str:
    return url if len(url) <= URL_SHOWN else url[: URL_SHOWN - 1] + "…"


def _trouble(endpoint: Endpoint) -> str | None:
    if endpoint.state == "disabled":
        return mark("The webhook endpoint {url} was switched off because it kept failing.")
    if endpoint.state == "paused":
        return mark("The webhook endpoint {url} is paused: events are not sent to it.")
    if endpoint.health.is_probing or endpoint.health.warnings:
        return mark("The webhook endpoint {url} is failing: events wait to be delivered.")
    return None


def _rates(ended: Sequence[Day], names: Mapping[str, str]) -> Sequence[tuple[str, int, int, str]]:
    """Return for each country with messages that ended: its name, how many were delivered, of how many."""
    found = []
    for country, name in names.items():
        days = [one for one in ended if one.country == country]
        delivered, total = sum(one.delivered for one in days), sum(one.ended for one in days)
        if total:
            found.append((name, delivered, total, chart.rate(delivered, total)))
    return found


def _why(waiting: Waiting, cut_off: set[str]) -> str:
    if waiting.country in cut_off and waiting.why in {WaitReason.TURN, WaitReason.RETRY}:
        return NO_CARRIER
    return WHY[waiting.why]


async def show_balance(session: CustomerSession) -> Response:
    """Answer the scripts of pages, which keep the balance in the bar at the top current."""
    return JSONResponse(
        {"balance": write_usd(session.customer.balance), "is_too_low": session.is_too_low},
        headers={**HEADERS, **PRIVATE},
    )
