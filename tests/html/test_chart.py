"""Charts of counts and times, the chart of a month, and delivery rates."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.html.chart import DAYS, KINDS, DayTotals, add_up, bars, of_day, rate
from tumira.html.plot import (
    HEIGHT,
    WIDTH,
    Plot,
    Rect,
    Series,
    Slot,
    count_scale,
    draw_bars,
    draw_lines,
    time_scale,
)
from tumira.sending.daily_totals import Day

TODAY: Final = date(2026, 11, 16)
COUNTS: Final = st.integers(0, 3_000_000)


def some_days(figures: Sequence[tuple[int, int, int, int]]) -> Sequence[DayTotals]:
    return [DayTotals(TODAY - timedelta(days=back), *counts) for back, counts in enumerate(figures)]


def top(rect: Rect) -> float:
    return float(rect.y)


def bottom(rect: Rect) -> float:
    return round(float(rect.y) + float(rect.height), 1)


def tick_labels(plot: Plot) -> Sequence[str]:
    return [figure for _, figure in plot.ticks]


@settings(max_examples=50)
@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), max_size=40))
def test_parts_stand_on_each_other_and_a_bar_ends_at_its_total(
    figures: Sequence[tuple[int, int, int, int]],
) -> None:
    days = some_days(figures)
    plot = bars(days, TODAY)
    shown = [one for one in reversed(days[:DAYS]) if one.total]
    assert len(plot.columns) == len(plot.rows) == len(shown)
    scale = count_scale(max((one.total for one in shown), default=0))
    for totals, column in zip(shown, plot.columns, strict=True):
        area, *parts = column.rects
        assert [rect.kind for rect in parts] == [kind for kind in KINDS if getattr(totals, kind) > 0]
        edge = float(HEIGHT)
        for rect in parts:
            assert bottom(rect) == edge
            assert float(rect.height) >= 0.9
            assert 0 <= top(rect) < edge
            assert float(area.x) <= float(rect.x)
            assert float(rect.x) + float(rect.width) <= float(area.x) + float(area.width) <= WIDTH
            edge = top(rect)
        height = scale.height(totals.total) * HEIGHT
        if height >= 8:
            assert HEIGHT - edge == pytest.approx(height, abs=0.06)
        else:
            # Small parts of a small bar are made visible.
            assert HEIGHT - edge <= 8


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (1, ["0", "1"]),
        (4, ["0", "1", "2", "3", "4"]),
        (5, ["0", "2", "4", "6"]),
        (17, ["0", "5", "10", "15", "20"]),
        (1_999, ["0", "500", "1k", "1.5k", "2k"]),
        (1_234_567, ["0", "500k", "1M", "1.5M"]),
        (60_000_000, ["0", "20M", "40M", "60M"]),
    ],
)
def test_ticks_are_few_round_and_reach_the_highest_bar(most: int, labels: Sequence[str]) -> None:
    plot = bars([DayTotals(TODAY, delivered=most)], TODAY)
    assert tick_labels(plot) == labels
    assert (plot.ticks[0][0], plot.ticks[-1][0]) == ("100%", "0%")


def test_one_failure_among_many_is_seen_and_does_not_make_the_bar_higher() -> None:
    plot = bars([DayTotals(TODAY, delivered=99_999, failed=1)], TODAY)
    _, delivered, failed = plot.columns[-1].rects
    assert (failed.kind, failed.y, failed.height) == ("failed", "0", "1")
    assert (delivered.y, delivered.height) == ("1", "159")


@pytest.mark.parametrize("days", [[], [DayTotals(TODAY)], [DayTotals(TODAY - timedelta(days=30), 5)]])
def test_without_messages_there_is_only_the_line_at_zero(days: Sequence[DayTotals]) -> None:
    plot = bars(days, TODAY)
    assert plot.is_empty
    assert tick_labels(plot) == ["0"]
    assert (plot.columns, plot.rows) == ([], [])
    assert plot.summary == "No messages in the last 30 days."


def test_days_go_from_the_oldest_to_today_with_a_name_every_ten_days() -> None:
    plot = bars([DayTotals(TODAY - timedelta(days=29), 1), DayTotals(TODAY + timedelta(days=1), 7)], TODAY)
    assert plot.labels == [
        ("31.7%", "27 Oct", "middle"),
        ("65%", "6 Nov", "middle"),
        ("100%", "16 Nov", "end"),
    ]
    assert tick_labels(plot) == ["0", "1"]


def test_the_words_and_the_table_say_what_the_picture_shows() -> None:
    days = [
        DayTotals(TODAY, delivered=1_200, failed=3, waiting=40),
        DayTotals(TODAY - timedelta(days=4), unconfirmed=1),
    ]
    plot = bars(days, TODAY)
    assert [one.title for one in plot.columns] == [
        "12 Nov: Unconfirmed 1",
        "16 Nov: Delivered 1,200 · Failed 3 · In progress 40",
    ]
    assert plot.summary == "1,244 messages in the last 30 days. Busiest day: 16 Nov, with 1,243."
    assert plot.heads == ["Day", "Messages", "Delivered", "Failed", "Unconfirmed", "In progress"]
    assert plot.rows == [
        ("16 Nov", ["1,243", "1,200", "3", "0", "40"]),
        ("12 Nov", ["1", "0", "0", "1", "0"]),
    ]
    assert of_day(days, TODAY).total == 1_243
    assert of_day(days, TODAY - timedelta(days=1)).total == 0


def test_a_line_has_gaps_and_a_single_value_is_seen() -> None:
    slots = [Slot(f"{hour}:00") for hour in range(4)]
    series = [
        Series("accepted", "Accepted", [0, 10, 20, None]),
        Series("failed", "Failed", [5, None, None, 20]),
    ]
    plot = draw_lines("Hour", slots, series, "Four hours.", count_scale(20))
    assert plot.lines == [
        ("accepted", "M90 160L270 80L450 0"),
        ("failed", "M22.5 120h135M562.5 0h135"),
    ]
    assert plot.rows[0] == ("3:00", ["\N{EN DASH}", "20"])
    assert [one.title for one in plot.columns][1] == "1:00: Accepted 10"
    assert draw_bars("Hour", slots, [Series("a", "A", [0, 0, 0, 0])], "None.", "All").is_empty


@pytest.mark.parametrize(
    ("shortest", "longest", "figures"),
    [
        (0, 0, ["10 ms", "100 ms"]),
        (45, 80, ["10 ms", "100 ms"]),
        (45, 2_300, ["10 ms", "100 ms", "1 s", "10 s"]),
        (1_500, 5_000_000, ["1 s", "10 s", "1 min", "10 min", "1 h", "10 h"]),
    ],
)
def test_times_have_a_scale_on_which_short_and_long_ones_can_be_read(
    shortest: int, longest: int, figures: Sequence[str]
) -> None:
    scale = time_scale(shortest, longest)
    assert [scale.write_tick(tick) for tick in scale.ticks] == figures
    assert (scale.height(scale.ticks[0]), scale.height(scale.ticks[-1])) == (0.0, 1.0)
    assert 0.0 <= scale.height(shortest) <= scale.height(longest) <= 1.0


def test_countries_are_added_up_and_what_waits_is_put_beside_what_has_ended() -> None:
    yesterday = TODAY - timedelta(days=1)
    ended = [
        Day(yesterday, "ZA", 1, 2, 3, 4, 5),
        Day(yesterday, "ZW", 10, 20, 30, 40, 50),
        Day(TODAY, "ZW", 7, 0, 0, 0, 0),
    ]
    assert add_up(ended, [(TODAY, 8), (TODAY - timedelta(days=3), 9)]) == [
        DayTotals(TODAY - timedelta(days=3), waiting=9),
        DayTotals(yesterday, delivered=11, failed=99, unconfirmed=55),
        DayTotals(TODAY, delivered=7, waiting=8),
    ]


def test_a_rate_is_rounded_but_never_to_all_or_nothing() -> None:
    for delivered, ended, written in (
        (0, 0, "\N{EN DASH}"),
        (0, 1, "0%"),
        (1, 1, "100%"),
        (986, 1000, "98.6%"),
        (2, 3, "66.7%"),
        (999_999, 1_000_000, "99.9%"),
        (1, 1_000_000, "0.1%"),
        (1, 2, "50.0%"),
    ):
        assert rate(delivered, ended) == written
