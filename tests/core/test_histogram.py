"""Histograms of times."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.core.histogram import LAST, LONGEST_MS, bounds_ms, bucket_of, percentile_ms, write_ms

TIMES = st.integers(0, LONGEST_MS - 1)


def test_the_buckets_follow_each_other_from_nothing_to_three_days() -> None:
    bounds = [bounds_ms(bucket) for bucket in range(LAST + 1)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == LONGEST_MS == 72 * 3_600_000
    assert [high for _, high in bounds[:-1]] == [low for low, _ in bounds[1:]]


@given(TIMES)
def test_a_time_lies_in_its_bucket(ms: int) -> None:
    low, high = bounds_ms(bucket_of(ms))
    assert low <= ms < high


def test_a_clock_that_is_ahead_and_a_wait_without_end_have_buckets_too() -> None:
    assert bucket_of(-5_000) == 0
    assert bucket_of(10 * LONGEST_MS) == LAST


@given(st.lists(TIMES, min_size=1, max_size=200), st.integers(1, 100))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(times: list[int], percent: int) -> None:
    rank = -(-len(times) * percent // 100)
    true = sorted(times)[rank - 1]
    found = percentile_ms(Counter(map(bucket_of, times)), percent)
    low, high = bounds_ms(bucket_of(true))
    assert found is not None
    assert low <= found <= high


@given(st.lists(TIMES, min_size=1, max_size=50))
def test_percentiles_grow(times: list[int]) -> None:
    counts = Counter(map(bucket_of, times))
    found = [percentile_ms(counts, percent) or 0 for percent in (1, 50, 95, 99, 100)]
    assert found == sorted(found)


def test_nothing_counted_has_no_percentile() -> None:
    assert percentile_ms({}, 95) is None
    assert percentile_ms({3: 0}, 95) is None


@pytest.mark.parametrize(
    ("ms", "written"),
    [
        (0, "0 ms"),
        (80, "80 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_449, "1.4 s"),
        (9_990, "10 s"),
        (25_400, "25 s"),
        (99_999, "100 s"),
        (210_000, "3.5 min"),
        (3_600_000, "60 min"),
        (43_200_000, "12 h"),
        (LONGEST_MS, "72 h"),
    ],
)
def test_times_are_written_for_people(ms: int, written: str) -> None:
    assert write_ms(ms) == written
