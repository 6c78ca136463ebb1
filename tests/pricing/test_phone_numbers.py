"""Phone numbers as people write them."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff
from tumira.pricing.phone_numbers import read_phone

TARIFF = Tariff(
    1,
    [
        Destination("ZW", "263", "Zimbabwe", (9,)),
        Destination("ZA", "27", "South Africa", (9,)),
        Destination("ZM", "260", "Zambia", (9,)),
    ],
    [
        Price("sms", "ZW", Decimal("0.04"), PriceStatus.ACTIVE),
        Price("sms", "ZA", Decimal("0.03"), PriceStatus.ACTIVE),
        Price("sms", "ZM", Decimal("0.03"), PriceStatus.COMING_SOON),
    ],
)


@pytest.mark.parametrize(
    "text",
    [
        "+263771200001",
        " +263 77 120 0001 ",
        "+263-77-120-0001",
        "+263 (77) 120.0001",
        "00263771200001",
        "00 263 77 120 0001",
        "+263\u00a077\u2011120\u20130001",
        "+263/771200001",
    ],
)
def test_a_number_is_read_as_people_write_it(text: str) -> None:
    assert read_phone(TARIFF, text) == "+263771200001"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "system",
        "0771200001",
        "263771200001",
        "+26377120000",
        "+2637712000011",
        "+260971200001",
        "+14155550100",
        "+٢٦٣٧٧١٢٠٠٠٠١",
        "\uff0b263771200001",
        "+263771200001,+263771200002",
        "+263771200001;DROP",
        "+263771200001\x00",
        "\u202e+263771200001",
        "+263771200001#",
    ],
)
def test_a_number_that_we_cannot_text_is_nobodys(text: str) -> None:
    assert read_phone(TARIFF, text) is None


@settings(max_examples=50)
@given(st.text())
def test_what_is_read_as_a_number_is_one(text: str) -> None:
    number = read_phone(TARIFF, text)
    assert number is None or (number[0] == "+" and number[1:].isascii() and number[1:].isdecimal())
