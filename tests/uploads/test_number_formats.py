"""Numbers and dates of workbooks, written as spreadsheet programs show them."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.uploads.workbooks.date_formats import DAYS_TO_1904, NO_DATE
from tumira.uploads.workbooks.number_formats import BUILT_IN, NumberFormat, read_number


def shown(stored: str, code: str) -> str:
    value = read_number(stored)
    assert value is not None
    return NumberFormat(code).write(value)


@pytest.mark.parametrize(
    ("stored", "code", "look"),
    [
        # A phone number that was taken for a quantity has all its digits; one that lost them looks like it.
        ("263771200001", "General", "263771200001"),
        ("2.63771200001E+11", "General", "263771200001"),
        ("263771200001", "0.00E+00", "263771200001"),
        ("263771200001.0", "General", "263771200001"),
        ("263771000000", "General", "2.63771E+11"),
        ("264000000000", "0.00E+00", "2.64E+11"),
        ("27821230001", "General", "27821230001"),
        ("771200001", "General", "771200001"),
        ("771200001", "0000000000", "0771200001"),
        ("771200001", r"000\ 000\ 0000", "077 120 0001"),
        ("263771200001", '"+"0', "+263771200001"),
        ("263771200001", "#,##0", "263,771,200,001"),
        ("1E+20", "General", "1E+20"),
        ("5", "General", "5"),
        ("5.0", "General", "5"),
        ("-5", "General", "-5"),
        ("0", "General", "0"),
        ("-0", "General", "0"),
        ("12.5", "General", "12.5"),
        ("0.30000000000000004", "General", "0.3"),
        ("0.333333333333333", "General", "0.333333333"),
        ("1234.56789012", "General", "1234.56789"),
        ("0.000012345", "General", "1.2345E-05"),
        ("1234.5", "0", "1235"),
        ("2.675", "0.00", "2.68"),
        ("1234.5", "#,##0.00", "1,234.50"),
        ("-1234.5", "#,##0.00", "-1,234.50"),
        ("999", "#,##0", "999"),
        ("12", "000,000", "000,012"),
        ("0.5", "#.##", ".5"),
        ("1.2", "0.0#", "1.2"),
        ("1.25", "0.0#", "1.25"),
        ("0.125", "0%", "13%"),
        ("0.125", "0.0%", "12.5%"),
        ("1234567", "#,##0,", "1,235"),
        ("1234567", '0.0,,"M"', "1.2M"),
        ("1234.5", '"$"#,##0.00', "$1,234.50"),
        ("12.5", "[$US$-409]#,##0.00", "US$12.50"),
        ("12.5", r"[$R-1C09]\ #,##0.00", "R 12.50"),
        ("-12.5", '"$"#,##0.00;[Red]("$"#,##0.00)', "($12.50)"),
        ("0", "0;-0;", ""),
        ("0", '0;-0;"none"', "none"),
        ("5", ";;;", ""),
        ("5", '"paid"', "paid"),
        ("12", 'General" kg"', "12 kg"),
        ("12", "@", "12"),
        ("7712001", "[<=9999999]###-####;(###) ###-####", "771-2001"),
        ("0.5", "# ?/?", "0.5"),
        ("46329", "dd/mm/yyyy", "03/11/2026"),
        ("46329", "m/d/yy", "11/3/26"),
        ("46329", "yyyy-mm-dd", "2026-11-03"),
        ("46329", r"[$-409]d\-mmm\-yy;@", "3-Nov-26"),
        ("46329", r"dddd\,\ d\ mmmm\ yyyy", "Tuesday, 3 November 2026"),
        ("46329.52083333333", "d mmm yyyy h:mm AM/PM", "3 Nov 2026 12:30 PM"),
        ("46329.999999", "d/m/yyyy", "4/11/2026"),
        ("0.75", "h:mm", "18:00"),
        ("0.5208449", "mm:ss.0", "30:01.0"),
        ("1.5", "[h]:mm", "36:00"),
        ("60", "d/m/yyyy", "29/2/1900"),
        ("1", "d/m/yyyy", "1/1/1900"),
        ("-1", "d/m/yyyy", NO_DATE),
        ("2958466", "d/m/yyyy", NO_DATE),
        ("1e308", "d/m/yyyy", NO_DATE),
    ],
)
def test_a_number_looks_as_its_format_says(stored: str, code: str, look: str) -> None:
    assert shown(stored, code) == look


def test_built_in_formats_are_known_by_their_number() -> None:
    assert shown("46329", BUILT_IN[14]) == "03/11/2026"
    assert shown("1234.5", BUILT_IN[44]) == "$1,234.50"
    assert shown("0", BUILT_IN[44]) == "$-"
    assert shown("0.5", BUILT_IN[18]) == "12:00 PM"


def test_dates_may_be_counted_from_1904() -> None:
    assert NumberFormat("d/m/yyyy", DAYS_TO_1904).write(Decimal(0)) == "1/1/1904"


def test_a_format_may_add_to_a_text_or_hide_it() -> None:
    assert NumberFormat('"Dr "@').write_text("Moyo") == "Dr Moyo"
    assert NumberFormat("0.00").write_text("Moyo") == "Moyo"
    assert NumberFormat("0;0;0;").write_text("Moyo") == ""


@pytest.mark.parametrize("stored", ["", "x", "NaN", "1E+999", "1" * 500, "0x10", "--1", "1e", "٣"])
def test_what_is_no_number_is_not_read_as_one(stored: str) -> None:
    assert read_number(stored) is None


@given(st.integers(1, 10**15 - 1))
def test_whole_numbers_lose_no_digit(number: int) -> None:
    look = shown(str(number), "General")
    assert Decimal(look) == number
    assert "E" not in look or number % 10**6 == 0


@given(st.dates(date(1900, 3, 1), date(9999, 12, 31)))
def test_days_are_counted_as_spreadsheets_count(day: date) -> None:
    serial = (day - date(1899, 12, 30)) // timedelta(days=1)
    assert shown(str(serial), "yyyy-mm-dd dddd") == f"{day.isoformat()} {day:%A}"


@given(st.decimals(-(10**9), 10**9, places=2))
def test_amounts_look_as_python_writes_them(amount: Decimal) -> None:
    assert shown(str(amount), "#,##0.00") == f"{amount:,.2f}".replace("-0.00", "0.00")


@given(st.text('0#?.,%;/@[]$"\\_*-+EeyYmMdDhHsSaAPpGgnerl 10<>=', max_size=40), st.floats(allow_nan=False))
def test_no_format_fails(code: str, number: float) -> None:
    value = read_number(repr(number))
    if value is not None:
        NumberFormat(code).write(value)
    NumberFormat(code).write_text("text")
