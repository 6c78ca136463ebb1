"""The chart of a month, and delivery rates."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.html.chart import BOTTOM, DAYS, KINDS, LEFT, WIDTH, Chart, DayTotals, Rect, add_up, bars, rate
from tumira.sending.daily_totals import Day

TODAY: Final = date(2026, 11, 16)
COUNTS: Final = st.integers(0, 3_000_000)


def some_days(figures: Sequence[tuple[int, int, int, int]]) -> Sequence[DayTotals]:
    return [DayTotals(TODAY - timedelta(days=back), *counts) for back, counts in enumerate(figures)]


def top(rect: Rect) -> float:
    return float(rect.y)


def bottom(rect: Rect) -> float:
    return round(float(rect.y) + float(rect.height), 1)


def tick_labels(chart: Chart) -> Sequence[str]:
    return [figure for _, figure in chart.ticks]


def value(label: str) -> float:
    sizes = {"k": 1_000, "M": 1_000_000}
    return float(label.rstrip("kM")) * sizes.get(label[-1], 1)


@settings(max_examples=50)
@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), max_size=40))
def test_parts_stand_on_each_other_and_a_bar_ends_at_its_total(
    figures: Sequence[tuple[int, int, int, int]],
) -> None:
    chart = bars(some_days(figures), TODAY)
    assert len(chart.bars) == DAYS
    (first, *_, last) = [*chart.ticks, chart.ticks[-1]]
    per_message = 0.0 if chart.is_empty else (float(first[0]) - float(last[0])) / value(last[1])
    for bar in chart.bars:
        assert [rect.kind for rect in bar.rects] == [kind for kind in KINDS if getattr(bar.totals, kind) > 0]
        edge = float(BOTTOM)
        for rect in bar.rects:
            assert bottom(rect) == edge
            assert float(rect.height) >= 0.9
            assert 0 <= top(rect) < edge
            assert LEFT <= float(rect.x) <= float(rect.x) + float(rect.width) <= WIDTH
            edge = top(rect)
        height = BOTTOM - edge
        if bar.totals.total * per_message >= 8:
            assert height == pytest.approx(bar.totals.total * per_message, abs=0.06)
        else:
            # Small parts of a small bar are made visible.
            assert height <= 8


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
    chart = bars([DayTotals(TODAY, delivered=most)], TODAY)
    assert tick_labels(chart) == labels
    assert float(chart.ticks[0][0]) == BOTTOM
    assert float(chart.ticks[-1][0]) <= top(chart.bars[-1].rects[0])


def test_one_failure_among_many_is_seen_and_does_not_make_the_bar_higher() -> None:
    chart = bars([DayTotals(TODAY, delivered=99_999, failed=1)], TODAY)
    delivered, failed = chart.bars[-1].rects
    assert (failed.kind, failed.y, failed.height) == ("failed", "8", "1")
    assert (delivered.y, delivered.height) == ("9", "151")


@pytest.mark.parametrize("days", [[], [DayTotals(TODAY)], [DayTotals(TODAY - timedelta(days=30), 5)]])
def test_without_messages_there_is_only_the_line_at_zero(days: Sequence[DayTotals]) -> None:
    chart = bars(days, TODAY)
    assert chart.is_empty
    assert tick_labels(chart) == ["0"]
    assert len(chart.bars) == DAYS
    assert all(bar.rects == [] for bar in chart.bars)
    assert chart.summary == "No messages in the last 30 days."
    assert chart.bars[-1].title == "16 Nov: no messages"


def test_days_go_from_the_oldest_to_today_with_a_name_every_week() -> None:
    chart = bars([DayTotals(TODAY - timedelta(days=29), 1), DayTotals(TODAY + timedelta(days=1), 7)], TODAY)
    assert [bar.totals.day for bar in chart.bars] == [
        TODAY - timedelta(days=back) for back in range(29, -1, -1)
    ]
    assert [name for _, name, _ in chart.labels] == ["19 Oct", "26 Oct", "2 Nov", "9 Nov", "16 Nov"]
    assert [anchor for _, _, anchor in chart.labels] == ["middle"] * 4 + ["end"]
    assert tick_labels(chart) == ["0", "1"]


@settings(max_examples=50)
@given(COUNTS, st.dates(date(2020, 1, 1), date(2090, 1, 1)))
def test_no_label_runs_out_of_the_picture_or_into_the_next_one(count: int, today: date) -> None:
    chart = bars([DayTotals(today, count)], today)
    # A character of a sans-serif font is no wider than 0.6 of its height, which is 10 at this width.
    room = 0.0
    for x, name, anchor in chart.labels:
        width = 6.0 * len(name)
        start = float(x) - (width if anchor == "end" else width / 2)
        assert start >= room
        room = start + width
    assert room <= WIDTH
    assert all(6.0 * len(figure) <= LEFT - 4 for _, figure in chart.ticks)


def test_the_words_say_what_the_picture_shows() -> None:
    chart = bars(
        [
            DayTotals(TODAY, delivered=1_200, failed=3, waiting=40),
            DayTotals(TODAY - timedelta(days=4), unconfirmed=1),
        ],
        TODAY,
    )
    assert chart.bars[-1].title == "16 Nov: 1,200 delivered, 3 failed, 40 waiting"
    assert chart.bars[-5].title == "12 Nov: 1 unconfirmed"
    assert chart.summary == ("1,244 messages in the last 30 days; the busiest day was 16 Nov, with 1,243.")


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
        (0, 0, "—"),
        (0, 1, "0 %"),
        (1, 1, "100 %"),
        (986, 1000, "98.6 %"),
        (2, 3, "66.7 %"),
        (999_999, 1_000_000, "99.9 %"),
        (1, 1_000_000, "0.1 %"),
        (1, 2, "50.0 %"),
    ):
        assert rate(delivered, ended) == written
