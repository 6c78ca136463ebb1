"""The circuit breaker opens on the carrier's own trouble, probes with one message, and closes again."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.delivery.circuit_breaker import (
    OPEN_MAX_S,
    PROBE_WAIT_S,
    REFUSALS_MAX,
    TRUST_MAX,
    TRUST_MIN,
    UNANSWERED_MAX,
    CircuitBreaker,
)

START = 1000.0


def hear(circuit: CircuitBreaker, now: float, event: str) -> None:
    match event:
        case "refused":
            circuit.refused(now)
        case "throttled":
            circuit.throttled(now, 1.0)
        case "long":
            circuit.throttled(now, 4.0)
        case "succeeded":
            circuit.succeeded(now)
        case "silent":
            circuit.silent(now, now)
        case "silent of old":
            circuit.silent(now, START - 30)
        case _:
            circuit.spend(now, circuit.places(now, 64))


def opened() -> CircuitBreaker:
    circuit = CircuitBreaker()
    for _ in range(REFUSALS_MAX):
        circuit.refused(START)
    return circuit


def test_it_opens_at_the_twentieth_refusal_in_a_row() -> None:
    circuit = CircuitBreaker()
    for _ in range(3):
        for _ in range(19):
            circuit.refused(START)
        assert circuit.is_healthy(START)
        circuit.succeeded(START)
    for _ in range(19):
        circuit.refused(START)
    assert circuit.places(START, 64) == 64
    circuit.refused(START)
    assert not circuit.is_healthy(START)
    assert circuit.places(START, 64) == 0
    assert circuit.wait_s(START) == 5
    # Refusals do not narrow the window.
    assert (circuit.window(1000), circuit.is_silent) == (1000, False)


def test_a_throttle_opens_it_only_once_its_pause_was_doubled() -> None:
    circuit = CircuitBreaker()
    for _ in range(100):
        circuit.throttled(START, 1.0)
    assert circuit.is_healthy(START)
    circuit.throttled(START, 2.0)
    assert not circuit.is_healthy(START)


def test_after_five_seconds_one_message_tries_it_out() -> None:
    circuit = opened()
    assert circuit.places(START + 4.99, 64) == 0
    assert circuit.places(START + 5, 64) == 1
    assert circuit.places(START + 5, 0) == 0
    # Nothing was there to be sent, so the place is still there.
    assert circuit.places(START + 6, 64) == 1
    circuit.spend(START + 6, 1)
    assert circuit.places(START + 6, 64) == 0
    assert not circuit.is_healthy(START + 6)


def test_it_can_be_tried_out_at_once() -> None:
    circuit = CircuitBreaker()
    circuit.half_open(START)
    assert (circuit.is_healthy(START), circuit.places(START, 64)) == (False, 1)
    circuit.spend(START, 1)
    assert circuit.places(START, 64) == 0
    circuit.half_open(START + 1)
    assert circuit.places(START + 1, 64) == 1
    circuit.succeeded(START + 1)
    assert circuit.is_healthy(START + 1)
    # One that is open for its own reasons stays so.
    circuit = opened()
    circuit.half_open(START + 1)
    assert circuit.places(START + 1, 64) == 0


def test_it_opens_for_twice_as_long_each_time_that_message_is_refused() -> None:
    circuit = opened()
    now = START + 5
    for number, open_s in enumerate((10, 20, 40, 60, 60)):
        circuit.spend(now, 1)
        if number % 2:
            circuit.throttled(now, 1.0)
        else:
            circuit.refused(now)
        assert circuit.wait_s(now) == open_s
        now += open_s
        assert circuit.places(now, 64) == 1
    circuit.succeeded(now)
    for _ in range(REFUSALS_MAX):
        circuit.refused(now)
    assert circuit.wait_s(now) == 5


def test_a_message_that_is_never_answered_makes_room_for_another() -> None:
    circuit = opened()
    circuit.spend(START + 5, 1)
    assert circuit.places(START + 5 + PROBE_WAIT_S - 0.01, 64) == 0
    assert circuit.wait_s(START + 6) == PROBE_WAIT_S - 1
    assert circuit.places(START + 5 + PROBE_WAIT_S, 64) == 1


def test_answers_to_what_was_sent_before_change_nothing() -> None:
    circuit = opened()
    for _ in range(100):
        circuit.refused(START + 1)
        circuit.throttled(START + 1, 30.0)
        circuit.succeeded(START + 1)
        circuit.spend(START + 1, 1)
    assert circuit.wait_s(START + 1) == 4
    circuit.refused(START + 5)
    circuit.throttled(START + 5, 30.0)
    assert circuit.places(START + 5, 64) == 1


def silenced() -> CircuitBreaker:
    circuit = CircuitBreaker()
    for _ in range(UNANSWERED_MAX):
        circuit.silent(START, START - 30)
    return circuit


@pytest.mark.parametrize("answer", ["succeeded", "refused", "throttled"])
def test_it_opens_when_five_submits_in_a_row_were_not_answered(answer: str) -> None:
    circuit = CircuitBreaker()
    for _ in range(10):
        for _ in range(UNANSWERED_MAX - 1):
            circuit.silent(START, START - 30)
        assert (circuit.is_healthy(START), circuit.is_silent) == (True, False)
        hear(circuit, START, answer)
    for _ in range(UNANSWERED_MAX):
        circuit.silent(START, START - 30)
    assert (circuit.is_healthy(START), circuit.is_silent, circuit.unanswered) == (False, True, UNANSWERED_MAX)
    assert circuit.wait_s(START) == 5


def test_a_message_that_tries_it_has_to_be_answered() -> None:
    circuit = silenced()
    now = START + 5
    for open_s in (10, 20, 40, 60, 60):
        assert circuit.places(now, 64) == 1
        circuit.spend(now, 1)
        assert circuit.places(now + 29, 64) == 0
        circuit.silent(now + 30, now)
        assert circuit.is_silent
        assert circuit.wait_s(now + 30) == open_s
        now += 30 + open_s
    circuit.spend(now, 1)
    circuit.succeeded(now + 1)
    assert circuit.is_healthy(now + 1)
    assert (circuit.is_silent, circuit.unanswered) == (False, 0)


def test_what_was_sent_before_it_opened_and_is_not_answered_changes_nothing() -> None:
    circuit = silenced()
    for _ in range(100):
        circuit.silent(START + 1, START - 20)
    assert circuit.wait_s(START + 1) == 4
    circuit.spend(START + 5, 1)
    circuit.silent(START + 6, START - 10)
    assert circuit.wait_s(START + 6) == PROBE_WAIT_S - 1
    assert circuit.unanswered == UNANSWERED_MAX + 101


def test_after_a_silence_the_window_grows_with_each_answer() -> None:
    circuit = silenced()
    circuit.spend(START + 5, 1)
    circuit.refused(START + 6)
    # It answers, and still has to show more.
    assert (circuit.is_healthy(START + 6), circuit.is_silent) == (False, False)
    assert circuit.window(1000) == TRUST_MIN
    circuit.spend(START + 16, 1)
    circuit.succeeded(START + 17)
    for window in range(TRUST_MIN, TRUST_MAX + 1):
        assert circuit.window(1000) == window
        assert circuit.window(1) == 1
        circuit.succeeded(START + 17)
    assert circuit.window(1000) == 1000


def test_a_carrier_that_falls_silent_again_opens_sooner() -> None:
    circuit = silenced()
    circuit.spend(START + 5, 1)
    circuit.succeeded(START + 6)
    for _ in range(TRUST_MIN):
        assert circuit.is_healthy(START + 36)
        circuit.silent(START + 36, START + 6)
    assert not circuit.is_healthy(START + 36)


events = st.lists(
    st.tuples(
        st.floats(0, 20),
        st.sampled_from(["refused", "throttled", "long", "succeeded", "spend", "silent", "silent of old"]),
    ),
    max_size=200,
)


def play(steps: Sequence[tuple[float, str]]) -> tuple[CircuitBreaker, float]:
    circuit, now = CircuitBreaker(), START
    for wait_s, event in steps:
        now += wait_s
        hear(circuit, now, event)
    return circuit, now


@given(events)
def test_whatever_happened_it_can_be_tried_soon_and_one_success_closes_it(
    steps: Sequence[tuple[float, str]],
) -> None:
    circuit, now = play(steps)
    assert circuit.places(now, 64) in {0, 1, 64}
    assert circuit.is_healthy(now) == (circuit.places(now, 64) == 64)
    # Times are added as floats, which rounds.
    assert 0 <= circuit.wait_s(now) <= max(OPEN_MAX_S, PROBE_WAIT_S) + 1e-6
    then = now + circuit.wait_s(now) + 1e-6
    assert circuit.places(then, 64) in {1, 64}
    assert 1 <= circuit.window(64) <= 64
    circuit.spend(then, 1)
    circuit.succeeded(then)
    assert circuit.places(then, 64) == 64
    assert (circuit.is_silent, circuit.unanswered) == (False, 0)


def test_a_probe_that_was_not_sent_does_not_count() -> None:
    circuit = opened()
    circuit.spend(START + 5, 0)
    assert circuit.places(START + 5, 64) == 1
    # And an answer at the very end of its time is none to it.
    circuit.spend(START + 5, 1)
    circuit.refused(START + 5 + PROBE_WAIT_S)
    assert circuit.places(START + 5 + PROBE_WAIT_S, 64) == 1


def test_a_circuit_that_closed_counts_refusals_from_the_first() -> None:
    circuit = opened()
    circuit.spend(START + 5, 1)
    circuit.succeeded(START + 5)
    for _ in range(REFUSALS_MAX - 1):
        circuit.refused(START + 6)
    assert circuit.is_healthy(START + 6)
    circuit.refused(START + 6)
    assert not circuit.is_healthy(START + 6)
