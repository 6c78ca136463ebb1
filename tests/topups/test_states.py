"""The moves of a top-up, its value in dollars, and its polls."""

from dataclasses import fields
from decimal import Decimal
from typing import Any
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as some

from tumira.core.ids import AccountId, TopUpId
from tumira.topups.states import (
    OPEN_FOR,
    Currency,
    Method,
    Paid,
    PaymentInDoubt,
    TopUp,
    TopUpState,
    may_resolve,
    poll_delay_s,
    to_usd,
)
from tumira.topups.store import NewTopUp, TopUpUpdate


def test_the_operator_decides_doubts_and_late_payments_alone() -> None:
    decided = {(before, after) for before in TopUpState for after in TopUpState if may_resolve(before, after)}
    assert decided == {
        (TopUpState.DOUBT, TopUpState.CREDITED),
        (TopUpState.DOUBT, TopUpState.FAILED),
        (TopUpState.FAILED, TopUpState.CREDITED),
        (TopUpState.EXPIRED, TopUpState.CREDITED),
    }


@given(
    paid=some.decimals("0.01", "100000", places=2),
    rate=some.decimals("1", "1000", places=6),
)
def test_nobody_gets_more_than_was_paid_nor_a_ten_thousandth_less(paid: Decimal, rate: Decimal) -> None:
    assert str(to_usd(Decimal("9999999.999999999999999999"), Decimal(1))) == "9999999.9999"
    amount = to_usd(paid, rate)
    assert amount * rate <= paid < (amount + Decimal("0.0001")) * rate


def test_a_top_up_is_looked_at_ever_more_rarely_for_as_long_as_it_is_open() -> None:
    waits = [poll_delay_s(tries) for tries in range(1, 200)]
    assert waits == sorted(waits)
    assert sum(waits[:4]) < 30
    assert sum(waits) > OPEN_FOR.total_seconds()
    # Every step of the table is taken once, and then the last one for ever.
    assert waits[12:17] == [120, 300, 900, 900, 900]


def test_nothing_that_is_sealed_is_shown_by_accident() -> None:
    secret = b"sealed secret"
    values: dict[str, Any] = {one.name: None for one in fields(TopUp)}
    started = NewTopUp(
        TopUpId(uuid4()),
        AccountId(uuid4()),
        Method.VOUCHER,
        "ott",
        Currency.ZAR,
        sealed_pin=secret,
        pin_hash=secret,
    )
    for one in (
        TopUp(**values | {"sealed_pin": secret, "sealed_change": secret}),
        started,
        TopUpUpdate(TopUpState.DOUBT, sealed_change=secret),
        Paid("ref", Decimal(5), secret),
        PaymentInDoubt("no answer", sealed_change=secret),
    ):
        assert "secret" not in repr(one)
