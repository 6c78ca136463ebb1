"""Numbers, months and tax as papers write them."""

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tumira.papers.content import (
    PaperSeries,
    month_after,
    month_before,
    read_month,
    read_number,
    tax_in,
    write_month,
    write_number,
)
from tumira.papers.pdf import LETTERS, printable


@given(some.sampled_from(PaperSeries), some.integers(1, 10**18 - 1))
def test_a_number_is_read_as_it_was_written(series: PaperSeries, number: int) -> None:
    assert read_number(write_number(series, number)) == (series, number)


def test_numbers_have_six_digits_at_least() -> None:
    assert write_number(PaperSeries.INVOICE, 7) == "INV-000007"
    assert write_number(PaperSeries.ENTRY, 1_234_567) == "1234567"


@pytest.mark.parametrize(
    "text", ["", "INV-", "INV-1", "inv-000001", "XX-000001", "INV-000001 ", "-000001", "\u0660" * 6]
)
def test_what_is_no_number_names_nothing(text: str) -> None:
    assert read_number(text) is None


@given(some.dates(date(2001, 1, 1), date(2098, 12, 31)))
def test_months_follow_each_other(day: date) -> None:
    month = day.replace(day=1)
    assert month_before(month_after(month)) == month
    assert 28 <= (month_after(month) - month).days <= 31
    assert read_month(write_month(month)) == month


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "2026-00", "2026-1", "1999-01", "2026-10-01", "x"])
def test_what_is_no_month_is_refused(text: str) -> None:
    assert read_month(text) is None


def test_tax_is_a_part_of_the_amount() -> None:
    assert tax_in(Decimal(10), Decimal(15)) == Decimal("1.30")
    assert tax_in(Decimal("8.1081"), Decimal(15)) == Decimal("1.06")
    assert tax_in(Decimal(10), Decimal("15.5")) == Decimal("1.34")


def test_names_keep_their_letters_as_far_as_the_fonts_have_them() -> None:
    assert printable("City of Tšhwane & Müller, €5") == "City of Tšhwane & Müller, €5"
    assert printable("Makha\u1e13o, Tshiven\u1e13a \u5317\n\u2212US$1") == "Makhado, Tshivenda ? -US$1"


@given(some.text())
def test_any_text_can_be_drawn(text: str) -> None:
    printable(text).encode(LETTERS)
