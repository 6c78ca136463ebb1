"""The bar chart of a month of traffic, drawn as SVG and coloured by the stylesheet.

All figures are short strings in the units of the view box, which is as wide as a small phone: there a unit
is a pixel, and a label of 10 units can be read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from tumira.sending.daily_totals import Day

DAYS: Final = 30
KINDS: Final = ("delivered", "failed", "unconfirmed", "waiting")

# As in the template. Around the bars there is room for a figure on the left, half of one above, and the days
# below.
WIDTH: Final = 360
LEFT: Final = 32
BOTTOM: Final = 160
_TOP: Final = 8
_BAR_SHARE: Final = 0.75
# One failed message among thousands is still to be seen.
_PART_MIN: Final = 1.0

_STEPS_MAX: Final = 4
_LABEL_EVERY: Final = 7
_PER_MILLE: Final = 1000


@dataclass(frozen=True, slots=True)
class DayTotals:
    """The outcomes of the messages that were accepted on one day, to all countries together.

    `failed` are all that certainly did not arrive: undelivered, expired and failed.
    """

    day: date
    delivered: int = 0
    failed: int = 0
    unconfirmed: int = 0
    waiting: int = 0

    @property
    def total(self) -> int:
        return self.delivered + self.failed + self.unconfirmed + self.waiting


@dataclass(frozen=True, slots=True)
class Rect:
    """A part of a bar; `kind` is its class."""

    kind: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A day: its figures for the table, its parts from the bottom up (none for a day without messages).

    `title` says the figures in words, for a `<title>` inside the bar's `<g>`.
    """

    totals: DayTotals
    title: str
    rects: Sequence[Rect]


@dataclass(frozen=True, slots=True)
class Chart:
    """All that the drawing needs.

    `ticks` are the heights of the horizontal lines with their figures, from zero up. `bars` and `labels` go
    from the oldest day to today; a label has the place of its text, the day's name and the text's anchor.
    `summary` says in a sentence what is to be seen, for the name of the image. Where `is_empty`, there is
    only the line at zero, and the page should say so in words.
    """

    ticks: Sequence[tuple[str, str]]
    bars: Sequence[Bar]
    labels: Sequence[tuple[str, str, str]]
    summary: str
    is_empty: bool


def add_up(ended: Iterable[Day], waiting: Iterable[tuple[date, int]]) -> Sequence[DayTotals]:
    """Add up ended and waiting messages of all countries by day."""
    sums: dict[date, dict[str, int]] = {}
    for one in ended:
        figures = sums.setdefault(one.day, dict.fromkeys(KINDS, 0))
        figures["delivered"] += one.delivered
        figures["failed"] += one.lost
        figures["unconfirmed"] += one.unconfirmed
    for day, count in waiting:
        sums.setdefault(day, dict.fromkeys(KINDS, 0))["waiting"] += count
    return [DayTotals(day, **sums[day]) for day in sorted(sums)]


def bars(days: Sequence[DayTotals], today: date) -> Chart:
    """Draw the thirty days that end today; a day that is not given had no messages, others are left out."""
    given = {one.day: one for one in days}
    shown = [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    totals = [given.get(day) or DayTotals(day) for day in shown]
    highest = max(one.total for one in totals)
    step = _step(highest)
    steps = -(-highest // step)
    scale = (BOTTOM - _TOP) / (steps * step) if steps else 0.0
    pitch = (WIDTH - LEFT) / DAYS
    return Chart(
        ticks=[
            (_short(BOTTOM - count * scale), _figure(count)) for count in range(0, steps * step + 1, step)
        ],
        bars=[
            Bar(one, _title(one), _rects(one, LEFT + pitch * place, pitch, scale))
            for place, one in enumerate(totals)
        ],
        labels=[
            # Today's would run out of the picture if it stood in the middle of its bar.
            (_short(WIDTH), _name(day), "end")
            if place == DAYS - 1
            else (_short(LEFT + pitch * (place + 0.5)), _name(day), "middle")
            for place, day in enumerate(shown)
            if (DAYS - 1 - place) % _LABEL_EVERY == 0
        ],
        summary=_summary(totals),
        is_empty=highest == 0,
    )


def _step(highest: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … of which four reach the highest bar."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power * _STEPS_MAX >= highest:
                return digit * power
        power *= 10


def _rects(totals: DayTotals, left: float, pitch: float, scale: float) -> Sequence[Rect]:
    counts = {kind: getattr(totals, kind) for kind in KINDS}
    heights = {kind: max(_PART_MIN, count * scale) for kind, count in counts.items() if count > 0}
    if not heights:
        return []
    # What the small parts were given is taken off the largest one, so that the bar ends where it should.
    largest = max(heights, key=heights.__getitem__)
    excess = sum(heights.values()) - totals.total * scale
    heights[largest] = max(_PART_MIN, heights[largest] - excess)
    rects = []
    width = pitch * _BAR_SHARE
    x = left + (pitch - width) / 2
    bottom = float(BOTTOM)
    for kind, height in heights.items():
        # Edges are rounded, not heights, so that parts neither overlap nor leave a gap.
        low, high = round(bottom, 1), round(bottom - height, 1)
        rects.append(Rect(kind, _short(x), _short(high), _short(width), _short(low - high)))
        bottom -= height
    return rects


def _title(totals: DayTotals) -> str:
    if totals.total == 0:
        return f"{_name(totals.day)}: no messages"
    figures = ((getattr(totals, kind), kind) for kind in KINDS)
    return f"{_name(totals.day)}: " + ", ".join(f"{count:,} {kind}" for count, kind in figures if count)


def _summary(totals: Sequence[DayTotals]) -> str:
    total = sum(one.total for one in totals)
    if total == 0:
        return f"No messages in the last {DAYS} days."
    busiest = max(totals, key=lambda one: one.total)
    messages = "1 message" if total == 1 else f"{total:,} messages"
    most = f"the busiest day was {_name(busiest.day)}, with {busiest.total:,}"
    return f"{messages} in the last {DAYS} days; {most}."


def rate(delivered: int, ended: int) -> str:
    """Write which share of the messages that have ended was delivered, like `98.6 %`.

    It says 0 % and 100 % only where that is exactly so, and a dash where nothing has ended.
    """
    assert 0 <= delivered <= ended
    if ended == 0:
        return "—"
    if delivered in {0, ended}:
        return "0 %" if delivered == 0 else "100 %"
    per_mille = (2 * _PER_MILLE * delivered + ended) // (2 * ended)
    per_mille = min(max(per_mille, 1), _PER_MILLE - 1)
    return f"{per_mille // 10}.{per_mille % 10} %"


def _name(day: date) -> str:
    return f"{day.day} {day:%b}"


def _figure(count: int) -> str:
    """Write a round number so that it has room beside the bars: 500, 1.5k, 20k, 2M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return _short(count / size) + letter
    return str(count)


def _short(value: float) -> str:
    """Write a number with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")
