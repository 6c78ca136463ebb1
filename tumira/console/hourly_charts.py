"""Charts of the last 24 hours: messages, latencies and errors by the hour."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from tumira.core import histogram
from tumira.core.translation import _
from tumira.delivery.store.hourly import HOUR
from tumira.html.page import LOCAL, write_clock, write_minute
from tumira.html.plot import Plot, Series, Slot, count_scale, draw_bars, draw_lines, time_scale
from tumira.sending.lifecycle import FAILURE_REASONS, MESSAGE_STATUSES

HOURS: Final = 24
LOST: Final = frozenset({"failed", "undelivered", "expired"})
# Counted when a carrier has taken the last segment of a message.
SUBMITTED: Final = "sent"

_PERCENTS: Final = {50: "delivered", 95: "accepted dashed", 99: "unconfirmed dotted"}
# The classes of the most frequent kinds of errors; all others are one kind.
_KINDS: Final = ("failed", "unconfirmed", "submitted", "accepted")
_REST: Final = "waiting"
_LABEL_EVERY: Final = 6

Outcomes = Mapping[datetime, Mapping[str, int]]


def last_hours(now: datetime) -> Sequence[datetime]:
    """Return when the last hours began; the last one is not over."""
    this = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return [this - HOUR * back for back in range(HOURS - 1, -1, -1)]


def is_reason(outcome: str) -> bool:
    """Tell whether this is why a message failed."""
    return outcome in FAILURE_REASONS


def is_answer(outcome: str) -> bool:
    """Tell whether this is what a carrier answered when it did not take a message."""
    return outcome not in FAILURE_REASONS and outcome not in MESSAGE_STATUSES


def draw_messages(
    hours: Sequence[datetime], outcomes: Outcomes, accepted: Sequence[int] | None = None
) -> Plot:
    """Draw how many messages were accepted, submitted, delivered and failed in each hour."""

    def count(*wanted: str) -> Sequence[int]:
        return [sum(outcomes.get(hour, {}).get(one, 0) for one in wanted) for hour in hours]

    series = [
        Series("submitted dotted", _("Submitted"), count(SUBMITTED)),
        Series("delivered", _("Delivered"), count("delivered")),
        Series("failed", _("Failed"), count(*LOST)),
    ]
    if accepted is not None:
        series.insert(0, Series("accepted dashed", _("Accepted"), accepted))
    totals = " · ".join(f"{one.name} {sum(filter(None, one.values)):,}" for one in series)
    summary = _("Messages per hour since {since}: {totals}").format(
        since=write_minute(hours[0]), totals=totals
    )
    highest = max(value or 0 for one in series for value in one.values)
    return draw_lines(_("Hour"), _slots(hours), series, summary, count_scale(highest))


def draw_latencies(hours: Sequence[datetime], times: Mapping[datetime, Mapping[int, int]]) -> Plot:
    """Draw how long messages took from acceptance to submission in each hour."""
    series = [
        Series(kind, f"p{percent}", [histogram.percentile_ms(times.get(hour, {}), percent) for hour in hours])
        for percent, kind in _PERCENTS.items()
    ]
    known = [value for one in series for value in one.values if value is not None]
    summary = _("No message was submitted since {since}.").format(since=write_minute(hours[0]))
    if known:
        summary = _("Time to submission per hour since {since}: from {least} to {most}").format(
            since=write_minute(hours[0]),
            least=histogram.write_ms(min(known)),
            most=histogram.write_ms(max(known)),
        )
    scale = time_scale(min(known, default=0), max(known, default=0))
    return draw_lines(_("Hour"), _slots(hours), series, summary, scale)


def draw_errors(
    hours: Sequence[datetime], outcomes: Outcomes, is_error: Callable[[str], bool], name: str
) -> Plot:
    """Draw how many errors of each kind there were in each hour; seldom kinds together."""
    totals: Counter[str] = Counter()
    for counts in outcomes.values():
        totals.update({outcome: count for outcome, count in counts.items() if is_error(outcome)})
    most = [outcome for outcome, _count in totals.most_common(len(_KINDS))]
    series = [
        Series(kind, outcome, [outcomes.get(hour, {}).get(outcome, 0) for hour in hours])
        for kind, outcome in zip(_KINDS, most, strict=False)
    ]
    rest = totals.keys() - set(most)
    if rest:
        values = [sum(outcomes.get(hour, {}).get(one, 0) for one in rest) for hour in hours]
        series.append(Series(_REST, _("Other"), values))
    listed = " · ".join(f"{one.name} {sum(filter(None, one.values)):,}" for one in series)
    summary = _("{name} per hour since {since}: {totals}").format(
        name=name, since=write_minute(hours[0]), totals=listed or _("none")
    )
    return draw_bars(_("Hour"), _slots(hours), series, summary, _("All"))


def _slots(hours: Sequence[datetime]) -> Sequence[Slot]:
    return [
        Slot(write_minute(hour), "" if hour.astimezone(LOCAL).hour % _LABEL_EVERY else write_clock(hour))
        for hour in hours
    ]


def describe(hours: Sequence[datetime]) -> str:
    """Say which time the charts cover."""
    text = _("By the hour since {since}. The last hour is counted from {last}.")
    return text.format(since=write_minute(hours[0]), last=write_clock(hours[-1]))
