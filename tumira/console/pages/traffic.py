"""Traffic of all accounts: now, and in the last thirty days."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import HOME, OperatorSession, Services, view
from tumira.core import histogram
from tumira.core.days import local_day
from tumira.delivery.store import latency as latencies
from tumira.delivery.store.latency import EndCount, SubmissionCount
from tumira.delivery.store.queue import BULK, SMALL
from tumira.html import chart
from tumira.operations import totals
from tumira.operations.totals import WAITING_MAX, Accepted, Elsewhere, Stand
from tumira.pricing.destinations import Tariff
from tumira.pricing.store import get_tariff
from tumira.sending.daily_totals import Day

NOW: Final = "/operator/traffic/now"
LATELY: Final = timedelta(minutes=10)
HOUR: Final = timedelta(hours=1)
LANES: Final = {SMALL: "Up to 10 recipients", BULK: "Bulk"}
PERCENTS: Final = (50, 95, 99)

_LOST: Final = frozenset({"failed", "undelivered", "expired"})
_MS: Final = 1000


@dataclass(slots=True)
class Flow:
    """Messages accepted, submitted, delivered and failed for one country in a window."""

    name: str
    accepted: int = 0
    is_estimate: bool = False
    submitted: int = 0
    delivered: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class LaneTimes:
    """How long the messages of a lane took from acceptance to submission, in words."""

    name: str
    count: int
    times: Sequence[str]


@dataclass(frozen=True, slots=True)
class Window:
    """Figures since the beginning of a slot."""

    name: str
    key: str
    since: datetime
    flows: Sequence[Flow]
    lanes: Sequence[LaneTimes]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queue of one lane to one country."""

    country: str
    lane: str
    count: str
    oldest: str


@dataclass(slots=True)
class Month:
    """How the messages of thirty days to one country ended."""

    name: str
    days: list[Day] = field(default_factory=list)

    @property
    def delivered(self) -> int:
        return sum(day.delivered for day in self.days)

    @property
    def ended(self) -> int:
        return sum(day.ended for day in self.days)

    @property
    def lost(self) -> int:
        return sum(day.lost for day in self.days)

    @property
    def unconfirmed(self) -> int:
        return sum(day.unconfirmed for day in self.days)

    @property
    def rate(self) -> str:
        return chart.rate(self.delivered, self.ended)


def routes(services: Services) -> Sequence[Route]:
    return [view(services, HOME, show_traffic), view(services, NOW, show_now)]


async def show_now(session: OperatorSession) -> Response:
    return session.services.templates.page("traffic_now.html.jinja", **await _now(session))


async def show_traffic(session: OperatorSession) -> Response:
    today = local_day(datetime.now(UTC))
    async with session.database.connection() as connection:
        ended = await totals.days(connection, today - timedelta(days=chart.DAYS - 1), today)
        under_way = await totals.under_way_by_day(connection)
        names = _names(await get_tariff(connection))
    months: dict[str, Month] = {}
    for day in ended:
        months.setdefault(day.country, Month(names.get(day.country, day.country))).days.append(day)
    return session.page(
        "traffic.html.jinja",
        chart=chart.bars(chart.add_up(ended, under_way), today),
        months=list(months.values()),
        now_path=NOW,
        **await _now(session),
    )


async def _now(session: OperatorSession) -> Mapping[str, Any]:
    now = datetime.now(UTC)
    lately, since = (latencies.slot_of(now - back) for back in (LATELY, HOUR))
    async with session.database.connection() as connection:
        names = _names(await get_tariff(connection))
        accepted = await totals.accepted(connection, since, lately, now)
        handovers = await latencies.list_submissions(connection, since, lately)
        ends = await latencies.list_ends(connection, since, lately)
        stands = await totals.stands(connection)
        elsewhere = await totals.elsewhere(connection)
    seen = _Seen(names, accepted, handovers, ends)
    return {
        "windows": [
            Window("Last 10 minutes", "lately", lately, seen.flows("lately"), seen.lanes("lately")),
            Window("Last hour", "hour", since, seen.flows("count"), seen.lanes("count")),
        ],
        "stands": [_waiting(one, names, now) for one in stands],
        "elsewhere": _elsewhere(elsewhere),
        "at": now,
        "percents": PERCENTS,
    }


def _names(tariff: Tariff) -> Mapping[str, str]:
    return {one.country: one.name for one in tariff.destinations}


@dataclass(frozen=True, slots=True)
class _Seen:
    """The counts of both windows; `lately` and `count` are the names of their columns."""

    names: Mapping[str, str]
    accepted: Sequence[Accepted]
    handovers: Sequence[SubmissionCount]
    ends: Sequence[EndCount]

    def flows(self, column: str) -> Sequence[Flow]:
        """Return what came in and went out in one window, by country, and all of it if there are several."""
        found: dict[str, Flow] = {}
        counted: tuple[Accepted | SubmissionCount | EndCount, ...] = (
            *self.accepted,
            *self.handovers,
            *self.ends,
        )
        for one in counted:
            if getattr(one, column):
                found.setdefault(one.country, Flow(self.names.get(one.country, one.country)))
        every = Flow("All")
        for country, flow in found.items():
            for total in (flow, every):
                self._add(total, country, column)
        ordered = [found[country] for country in sorted(found)]
        return [*ordered, every] if len(found) != 1 else ordered

    def _add(self, flow: Flow, country: str, column: str) -> None:
        for incoming in self.accepted:
            if incoming.country == country:
                flow.accepted += getattr(incoming, column)
                flow.is_estimate |= incoming.is_estimate
        flow.submitted += sum(getattr(one, column) for one in self.handovers if one.country == country)
        for end in self.ends:
            if end.country == country and end.outcome == "delivered":
                flow.delivered += getattr(end, column)
            elif end.country == country and end.outcome in _LOST:
                flow.failed += getattr(end, column)

    def lanes(self, column: str) -> Sequence[LaneTimes]:
        found = []
        for lane, name in LANES.items():
            counts: dict[int, int] = {}
            for one in self.handovers:
                if one.lane == lane:
                    counts[one.bucket] = counts.get(one.bucket, 0) + getattr(one, column)
            times = [histogram.percentile_ms(counts, percent) for percent in PERCENTS]
            words = ["—" if time is None else histogram.write_ms(time) for time in times]
            found.append(LaneTimes(name, sum(counts.values()), words))
        return found


def _waiting(stand: Stand, names: Mapping[str, str], now: datetime) -> Waiting:
    age_ms = max(0, int(now.timestamp() * _MS) - stand.oldest_ms)
    return Waiting(
        names.get(stand.country, stand.country),
        LANES[stand.lane],
        _bounded(stand.count),
        histogram.write_ms(age_ms),
    )


def _elsewhere(found: Elsewhere) -> Mapping[str, str]:
    return {
        "in-flight": _bounded(found.in_flight),
        "retries": _bounded(found.retries),
        "in-doubt": _bounded(found.in_doubt),
    }


def _bounded(count: int) -> str:
    return f"{count:,} or more" if count >= WAITING_MAX else f"{count:,}"
