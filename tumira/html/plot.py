"""Charts as SVG that fill the width of their card.

Bars and lines are drawn in the units of a view box, which is stretched to the card. Figures and labels stand
beside it at percentages, so that no letter is stretched. The stylesheet colours each series by its class.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from tumira.core import histogram

# The view box, as in the template. Thirty days and 24 hours have whole units each.
WIDTH: Final = 720
HEIGHT: Final = 160

_BAR_SHARE: Final = 0.75
# One failed message among thousands is still to be seen.
_PART_MIN: Final = 1.0
_STEPS_MAX: Final = 4
# The figures of a scale of times, each about ten times the one before.
_TIMES: Final = {
    10: "10 ms",
    100: "100 ms",
    1_000: "1 s",
    10_000: "10 s",
    60_000: "1 min",
    600_000: "10 min",
    3_600_000: "1 h",
    36_000_000: "10 h",
    360_000_000: "100 h",
}

Write = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Slot:
    """A day or an hour: its name, and its label below the chart if it has one."""

    name: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """A line, or a part of each bar: its classes, its name, and its value in each slot."""

    kind: str
    name: str
    values: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Scale:
    """The heights of values, from 0 to 1; the values that have a figure; and how values are written."""

    height: Callable[[int], float]
    ticks: Sequence[int]
    write_tick: Write
    write: Write


@dataclass(frozen=True, slots=True)
class Rect:
    kind: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class Column:
    """A slot with values: what they are, in words, its area, and the parts of its bar from the bottom up."""

    title: str
    rects: Sequence[Rect]


@dataclass(frozen=True, slots=True)
class Plot:
    """All that the drawing needs, and the same as the rows of a table, the newest slot first.

    `ticks` are heights and figures, `labels` places, texts and anchors, `lines` classes and paths. `summary`
    says in a sentence what is to be seen. Where `is_empty`, the page should say so in words instead.
    """

    summary: str
    is_empty: bool
    ticks: Sequence[tuple[str, str]]
    labels: Sequence[tuple[str, str, str]]
    columns: Sequence[Column]
    lines: Sequence[tuple[str, str]]
    legend: Sequence[tuple[str, str]]
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


def draw_bars(
    slot_name: str, slots: Sequence[Slot], series: Sequence[Series], summary: str, total_name: str
) -> Plot:
    """Draw a bar for each slot, whose parts are the series, from the bottom up."""
    totals = [sum(one.values[place] or 0 for one in series) for place in range(len(slots))]
    scale = count_scale(max(totals))
    table = [Series("", total_name, totals), *series]
    return _plot(slot_name, slots, series, scale, summary, table, parts=_parts)


def draw_lines(
    slot_name: str, slots: Sequence[Slot], series: Sequence[Series], summary: str, scale: Scale
) -> Plot:
    """Draw a line for each series, with a gap where it has no value."""
    return _plot(slot_name, slots, series, scale, summary, series)


def count_scale(highest: int) -> Scale:
    """Return a scale from zero, with at most four round steps."""
    step = _step(highest)
    top = -(-highest // step) * step
    return Scale(
        lambda count: count / top if top else 0.0, range(0, top + 1, step), write_short, lambda n: f"{n:,}"
    )


def time_scale(shortest_ms: int, longest_ms: int) -> Scale:
    """Return a logarithmic scale of times: what is usual and what is slow can both be read from it."""
    low = max((tick for tick in _TIMES if tick <= shortest_ms), default=min(_TIMES))
    high = min((tick for tick in _TIMES if tick >= longest_ms and tick > low), default=max(_TIMES))
    return Scale(
        lambda ms: min(1.0, max(0.0, log(max(ms, 1) / low) / log(high / low))),
        [tick for tick in _TIMES if low <= tick <= high],
        _TIMES.__getitem__,
        histogram.write_ms,
    )


def _plot(
    slot_name: str,
    slots: Sequence[Slot],
    series: Sequence[Series],
    scale: Scale,
    summary: str,
    table: Sequence[Series],
    parts: Callable[[Sequence[Series], int, Scale, float], Sequence[Rect]] | None = None,
) -> Plot:
    pitch = WIDTH / len(slots)
    filled = [place for place in range(len(slots)) if any(one.values[place] for one in series)]
    last = len(slots) - 1
    return Plot(
        summary=summary,
        is_empty=not filled,
        ticks=[
            (f"{_short(100 - 100 * scale.height(tick))}%", scale.write_tick(tick)) for tick in scale.ticks
        ],
        labels=[
            # In the middle of the last slot, it might run out of the card.
            ("100%", slot.label, "end")
            if place == last
            else (f"{_short(100 * (place + 0.5) / len(slots))}%", slot.label, "middle")
            for place, slot in enumerate(slots)
            if slot.label
        ],
        columns=[
            Column(
                _title(slots[place], series, place, scale.write),
                [
                    Rect("slot", _short(pitch * place), "0", _short(pitch), str(HEIGHT)),
                    *([] if parts is None else parts(series, place, scale, pitch)),
                ],
            )
            for place in filled
        ],
        lines=[] if parts is not None else [(one.kind, _path(one, scale, pitch)) for one in series],
        legend=[(one.kind, one.name) for one in series],
        heads=[slot_name, *(one.name for one in table)],
        rows=[
            (slots[place].name, [_cell(one.values[place], scale.write) for one in table])
            for place in reversed(filled)
        ],
    )


def _parts(series: Sequence[Series], place: int, scale: Scale, pitch: float) -> Sequence[Rect]:
    counts = {one.kind: one.values[place] or 0 for one in series}
    unit = scale.height(1) * HEIGHT
    heights = {kind: max(_PART_MIN, count * unit) for kind, count in counts.items() if count > 0}
    # What the small parts were given is taken off the largest one, so that the bar ends where it should.
    largest = max(heights, key=heights.__getitem__)
    excess = sum(heights.values()) - sum(counts.values()) * unit
    heights[largest] = max(_PART_MIN, heights[largest] - excess)
    rects = []
    width = pitch * _BAR_SHARE
    x = pitch * place + (pitch - width) / 2
    bottom = float(HEIGHT)
    for kind, height in heights.items():
        # Edges are rounded, not heights, so that parts neither overlap nor leave a gap.
        low, high = round(bottom, 1), round(bottom - height, 1)
        rects.append(Rect(kind, _short(x), _short(high), _short(width), _short(low - high)))
        bottom -= height
    return rects


def _path(series: Series, scale: Scale, pitch: float) -> str:
    path = []
    values = [None, *series.values, None]
    for place, (before, value, after) in enumerate(zip(values, values[1:], values[2:], strict=False)):
        if value is not None:
            x, y = pitch * (place + 0.5), _short(HEIGHT - HEIGHT * scale.height(value))
            if before is None and after is None:
                # One value alone is a line as wide as a bar would be.
                width = pitch * _BAR_SHARE
                path.append(f"M{_short(x - width / 2)} {y}h{_short(width)}")
            else:
                path.append(f"{'M' if before is None else 'L'}{_short(x)} {y}")
    return "".join(path)


def _title(slot: Slot, series: Sequence[Series], place: int, write: Write) -> str:
    known = ((one.name, one.values[place]) for one in series)
    return f"{slot.name}: " + " · ".join(f"{name} {write(value)}" for name, value in known if value)


def _cell(value: int | None, write: Write) -> str:
    return "\N{EN DASH}" if value is None else write(value)


def _step(highest: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … of which four reach the highest value."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power * _STEPS_MAX >= highest:
                return digit * power
        power *= 10


def write_short(count: int) -> str:
    """Write a round number so that it has room beside the chart: 500, 1.5k, 20k, 2M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return _short(count / size) + letter
    return str(count)


def _short(value: float) -> str:
    """Write a number with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")
