"""Are a top-up's ways, its worth and its looks what they should be?"""

from decimal import Decimal
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tumira.topups.states import OPEN, OPEN_FOR, State, look_again_s, may_move, may_resolve, worth

ENDS: Final = frozenset({State.CREDITED, State.FAILED, State.EXPIRED, State.REVERSED})


def test_nothing_that_has_ended_begins_again_and_only_what_was_credited_is_taken_back() -> None:
    assert frozenset(State) == OPEN | ENDS
    for before in State:
        after = {state for state in State if may_move(before, state)}
        if before in OPEN:
            # Any provider may answer anything at first, and a repeated word moves nothing.
            assert after == {State.CREDITED, State.FAILED, State.EXPIRED, State.PENDING, State.DOUBT} - {
                before
            }
        else:
            assert after == ({State.REVERSED} if before is State.CREDITED else set())
        assert State.STARTED not in after


def test_the_operator_decides_doubts_and_late_payments_alone() -> None:
    decided = {(before, after) for before in State for after in State if may_resolve(before, after)}
    assert decided == {
        (State.DOUBT, State.CREDITED),
        (State.DOUBT, State.FAILED),
        (State.FAILED, State.CREDITED),
        (State.EXPIRED, State.CREDITED),
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
    assert str(worth(Decimal(paid), Decimal(rate))) == expected


@given(
    paid=some.decimals("0.01", "100000", places=2),
    rate=some.decimals("1", "1000", places=6),
)
def test_nobody_gets_more_than_was_paid_nor_a_ten_thousandth_less(paid: Decimal, rate: Decimal) -> None:
    amount = worth(paid, rate)
    assert amount * rate <= paid < (amount + Decimal("0.0001")) * rate


def test_a_top_up_is_looked_at_ever_more_rarely_for_as_long_as_it_is_open() -> None:
    waits = [look_again_s(tries) for tries in range(1, 200)]
    assert waits == sorted(waits)
    assert sum(waits[:4]) < 30
    assert sum(waits) > OPEN_FOR.total_seconds()
