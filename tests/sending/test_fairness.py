"""Lanes and turns of the fair queue."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.sending.fairness import SMALL_MAX, WEIGHT_DEFAULT, TurnRange, lane, take_turns

clocks = st.integers(0, 10**12)
segments = st.integers(1, 5)
weights = st.integers(1, 10_000)
counts = st.integers(1, 1000)


@pytest.mark.parametrize(("recipients", "expected"), [(0, 0), (1, 0), (10, 0), (11, 1), (1000, 1)])
def test_ten_recipients_or_fewer_wait_in_lane_0(recipients: int, expected: int) -> None:
    assert lane(recipients) == expected
    assert SMALL_MAX == 10


@pytest.mark.parametrize(
    ("clock", "next_turn", "size", "weight", "count", "expected"),
    [
        (0, 0, 1, WEIGHT_DEFAULT, 1, TurnRange(0, 1000, 1000)),
        (0, 5000, 1, 1, 3, TurnRange(5000, 1000, 8000)),
        (9000, 5000, 1, 1, 3, TurnRange(9000, 1000, 12000)),
        (0, 0, 5, 1, 2, TurnRange(0, 5000, 10000)),
        (0, 0, 1, 4, 2, TurnRange(0, 250, 500)),
        (0, 0, 2, 3, 1, TurnRange(0, 666, 666)),
        (0, 0, 1, 5000, 4, TurnRange(0, 1, 4)),
        (7, 3, 1, 1, 0, TurnRange(7, 1000, 7)),
    ],
)
def test_a_batch_gets_its_turns(
    clock: int, next_turn: int, size: int, weight: int, count: int, expected: TurnRange
) -> None:
    assert take_turns(clock, next_turn, size, weight, count) == expected


@settings(max_examples=50)
@given(clocks, clocks, segments, weights, counts)
def test_turns_of_a_flow_never_meet_and_never_lie_behind_the_clock(
    clock: int, next_turn: int, size: int, weight: int, count: int
) -> None:
    one = take_turns(clock, next_turn, size, weight, count)
    two = take_turns(clock, one.next_turn, size, weight, count)
    assert one.first >= clock
    assert one.first + (count - 1) * one.step < two.first


@settings(max_examples=50)
@given(clocks, segments, weights, counts, counts)
def test_a_batch_in_two_halves_gets_the_turns_of_the_whole(
    clock: int, size: int, weight: int, count: int, rest: int
) -> None:
    half = take_turns(clock, 0, size, weight, count)
    assert (
        take_turns(clock, half.next_turn, size, weight, rest).next_turn
        == take_turns(clock, 0, size, weight, count + rest).next_turn
    )
