"""Is what people write about themselves read kindly, and nothing taken that would fool or break a page?"""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff
from tumira.pricing.phone_numbers import (
    NAME_MAX,
    PASSWORD_MAX,
    clean_name,
    fault_of_email,
    fault_of_name,
    fault_of_password,
    read_phone,
)

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


@given(st.text())
def test_what_is_read_as_a_number_is_one(text: str) -> None:
    number = read_phone(TARIFF, text)
    assert number is None or (number[0] == "+" and number[1:].isascii() and number[1:].isdecimal())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("  Tariro   Moyo ", "Tariro Moyo"),
        ("Tariro\r\nMoyo", "Tariro Moyo"),
        ("Tariro\u2028Moyo\u2029", "Tariro Moyo"),
        ("Tariro\x00\x1b[31mMoyo", "Tariro [31mMoyo"),
        ("Moyo\u202eserotS", "MoyoserotS"),
        ("\u2066Moyo\u2069\ufeff\u200b", "Moyo"),
        ("Mo\u00adyo", "Moyo"),
        ("नमस\u094d\u200dते", "नमस\u094d\u200dते"),
        ("Zoë Ńkosi-O'Brien", "Zoë Ńkosi-O'Brien"),
    ],
)
def test_a_name_is_one_line_that_looks_like_what_it_is(text: str, name: str) -> None:
    assert clean_name(text) == name


@given(st.text())
def test_cleaning_a_name_twice_changes_nothing_more(text: str) -> None:
    assert clean_name(clean_name(text)) == clean_name(text)


def test_a_name_has_letters_or_figures_and_an_end() -> None:
    assert fault_of_name("A") is None
    assert fault_of_name("7-Eleven") is None
    assert fault_of_name("x" * NAME_MAX) is None
    for name in ("", "x" * (NAME_MAX + 1), "...", "🙂", "<>", "\u200d"):
        assert fault_of_name(name), name


@pytest.mark.parametrize(
    "email", ["a@b.co", "first.last+tag@mail.example.org", "x_y-z@sub-domain.example", "1@example.com"]
)
def test_an_address_of_mail_is_taken(email: str) -> None:
    assert fault_of_email(email) is None


@pytest.mark.parametrize(
    "email",
    [
        "a",
        "a@b",
        "@example.com",
        "a@example.com,b@example.com",
        "a@example.com\r\nBcc: eve@example.com",
        "a@example.com\n",
        "a b@example.com",
        "Anna <a@example.com>",
        '"a b"@example.com',
        "a..b@example.com",
        ".a@example.com",
        "a@example..com",
        "a@-example.com",
        "a@exa_mple.com",
        "a@[127.0.0.1]",
        "a\x01b@example.com",
        "a\x7fb@example.com",
        "ä@example.com",
        "a@exämple.com",
        "a@example.com\u2028",
        "a" * 65 + "@example.com",
        "a@" + "b" * 64 + ".com",
        "a@" + "b." * 130 + "com",
    ],
)
def test_what_would_confuse_a_mail_server_is_no_address(email: str) -> None:
    assert fault_of_email(email)


@pytest.mark.parametrize(
    "password", ["correct horse battery", "zuva rinobuda", "x7!kLm2#", "пароль надежный", "p" * 253 + "abc"]
)
def test_a_password_of_some_length_is_taken(password: str) -> None:
    assert fault_of_password(password, "Tariro Moyo", "Moyo Stores", "+263771200001") is None


@pytest.mark.parametrize(
    "password",
    [
        "",
        "short7!",
        "p" * (PASSWORD_MAX + 1),
        "password",
        "Password123",
        "p-a-s-s-w-o-r-d",
        "ZIMBABWE",
        "12345678",
        "aaaaaaaa",
        "abababab",
        "        ",
        "Tariro Moyo",
        "tariromoyo",
        "TariroMoyo2026",
        "moyostores1",
        "Moyo-Stores-99",
        "+263771200001",
        "0771200001",
        "771200001",
        "263771200001",
    ],
)
def test_a_password_that_is_tried_first_is_refused(password: str) -> None:
    assert fault_of_password(password, "Tariro Moyo", "Moyo Stores", "+263771200001")


@given(st.text(max_size=300), st.text(max_size=50), st.text(max_size=50))
def test_every_text_is_judged_as_a_password(password: str, name: str, business: str) -> None:
    fault = fault_of_password(password, name, business, "")
    assert fault is None or fault.endswith(".")
