"""The moves of a top-up, its value in dollars, and its polls."""

from decimal import Decimal
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tumira.topups.states import (
    OPEN_FOR,
    OPEN_STATES,
    TopUpState,
    may_move,
    may_resolve,
    poll_delay_s,
    to_usd,
)

ENDS: Final = frozenset({TopUpState.CREDITED, TopUpState.FAILED, TopUpState.EXPIRED, TopUpState.REVERSED})


def test_nothing_that_has_ended_begins_again_and_only_what_was_credited_is_taken_back() -> None:
    assert frozenset(TopUpState) == OPEN_STATES | ENDS
    for before in TopUpState:
        after = {state for state in TopUpState if may_move(before, state)}
        if before in OPEN_STATES:
            # Any provider may answer anything at first, and a repeated word moves nothing.
            assert after == {
                TopUpState.CREDITED,
                TopUpState.FAILED,
                TopUpState.EXPIRED,
                TopUpState.PENDING,
                TopUpState.DOUBT,
            } - {before}
        else:
            assert after == ({TopUpState.REVERSED} if before is TopUpState.CREDITED else set())
        assert TopUpState.STARTED not in after


def test_the_operator_decides_doubts_and_late_payments_alone() -> None:
    decided = {(before, after) for before in TopUpState for after in TopUpState if may_resolve(before, after)}
    assert decided == {
        (TopUpState.DOUBT, TopUpState.CREDITED),
        (TopUpState.DOUBT, TopUpState.FAILED),
        (TopUpState.FAILED, TopUpState.CREDITED),
        (TopUpState.EXPIRED, TopUpState.CREDITED),
    }


@pytest.mark.parametrize(
    ("paid", "rate", "expected"),
    [
        ("5", "1", "5.0000"),
        ("150.00", "18.57", "8.0775"),
        ("5.000099999999999999", "1", "5.0000"),
        ("9999999.999999999999999999", "1", "9999999.9999"),
        ("0.00009", "1", "0.0000"),
    ],
)
def test_what_is_paid_is_worth_what_is_left_after_four_decimals(paid: str, rate: str, expected: str) -> None:
    assert str(to_usd(Decimal(paid), Decimal(rate))) == expected


@given(
    paid=some.decimals("0.01", "100000", places=2),
    rate=some.decimals("1", "1000", places=6),
)
def test_nobody_gets_more_than_was_paid_nor_a_ten_thousandth_less(paid: Decimal, rate: Decimal) -> None:
    amount = to_usd(paid, rate)
    assert amount * rate <= paid < (amount + Decimal("0.0001")) * rate


def test_a_top_up_is_looked_at_ever_more_rarely_for_as_long_as_it_is_open() -> None:
    waits = [poll_delay_s(tries) for tries in range(1, 200)]
    assert waits == sorted(waits)
    assert sum(waits[:4]) < 30
    assert sum(waits) > OPEN_FOR.total_seconds()
