"""Amounts of money."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.core import money

amounts = st.decimals(min_value=0, max_value=Decimal("9999999999.9999"), places=4)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "0.0000"),
        ("0.04", "0.0400"),
        ("0.0190", "0.0190"),
        ("5", "5.0000"),
        ("1E+3", "1000.0000"),
        ("1E-4", "0.0001"),
        ("-0.02", "-0.0200"),
        ("-0", "0.0000"),
        ("0.040000", "0.0400"),
        ("99999999999999999999999999999999.1234", "99999999999999999999999999999999.1234"),
    ],
)
def test_an_amount_is_written_with_four_decimals_and_no_exponent(amount: str, text: str) -> None:
    assert money.write(Decimal(amount)) == text


@pytest.mark.parametrize("amount", ["0.00001", "0.00005", "1.23456", "NaN", "sNaN", "Infinity", "-Infinity"])
def test_an_amount_that_four_decimals_cannot_hold_is_our_mistake(amount: str) -> None:
    with pytest.raises(AssertionError):
        money.write(Decimal(amount))


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", "0"),
        ("5", "5"),
        ("12.5", "12.5"),
        ("0.0190", "0.019"),
        ("007", "7"),
        ("9999999999.9999", "9999999999.9999"),
    ],
)
def test_a_plain_amount_is_read(text: str, amount: str) -> None:
    assert money.parse(text) == Decimal(amount)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "5 ", " 5", "5\n", "+5", "-5", "-0", "1e3", "1E3", "NaN", "Infinity", "inf"),
        *("5.", ".5", ".", "1.2.3", "0.00001", "5,00", "1,000.00", "1_000", "10000000000", "$5", "0x10"),
        *("\N{ARABIC-INDIC DIGIT FIVE}", "\N{FULLWIDTH DIGIT FIVE}", "1\N{ARABIC DECIMAL SEPARATOR}5", "²"),
        *("\N{MINUS SIGN}5", "5\N{NO-BREAK SPACE}"),
    ],
)
def test_anything_but_a_plain_amount_is_not_read(text: str) -> None:
    assert money.parse(text) is None


@given(amounts)
def test_what_is_written_is_read_back(amount: Decimal) -> None:
    assert money.parse(money.write(amount)) == amount


@given(st.text(alphabet="0123456789.-+eE \N{ARABIC-INDIC DIGIT FIVE}", max_size=20))
def test_what_is_read_is_an_amount_that_can_be_written(text: str) -> None:
    amount = money.parse(text)
    if amount is not None:
        assert amount >= 0
        assert Decimal(money.write(amount)) == Decimal(text)
