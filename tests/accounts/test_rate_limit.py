"""The rate limit, by examples and over random histories of calls, clocks and limits."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tumira.accounts.rate_limit import (
    EXACT_MAX,
    WINDOW_S,
    CallWindow,
    RateDecision,
    changed_count,
    look,
    take,
)

SECOND = 1_000_000
MINUTE = 60 * SECOND
START = 1_794_700_800 * SECOND + 250_000
EMPTY = CallWindow((), ())


def filled(limit: int, times_us: Sequence[int]) -> CallWindow:
    window = EMPTY
    for now_us in times_us:
        place = take(window, limit, now_us)
        assert place.allowed
        window = place.window
    return window


@pytest.mark.parametrize("limit", [1, 2, 60, EXACT_MAX, EXACT_MAX + 1, 2000])
def test_the_call_after_the_last_place_is_refused_and_changes_nothing(limit: int) -> None:
    window = filled(limit, [START] * limit)
    refused = take(window, limit, START)
    assert (refused.allowed, refused.remaining) == (False, 0)
    assert refused.window is window


def test_up_to_600_every_call_is_an_entry_and_above_that_every_second() -> None:
    times_us = [START + place * 95_000 for place in range(600)]
    exact = filled(600, times_us)
    assert exact == CallWindow(tuple(times_us), (1,) * 600)
    by_second = filled(601, times_us)
    assert len(by_second.times_us) == 58
    assert sum(by_second.counts) == 600
    assert all(time_us % SECOND == 0 for time_us in by_second.times_us)


def test_the_reset_is_rounded_up_to_whole_seconds() -> None:
    window = filled(2, [START, START + 10 * SECOND])
    assert take(window, 2, START + 10 * SECOND).reset_s == 50
    assert take(window, 2, START + 10 * SECOND + 1).reset_s == 50
    assert take(window, 2, START + 11 * SECOND - 1).reset_s == 50
    assert take(window, 2, START + 11 * SECOND).reset_s == 49
    assert take(window, 2, START + MINUTE - 1).reset_s == 1


def test_after_a_lowered_limit_the_reset_waits_for_as_many_calls_as_are_too_many() -> None:
    window = filled(10, [START + place * SECOND for place in range(10)])
    now_us = START + 9 * SECOND
    refused = take(window, 3, now_us)
    # Ten are counted and a call needs two at most: the eighth, made at 7 s, must leave.
    assert (refused.allowed, refused.remaining, refused.reset_s) == (False, 0, 58)
    assert look(window, 3, now_us) == refused
    assert not take(window, 3, now_us + 57 * SECOND).allowed
    assert take(window, 3, now_us + 58 * SECOND).allowed


def test_a_limit_lowered_below_601_keeps_what_is_counted() -> None:
    window = filled(1000, [START] * 590)
    place = take(window, 600, START + 1)
    assert (place.allowed, place.remaining) == (True, 9)
    assert place.window == CallWindow((START + 1, START + 1), (590, 1))


@pytest.mark.parametrize("limit", [60, EXACT_MAX + 1])
def test_a_full_window_of_a_clock_set_back_locks_nobody_for_longer_than_a_minute(limit: int) -> None:
    window = filled(limit, [START + 3600 * SECOND] * limit)
    refused = take(window, limit, START)
    assert not refused.allowed
    assert refused.reset_s <= 61
    assert look(window, limit, START).reset_s == refused.reset_s
    # Who goes on asking meanwhile is refused, and does not wait for longer because of it.
    for second in range(1, 60):
        again = take(refused.window, limit, START + second * SECOND)
        assert not again.allowed
        assert again.window is refused.window
    assert take(refused.window, limit, START + 61 * SECOND).allowed


@dataclass(frozen=True)
class Step:
    """Wait, set the clock back, set the limit, then call `calls` times."""

    wait_us: int
    back_us: int
    limit: int
    calls: int
    apart_us: int


@dataclass(frozen=True)
class Call:
    """One call: when it really happened, what the clock said, and what was answered."""

    real_us: int
    clock_us: int
    limit: int
    before: CallWindow
    place: RateDecision


def play(steps: Sequence[Step]) -> Iterator[Call]:
    """Let an account call as the steps say.

    A clock set back makes calls look younger than they are. A clock set forward cannot be told from waiting,
    so the histories have none: waiting stands for both.
    """
    real_us, set_back_us, window = START, 0, EMPTY
    for step in steps:
        real_us += step.wait_us
        set_back_us += step.back_us
        for _ in range(step.calls):
            real_us += step.apart_us
            clock_us = real_us - set_back_us
            place = take(window, step.limit, clock_us)
            yield Call(real_us, clock_us, step.limit, window, place)
            window = place.window


def count_since(allowed_us: Sequence[int], now_us: int, seconds: int) -> int:
    """Count the allowed calls of the last `seconds` seconds."""
    return len(allowed_us) - bisect_right(allowed_us, now_us - seconds * SECOND)


waits = st.one_of(
    st.just(0),
    st.integers(0, 3 * SECOND),
    st.integers(0, 70 * SECOND),
    st.sampled_from([1, SECOND - 1, SECOND, MINUTE - SECOND, MINUTE - 1, MINUTE, MINUTE + SECOND]),
)
limits = st.one_of(st.integers(1, 5), st.integers(1, 80), st.integers(595, 605), st.integers(1, 2000))
bursts = st.one_of(st.integers(1, 8), st.integers(1, 90), st.integers(300, 900))
gaps = st.one_of(st.just(0), st.integers(0, 50), st.integers(0, 200_000))


def histories(
    limit: st.SearchStrategy[int], backs: st.SearchStrategy[int], steps_max: int = 8
) -> st.SearchStrategy[list[Step]]:
    step = st.builds(Step, wait_us=waits, back_us=backs, limit=limit, calls=bursts, apart_us=gaps)
    return st.lists(step, min_size=1, max_size=steps_max)


never = st.just(0)
sometimes = st.one_of(st.just(0), st.just(0), st.integers(0, 2 * SECOND), st.integers(0, 300 * SECOND))
one_limit = limits.flatmap(lambda limit: histories(st.just(limit), never))
restless = st.one_of(
    limits.flatmap(lambda limit: histories(st.just(limit), sometimes)), histories(limits, sometimes)
)


@settings(max_examples=50)
@given(restless)
def test_whatever_the_history_the_limit_holds_and_the_answers_are_true(steps: Sequence[Step]) -> None:
    allowed_us: list[int] = []
    for call in play(steps):
        window, place = call.place.window, call.place
        assert len(window.times_us) == len(window.counts) <= EXACT_MAX + 61
        if place.allowed:
            allowed_us.append(call.real_us)
            # Any 60 seconds end with some allowed call, so to look back from each of these is to look at all.
            assert count_since(allowed_us, call.real_us, WINDOW_S) <= call.limit
            assert all(one <= two for one, two in pairwise(window.times_us))
            assert min(window.counts) > 0
            assert call.clock_us - MINUTE < window.times_us[0]
            assert window.times_us[-1] <= call.clock_us + SECOND
        else:
            # A refused caller who waits as told is let in, and not a second sooner.
            assert place.reset_s >= 1
            then_us = call.clock_us + place.reset_s * SECOND
            assert take(window, call.limit, then_us).allowed
            assert not take(window, call.limit, then_us - SECOND).allowed


@settings(max_examples=25)
@given(restless)
@example([Step(0, 0, 2000, 9, 0)])
@example([Step(0, 0, 601, 60, 12_500), Step(0, 1, 601, 1, 0)])
def test_where_only_the_last_count_changes_nothing_else_does(steps: Sequence[Step]) -> None:
    stored, is_steady, latest_us = EMPTY, True, 0
    for place, call in enumerate(play(steps)):
        # As many calls as a group may have.
        if place % 8 == 0:
            stored, is_steady = call.before, True
        # A clock that is set back dates entries again, perhaps as they were.
        is_steady = is_steady and call.clock_us >= latest_us
        latest_us = max(latest_us, call.clock_us)
        after = call.place.window
        last_count = changed_count(stored, after)
        is_busy = stored.times_us and stored.times_us[0] > call.clock_us - MINUTE
        if last_count is not None:
            assert after == CallWindow(stored.times_us, (*stored.counts[:-1], last_count))
        elif call.limit > EXACT_MAX and is_busy and is_steady:
            assert stored.times_us != after.times_us


@settings(max_examples=50)
@given(one_limit)
@example([Step(0, 0, 600, 601, 100_001)])
def test_no_call_is_refused_that_the_limit_allows(steps: Sequence[Step]) -> None:
    allowed_us: list[int] = []
    for call in play(steps):
        # Where the calls of a second share an entry, a call counts up to a second longer.
        seconds = WINDOW_S if call.limit <= EXACT_MAX else WINDOW_S + 1
        if call.place.allowed:
            allowed_us.append(call.real_us)
        else:
            assert count_since(allowed_us, call.real_us, seconds) >= call.limit
            assert call.place.window is call.before


@settings(max_examples=25)
@given(restless)
def test_a_look_says_what_the_call_before_was_told_and_what_the_next_will_be(steps: Sequence[Step]) -> None:
    for call in play(steps):
        before = look(call.before, call.limit, call.clock_us)
        after = look(call.place.window, call.limit, call.clock_us)
        assert before.allowed == call.place.allowed
        assert before.remaining == call.place.remaining + call.place.allowed
        assert (after.remaining, after.reset_s) == (call.place.remaining, call.place.reset_s)
        assert before.window is call.before


def test_without_calls_nothing_is_waited_for() -> None:
    assert look(EMPTY, 5, START) == RateDecision(allowed=True, remaining=5, reset_s=0, window=EMPTY)
    assert changed_count(EMPTY, EMPTY) is None


def test_a_limit_that_was_lowered_waits_until_enough_calls_have_left() -> None:
    window = filled(5, [START + place * 10 * SECOND for place in range(4)])
    now_us = START + 30 * SECOND
    # With n calls allowed, so many of the four have to leave, at ten seconds each.
    waits = {limit: look(window, limit, now_us).reset_s for limit in (1, 2, 3, 4, 5)}
    assert waits == {1: 60, 2: 50, 3: 40, 4: 30, 5: 30}
    assert [take(window, limit, now_us).reset_s for limit in (1, 2, 3, 4)] == [60, 50, 40, 30]
    # Several calls of one entry leave together.
    shared = CallWindow((START, START + 10 * SECOND), (3, 2))
    assert [look(shared, limit, now_us).reset_s for limit in (1, 2, 3, 4, 5)] == [40, 40, 30, 30, 30]


def test_a_busy_account_forgets_what_has_left_while_it_counts_this_second() -> None:
    limit = EXACT_MAX + 1
    window = filled(limit, [START, START + 59 * SECOND, START + 59 * SECOND])
    assert window.counts == (1, 2)
    later = START + 61 * SECOND
    after = take(window, limit, later)
    assert after.window.counts == (2, 1)
    # In the same second only the last count changes, and the tuple of times is kept.
    again = take(after.window, limit, later)
    assert again.window.times_us is after.window.times_us
    assert changed_count(after.window, again.window) == 2
    # What leaves just then is forgotten also where the last entry is that of this second.
    edge = CallWindow((later - 60 * SECOND, (later // SECOND + 1) * SECOND), (7, 1))
    assert take(edge, limit, later).window == CallWindow(edge.times_us[1:], (2,))
