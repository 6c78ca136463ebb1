"""The throttle keeps to its limit in every interval, slows down when throttled, and recovers."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.delivery.throttle import BUCKET_S, PAUSE_ASKED_MAX_S, PAUSE_MAX_S, Throttle

START = 1000.0
PLENTY = 1_000_000


def drained(tps: float, now: float = START) -> Throttle:
    throttle = Throttle(tps)
    throttle.spend(now, throttle.allowance(now, PLENTY) if tps else 0)
    return throttle


def rate(throttle: Throttle, now: float) -> float:
    found = throttle.rate(now)
    assert found is not None
    return found


def test_a_bucket_holds_a_quarter_of_a_second_and_fills_at_the_rate() -> None:
    assert Throttle(200).allowance(START, PLENTY) == 50
    assert Throttle(200).allowance(START, 7) == 7
    assert Throttle(1).allowance(START, PLENTY) == 1
    throttle = drained(200)
    assert throttle.allowance(START, PLENTY) == 0
    assert throttle.allowance(START + 0.1001, PLENTY) == 20
    assert throttle.allowance(START + 10, PLENTY) == 50
    throttle = drained(4)
    assert throttle.wait_s(START + 0.1) == pytest.approx(0.15, abs=1e-5)
    assert throttle.wait_s(START + 1) == 0


def test_bulk_leaves_a_message_in_the_bucket_for_a_passcode() -> None:
    throttle = Throttle(200)
    assert throttle.kept == 1
    assert throttle.allowance(START, PLENTY, throttle.kept) == 49
    throttle.spend(START, 49)
    assert throttle.allowance(START, PLENTY, throttle.kept) == 0
    assert throttle.allowance(START, PLENTY) == 1
    assert throttle.wait_s(START, 2) == pytest.approx(1 / 200, abs=1e-5)
    # A slow carrier's bucket has no place for it, and one without a limit needs none.
    assert (Throttle(7).kept, Throttle(8).kept) == (0, 1)
    assert Throttle(0).allowance(START, PLENTY, 1) == PLENTY


def test_a_message_of_many_segments_is_sent_whole_and_paid_for_later() -> None:
    throttle = drained(10)
    throttle.spend(START, 5)
    assert throttle.allowance(START + 0.5, PLENTY) == 0
    # The bucket of 2.5 had a half left over.
    assert throttle.wait_s(START) == pytest.approx(0.55, abs=1e-5)


def test_without_a_limit_everything_may_go() -> None:
    throttle = Throttle(0)
    for _ in range(3):
        assert throttle.allowance(START, PLENTY) == PLENTY
        throttle.spend(START, PLENTY)
    assert throttle.wait_s(START) == 0
    assert throttle.rate(START) is None


def test_a_throttle_halves_the_rate_and_pauses_a_second() -> None:
    throttle = Throttle(200)
    assert throttle.throttled(START) == 1
    assert throttle.rate(START) == 100
    assert throttle.paused_until == START + 1
    assert throttle.allowance(START + 0.99, PLENTY) == 0
    assert throttle.wait_s(START + 0.4) == pytest.approx(0.6, abs=1e-5)
    # Nothing is saved up during the pause: one, and then at the new rate.
    assert throttle.allowance(START + 1, PLENTY) == 1
    assert throttle.allowance(START + 1.1001, PLENTY) == 11


def test_the_pause_doubles_to_thirty_seconds_while_throttles_go_on() -> None:
    throttle, now = Throttle(200), START
    pauses = []
    for _ in range(7):
        pauses.append(throttle.throttled(now))
        now = throttle.paused_until
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert rate(throttle, now) == 200 / 2**7


def test_a_carrier_may_ask_for_a_longer_pause() -> None:
    throttle = drained(200)
    assert throttle.throttled(START, 45.0) == 45
    assert throttle.allowance(START + 44.9, PLENTY) == 0
    assert throttle.allowance(START + 45.1, PLENTY) > 0
    # Another answer in the pause may ask for more, and nobody for more than five minutes.
    throttle.throttled(START + 10, 100.0)
    assert throttle.paused_until == START + 110
    assert drained(200).throttled(START, 86_400.0) == PAUSE_ASKED_MAX_S
    assert drained(200).throttled(START, 0.1) == 1


def test_an_answer_after_the_pause_ends_the_doubling_and_one_during_it_does_not() -> None:
    throttle = Throttle(200)
    throttle.throttled(START)
    throttle.succeeded(START + 0.5)
    assert throttle.throttled(START + 1) == 2
    throttle.succeeded(START + 3)
    assert throttle.throttled(START + 3) == 1


def test_a_throttled_throttle_gains_a_twentieth_of_its_limit_a_second() -> None:
    throttle = Throttle(200)
    throttle.throttled(START)
    resumed = START + 1
    for tenth in range(1, 101):
        throttle.succeeded(resumed + tenth / 10)
    assert throttle.rate(resumed + 10) == pytest.approx(200)
    throttle.throttled(resumed + 10)
    throttle.succeeded(resumed + 12)
    assert throttle.rate(resumed + 12) == pytest.approx(110)
    # An answer after a long silence counts for one second.
    throttle.succeeded(resumed + 1000)
    assert throttle.rate(resumed + 1000) == pytest.approx(120)


def test_without_a_limit_a_throttle_sets_half_of_what_went_in_the_last_seconds() -> None:
    throttle = Throttle(0)
    throttle.spend(START + 0.9, 600)
    throttle.spend(START + 1.1, 10)
    throttle.throttled(START + 1.2)
    assert throttle.rate(START + 1.2) == 300
    late = Throttle(0)
    late.spend(START, 600)
    late.throttled(START + 5)
    assert late.rate(START + 5) == 1


def test_without_a_limit_it_gains_a_tenth_a_second_and_forgets_after_a_minute() -> None:
    throttle = Throttle(0)
    throttle.spend(START, 200)
    throttle.throttled(START)
    for second in range(1, 59):
        throttle.succeeded(START + 1 + second)
    assert throttle.rate(START + 59.9) == pytest.approx(100 + 58 * 10)
    assert throttle.rate(START + 60) is None
    assert throttle.allowance(START + 60, PLENTY) == PLENTY
    assert throttle.wait_s(START + 60) == 0
    # A second throttle halves again and begins the minute anew.
    throttle = Throttle(0)
    throttle.spend(START, 200)
    throttle.throttled(START)
    throttle.throttled(START + 50)
    assert throttle.rate(START + 100) == 50
    assert throttle.rate(START + 110) is None


def test_a_new_limit_keeps_what_was_learnt() -> None:
    throttle = Throttle(200)
    throttle.retune(START, 100)
    assert throttle.rate(START) == 100
    assert throttle.allowance(START, PLENTY) == 25
    throttle.throttled(START)
    throttle.retune(START + 1, 400)
    assert throttle.rate(START + 1) == 50
    throttle.succeeded(START + 2)
    assert throttle.rate(START + 2) == 70
    throttle.retune(START + 2, 20)
    assert throttle.rate(START + 2) == 20
    throttle.retune(START + 2, 0)
    assert throttle.rate(START + 2) is None
    assert throttle.allowance(START + 2, PLENTY) == PLENTY
    # One that is slowed down and loses its limit still recovers and forgets.
    throttle = Throttle(200)
    throttle.throttled(START)
    throttle.retune(START + 1, 0)
    assert throttle.rate(START + 1) == 100
    throttle.succeeded(START + 2)
    assert throttle.rate(START + 2) == pytest.approx(110)
    assert throttle.rate(START + 60) is None


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


def hear(throttle: Throttle, now: float, answer: str) -> None:
    if answer == "succeeded":
        throttle.succeeded(now)
    elif answer == "throttled":
        throttle.throttled(now)


def play(throttle: Throttle, history: Sequence[Step]) -> list[tuple[float, int]]:
    now, sent = START, []
    for step in history:
        now += step.wait_s
        hear(throttle, now, step.answer)
        count = throttle.allowance(now, step.wanted)
        assert 0 <= count <= step.wanted
        throttle.spend(now, count)
        sent.append((now, count))
    return sent


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


@given(st.one_of(st.just(0), limits), steps)
def test_whoever_waits_as_told_may_send_one(tps: int, history: Sequence[Step]) -> None:
    throttle = Throttle(tps)
    sent = play(throttle, history)
    now = sent[-1][0] if sent else START
    wait_s = throttle.wait_s(now)
    assert 0 <= wait_s <= PAUSE_MAX_S + 1 + 1e-5
    if wait_s > 1e-3:
        assert throttle.allowance(now + wait_s - 1e-3, 1) == 0
    assert throttle.allowance(now + wait_s, 1) == 1


@given(limits, steps)
def test_the_rate_stays_within_its_bounds_and_comes_back_to_the_limit(
    tps: int, history: Sequence[Step]
) -> None:
    throttle, now = Throttle(tps), START
    halved_at = now - 1
    for step in history:
        now += step.wait_s
        before = rate(throttle, now)
        hear(throttle, now, step.answer)
        after = rate(throttle, now)
        assert max(1, before / 2) <= after <= tps
        assert throttle.paused_until <= now + PAUSE_MAX_S
        if after < before:
            # No second halves it twice.
            assert now - halved_at >= 1
            halved_at = now
    now = max(now, throttle.paused_until)
    for second in range(21):
        throttle.succeeded(now + second)
    assert rate(throttle, now + 21) == tps


@settings(max_examples=10)
@given(st.integers(2, 1000), st.integers(2, 1000))
def test_it_settles_near_what_the_carrier_takes(tps: int, capacity: int) -> None:
    throttle, taken, step_s = Throttle(tps), 0, 0.05
    for tick in range(int(600 / step_s)):
        now = START + tick * step_s
        if tick % 20 == 0:
            left = capacity
        count = throttle.allowance(now, PLENTY)
        throttle.spend(now, count)
        accepted = min(count, left)
        left -= accepted
        taken += accepted
        if accepted:
            throttle.succeeded(now)
        if accepted < count:
            throttle.throttled(now)
    assert taken >= 0.4 * 600 * min(tps, capacity)


def test_what_is_spent_without_a_look_before_it_counts_too() -> None:
    throttle = Throttle(40)
    throttle.spend(START, 3)
    assert throttle.allowance(START, 99) == 7
    # A second later the bucket is full again, and what is spent then is taken from that.
    throttle.spend(START + 1, 4)
    assert throttle.allowance(START + 1, 99) == 6


def test_the_pace_is_that_of_this_second_or_the_last_and_is_forgotten() -> None:
    throttle = Throttle(0)
    throttle.spend(START, 30)
    throttle.spend(START + 0.5, 10)
    assert throttle.pace(START + 0.9) == 40
    throttle.spend(START + 1, 7)
    assert throttle.pace(START + 1.1) == 40
    assert throttle.pace(START + 2) == 7
    assert throttle.pace(START + 3) == 0
    throttle.spend(START + 9, 3)
    assert throttle.pace(START + 9) == 3
