"""Traffic of all accounts: now, in the last 24 hours, and in the last thirty days."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.console import hourly_charts
from tumira.console.session import OperatorSession, Services, page
from tumira.core import histogram
from tumira.core.days import local_day
from tumira.core.translation import _, mark
from tumira.delivery.lanes import BULK, SMALL
from tumira.delivery.store import hourly
from tumira.delivery.store import latency as latencies
from tumira.delivery.store.latency import EndCount, SubmissionCount
from tumira.html import chart
from tumira.operations import totals
from tumira.operations.totals import WAITING_MAX, Accepted
from tumira.pricing.store import get_tariff
from tumira.sending.daily_totals import Day

TRAFFIC: Final = "/operator/traffic"
NOW: Final = TRAFFIC + "/now"
LATELY: Final = timedelta(minutes=10)
HOUR: Final = timedelta(hours=1)
LANES: Final = {SMALL: mark("Up to 10 recipients"), BULK: mark("More than 10")}
PERCENTS: Final = (50, 95, 99)

_MS: Final = 1000

Counted = Accepted | SubmissionCount | EndCount


@dataclass(slots=True)
class Flow:
    """Messages accepted, submitted, delivered and failed for one country in a window."""

    name: str
    accepted: int = 0
    is_estimate: bool = False
    submitted: int = 0
    delivered: int = 0
    failed: int = 0

    def add(self, counted: Counted, column: str) -> None:
        count = getattr(counted, column)
        if isinstance(counted, Accepted):
            self.accepted += count
            self.is_estimate |= counted.is_estimate
        elif isinstance(counted, SubmissionCount):
            self.submitted += count
        elif counted.outcome == "delivered":
            self.delivered += count
        elif counted.outcome in hourly_charts.LOST:
            self.failed += count


def routes(services: Services) -> Sequence[Route]:
    return [*page(services, TRAFFIC, show_traffic), *page(services, NOW, show_now)]


async def show_now(session: OperatorSession) -> Response:
    return session.services.templates.page("traffic_now.html.jinja", **await _now(session))


async def show_traffic(session: OperatorSession) -> Response:
    now = datetime.now(UTC)
    today = local_day(now)
    hours = hourly_charts.last_hours(now)
    async with session.database.connection() as connection:
        ended = await totals.days(connection, today - timedelta(days=chart.DAYS - 1), today)
        under_way = await totals.under_way_by_day(connection)
        accepted = await totals.accepted_by_hour(connection, hours, now)
        times = await hourly.list_submission_times(connection, hours[0])
        outcomes = await hourly.list_outcomes(connection, hours[0])
    reasons = _("Failed messages by reason")
    by_country: dict[str, list[Day]] = {}
    for day in ended:
        by_country.setdefault(day.country, []).append(day)
    return session.page(
        "traffic.html.jinja",
        window=hourly_charts.describe(hours),
        # Id, title, chart, and what is said where there is nothing to draw.
        hourly=[
            (
                "messages",
                _("Messages per hour"),
                hourly_charts.draw_messages(hours, outcomes, [one.count for one in accepted]),
                _("No messages in this time."),
            ),
            (
                "times",
                _("Time from acceptance to submission"),
                hourly_charts.draw_latencies(hours, times),
                _("No messages were submitted in this time."),
            ),
            (
                "reasons",
                reasons,
                hourly_charts.draw_errors(hours, outcomes, hourly_charts.is_reason, reasons),
                _("No messages failed in this time."),
            ),
        ],
        is_estimate=any(one.is_estimate for one in accepted),
        month=chart.bars(chart.add_up(ended, under_way), today),
        months=by_country,
        rate=chart.rate,
        now_path=NOW,
        **await _now(session),
    )


async def _now(session: OperatorSession) -> Mapping[str, Any]:
    now = datetime.now(UTC)
    lately, since = (latencies.slot_of(now - back) for back in (LATELY, HOUR))
    async with session.database.connection() as connection:
        names = {one.country: one.name for one in (await get_tariff(connection)).destinations}
        accepted = await totals.accepted(connection, since, lately, now)
        submissions = await latencies.list_submissions(connection, since, lately)
        ends = await latencies.list_ends(connection, since, lately)
        stands = await totals.stands(connection)
        elsewhere = await totals.elsewhere(connection)
    counted: Sequence[Counted] = (*accepted, *submissions, *ends)
    now_ms = int(now.timestamp() * _MS)
    return {
        # Key, begin, and the flows and times that the columns `lately` and `count` say.
        "windows": [
            (key, begin, _flows(counted, names, column), _lane_times(submissions, column))
            for key, begin, column in (("lately", lately, "lately"), ("hour", since, "count"))
        ],
        "stands": stands,
        "elsewhere": elsewhere,
        "names": names,
        "lanes": LANES,
        "bounded": _write_bounded,
        "age": lambda oldest_ms: histogram.write_ms(max(0, now_ms - oldest_ms)),
        "at": now,
        "percents": PERCENTS,
    }


def _write_bounded(count: int) -> str:
    return _("{count} or more").format(count=f"{count:,}") if count >= WAITING_MAX else f"{count:,}"


def _flows(counted: Sequence[Counted], names: Mapping[str, str], column: str) -> Sequence[Flow]:
    """Return what came in and went out in one window, by country, and all of it if there are several."""
    countries = sorted({one.country for one in counted if getattr(one, column)})
    flows = {country: Flow(names.get(country, country)) for country in countries}
    every = Flow(_("All"))
    for one in counted:
        if one.country in flows:
            flows[one.country].add(one, column)
            every.add(one, column)
    return [*flows.values(), every] if len(flows) != 1 else list(flows.values())


def _lane_times(
    submissions: Sequence[SubmissionCount], column: str
) -> Sequence[tuple[str, int, Sequence[str]]]:
    """Return name and count of each lane, and how long its messages took to be submitted."""
    found = []
    for lane, name in LANES.items():
        counts: Counter[int] = Counter()
        for one in submissions:
            if one.lane == lane:
                counts[one.bucket] += getattr(one, column)
        times = [histogram.percentile_ms(counts, percent) for percent in PERCENTS]
        words = ["\N{EN DASH}" if time is None else histogram.write_ms(time) for time in times]
        found.append((name, counts.total(), words))
    return found
