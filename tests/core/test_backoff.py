"""Waits between attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.core.backoff import (
    reconnect_wait_s,
    restart_wait_s,
    retry_wait_s,
)

chances = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("tries", "wait_s"), [(1, 2), (2, 10), (3, 60), (4, 60), (1000, 60)])
def test_a_retry_waits_longer_each_time_give_or_take_a_quarter(tries: int, wait_s: float) -> None:
    assert retry_wait_s(tries, 0) == wait_s * 0.75
    assert retry_wait_s(tries, 0.5) == wait_s
    assert retry_wait_s(tries, 0.999999) == pytest.approx(wait_s * 1.25, rel=1e-5)


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (1_000_000, 60)]
)
def test_a_reconnect_waits_twice_as_long_each_time_up_to_a_minute(failures: int, wait_s: float) -> None:
    assert reconnect_wait_s(failures, 0) == wait_s / 2
    assert reconnect_wait_s(failures, 0.999999) == pytest.approx(wait_s, rel=1e-5)


def test_what_has_not_failed_does_not_wait() -> None:
    assert reconnect_wait_s(0, 0.9) == 0


@given(st.integers(1, 100), chances, chances)
def test_a_greater_chance_never_means_a_shorter_wait(times: int, one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert 1.5 <= retry_wait_s(times, low) <= retry_wait_s(times, high) <= 75
    assert 0.5 <= reconnect_wait_s(times, low) <= reconnect_wait_s(times, high) <= 60


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, 0), (2, 0.5), (3, 1), (4, 2), (5, 4), (6, 5), (7, 5), (1_000_000, 5)]
)
def test_a_restart_comes_at_once_and_then_twice_as_late_each_time_up_to_five_seconds(
    failures: int, wait_s: float
) -> None:
    assert restart_wait_s(failures) == wait_s
