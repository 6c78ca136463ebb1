"""Does a pace keep to its limit in every interval, give way when throttled, and come back?"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.delivery.throttle import BUCKET_S, PAUSE_MAX_S, Throttle

START = 1000.0
PLENTY = 1_000_000


def drained(tps: float, now: float = START) -> Throttle:
    """Give a pace that has sent all it may."""
    pace = Throttle(tps)
    pace.spend(now, pace.allowance(now, PLENTY) if tps else 0)
    return pace


def rate(pace: Throttle, now: float) -> float:
    found = pace.rate(now)
    assert found is not None
    return found


def test_a_bucket_holds_a_quarter_of_a_second_and_at_least_one() -> None:
    assert Throttle(200).allowance(START, PLENTY) == 50
    assert Throttle(200).allowance(START, 7) == 7
    assert Throttle(200).allowance(START, 0) == 0
    assert Throttle(2).allowance(START, PLENTY) == 1
    assert Throttle(1).allowance(START, PLENTY) == 1


def test_what_was_spent_comes_back_at_the_rate() -> None:
    pace = drained(200)
    assert pace.allowance(START, PLENTY) == 0
    assert pace.allowance(START + 0.1001, PLENTY) == 20
    assert pace.allowance(START + 10, PLENTY) == 50


def test_the_wait_is_until_the_next_may_be_sent() -> None:
    assert Throttle(4).wait_s(START) == 0
    pace = drained(4)
    assert pace.wait_s(START) == pytest.approx(0.25, abs=1e-5)
    assert pace.wait_s(START + 0.1) == pytest.approx(0.15, abs=1e-5)
    assert pace.wait_s(START + 1) == 0


def test_a_message_of_many_segments_is_sent_whole_and_paid_for_later() -> None:
    pace = drained(10)
    pace.spend(START, 5)
    assert pace.allowance(START + 0.5, PLENTY) == 0
    # The bucket of 2.5 had a half left over.
    assert pace.wait_s(START) == pytest.approx(0.55, abs=1e-5)


def test_without_a_limit_everything_may_go() -> None:
    pace = Throttle(0)
    for _ in range(3):
        assert pace.allowance(START, PLENTY) == PLENTY
        pace.spend(START, PLENTY)
    assert pace.wait_s(START) == 0
    assert pace.rate(START) is None


def test_a_throttle_halves_the_rate_and_pauses_a_second() -> None:
    pace = Throttle(200)
    assert pace.throttled(START) == 1
    assert pace.rate(START) == 100
    assert pace.paused_until == START + 1
    assert pace.allowance(START + 0.99, PLENTY) == 0
    assert pace.wait_s(START + 0.4) == pytest.approx(0.6, abs=1e-5)
    # Nothing is saved up during the pause: one, and then at the new rate.
    assert pace.allowance(START + 1, PLENTY) == 1
    assert pace.allowance(START + 1.1001, PLENTY) == 11


def test_a_whole_window_that_is_throttled_is_one_throttle() -> None:
    pace = Throttle(200)
    for place in range(64):
        assert pace.throttled(START + place * 0.015) == 1
    assert pace.rate(START) == 100
    assert pace.paused_until == START + 1


def test_the_pause_doubles_to_thirty_seconds_while_throttles_go_on() -> None:
    pace, now = Throttle(200), START
    pauses = []
    for _ in range(7):
        pauses.append(pace.throttled(now))
        now = pace.paused_until
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert rate(pace, now) == 200 / 2**7


def test_the_rate_never_falls_below_one_a_second() -> None:
    pace, now = Throttle(3), START
    for _ in range(10):
        pace.throttled(now)
        now = pace.paused_until
    assert pace.rate(now) == 1
    assert pace.allowance(now, PLENTY) == 1


def test_an_answer_after_the_pause_ends_the_doubling_and_one_during_it_does_not() -> None:
    pace = Throttle(200)
    pace.throttled(START)
    pace.succeeded(START + 0.5)
    assert pace.throttled(START + 1) == 2
    pace.succeeded(START + 3)
    assert pace.throttled(START + 3) == 1


def test_a_throttled_pace_gains_a_twentieth_of_its_limit_a_second() -> None:
    pace = Throttle(200)
    pace.throttled(START)
    resumed = START + 1
    for tenth in range(1, 101):
        pace.succeeded(resumed + tenth / 10)
    assert pace.rate(resumed + 10) == pytest.approx(200)
    pace.throttled(resumed + 10)
    pace.succeeded(resumed + 12)
    assert pace.rate(resumed + 12) == pytest.approx(110)
    # An answer after a long silence counts for one second.
    pace.succeeded(resumed + 1000)
    assert pace.rate(resumed + 1000) == pytest.approx(120)


def test_without_answers_a_throttled_pace_stays_as_it_is() -> None:
    pace = Throttle(200)
    pace.throttled(START)
    assert pace.rate(START + 3600) == 100


def test_without_a_limit_a_throttle_sets_half_of_what_went_in_the_last_second() -> None:
    pace = Throttle(0)
    for place in range(1000):
        pace.spend(START + place / 1000, 1)
    pace.throttled(START + 0.9999)
    assert pace.rate(START + 1) == 500


def test_without_a_limit_the_second_before_counts_too_and_older_ones_do_not() -> None:
    pace = Throttle(0)
    pace.spend(START + 0.9, 600)
    pace.spend(START + 1.1, 10)
    pace.throttled(START + 1.2)
    assert pace.rate(START + 1.2) == 300
    late = Throttle(0)
    late.spend(START, 600)
    late.throttled(START + 5)
    assert late.rate(START + 5) == 1


def test_without_a_limit_it_gains_a_tenth_a_second_and_forgets_after_a_minute() -> None:
    pace = Throttle(0)
    pace.spend(START, 200)
    pace.throttled(START)
    for second in range(1, 59):
        pace.succeeded(START + 1 + second)
    assert pace.rate(START + 59) == pytest.approx(100 + 58 * 10)
    assert pace.rate(START + 59.9) is not None
    assert pace.rate(START + 60) is None
    assert pace.allowance(START + 60, PLENTY) == PLENTY
    assert pace.wait_s(START + 60) == 0


def test_a_second_throttle_without_a_limit_halves_again_and_begins_the_minute_anew() -> None:
    pace = Throttle(0)
    pace.spend(START, 200)
    pace.throttled(START)
    pace.throttled(START + 50)
    assert pace.rate(START + 100) == 50
    assert pace.rate(START + 110) is None


def test_a_new_limit_keeps_what_was_learnt() -> None:
    pace = Throttle(200)
    pace.retune(START, 100)
    assert pace.rate(START) == 100
    assert pace.allowance(START, PLENTY) == 25
    pace.throttled(START)
    pace.retune(START + 1, 400)
    assert pace.rate(START + 1) == 50
    pace.succeeded(START + 2)
    assert pace.rate(START + 2) == 70
    pace.retune(START + 2, 20)
    assert pace.rate(START + 2) == 20
    pace.retune(START + 2, 0)
    assert pace.rate(START + 2) is None
    assert pace.allowance(START + 2, PLENTY) == PLENTY


def test_a_throttled_pace_that_loses_its_limit_still_recovers_and_forgets() -> None:
    pace = Throttle(200)
    pace.throttled(START)
    pace.retune(START + 1, 0)
    assert pace.rate(START + 1) == 100
    pace.succeeded(START + 2)
    assert pace.rate(START + 2) == pytest.approx(110)
    assert pace.rate(START + 60) is None


@dataclass(frozen=True)
class Step:
    """Wait, perhaps hear an answer, then send as much as is wanted and allowed."""

    wait_s: float
    answer: str
    wanted: int


steps = st.lists(
    st.builds(
        Step,
        wait_s=st.one_of(st.just(0.0), st.floats(0, 0.3), st.floats(0, 5), st.floats(0, 40)),
        answer=st.sampled_from(["none", "none", "succeeded", "throttled"]),
        wanted=st.one_of(st.integers(0, 3), st.just(PLENTY)),
    ),
    max_size=60,
)
limits = st.one_of(st.integers(1, 5), st.integers(1, 500), st.integers(1, 100_000))


def hear(pace: Throttle, now: float, answer: str) -> None:
    if answer == "succeeded":
        pace.succeeded(now)
    elif answer == "throttled":
        pace.throttled(now)


def play(pace: Throttle, history: Sequence[Step]) -> list[tuple[float, int]]:
    """Let a sender do as the steps say, and return when it sent how many."""
    now, sent = START, []
    for step in history:
        now += step.wait_s
        hear(pace, now, step.answer)
        count = pace.allowance(now, step.wanted)
        assert 0 <= count <= step.wanted
        pace.spend(now, count)
        sent.append((now, count))
    return sent


@settings(deadline=None)
@given(limits, steps)
def test_no_interval_holds_more_than_its_length_times_the_limit_and_a_bucket(
    tps: int, history: Sequence[Step]
) -> None:
    sent = play(Throttle(tps), history)
    bucket = max(1.0, tps * BUCKET_S)
    for first, (start, _) in enumerate(sent):
        total = 0
        for now, count in sent[first:]:
            total += count
            assert total <= tps * (now - start) + bucket + 1e-3


@settings(deadline=None)
@given(st.one_of(st.just(0), limits), steps)
def test_whoever_waits_as_told_may_send_one(tps: int, history: Sequence[Step]) -> None:
    pace = Throttle(tps)
    sent = play(pace, history)
    now = sent[-1][0] if sent else START
    wait_s = pace.wait_s(now)
    assert 0 <= wait_s <= PAUSE_MAX_S + 1 + 1e-5
    if wait_s > 1e-3:
        assert pace.allowance(now + wait_s - 1e-3, 1) == 0
    assert pace.allowance(now + wait_s, 1) == 1


@settings(deadline=None)
@given(limits, steps)
def test_the_rate_stays_within_its_bounds_and_comes_back_to_the_limit(
    tps: int, history: Sequence[Step]
) -> None:
    pace, now = Throttle(tps), START
    for step in history:
        now += step.wait_s
        hear(pace, now, step.answer)
        assert 1 <= rate(pace, now) <= tps
        assert pace.paused_until <= now + PAUSE_MAX_S
    now = max(now, pace.paused_until)
    for second in range(21):
        pace.succeeded(now + second)
    assert rate(pace, now + 21) == tps


@settings(deadline=None)
@given(steps)
def test_no_second_halves_the_rate_twice(history: Sequence[Step]) -> None:
    pace, now = Throttle(1024), START
    halved_at: list[float] = []
    for step in history:
        now += step.wait_s
        before = rate(pace, now)
        hear(pace, now, step.answer)
        after = rate(pace, now)
        assert after >= min(before, max(1.0, before / 2))
        if after < before:
            assert not halved_at or now - halved_at[-1] >= 1
            halved_at.append(now)


@settings(deadline=None)
@given(st.integers(2, 1000), st.integers(2, 1000))
def test_it_settles_near_what_the_carrier_takes(tps: int, capacity: int) -> None:
    """A carrier takes `capacity` in each second and throttles the rest; ten minutes are played in steps."""
    pace, taken, step_s = Throttle(tps), 0, 0.05
    for tick in range(int(600 / step_s)):
        now = START + tick * step_s
        if tick % 20 == 0:
            left = capacity
        count = pace.allowance(now, PLENTY)
        pace.spend(now, count)
        accepted = min(count, left)
        left -= accepted
        taken += accepted
        if accepted:
            pace.succeeded(now)
        if accepted < count:
            pace.throttled(now)
    assert taken >= 0.4 * 600 * min(tps, capacity)
