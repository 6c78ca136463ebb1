"""Phone numbers as people write them."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.core.errors import RecipientCode
from tumira.pricing import phone_numbers
from tumira.pricing.destinations import (
    RECIPIENTS_MAX,
    Destination,
    Price,
    PriceStatus,
    Tariff,
    sort_recipients,
)
from tumira.pricing.phone_numbers import (
    complete,
    country_of,
    explain,
    read_phone,
    read_recipients,
    suggest,
    write_phone,
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
ZIMBABWEAN = "+263771200001"
SOUTH_AFRICAN = "+27821230001"
INVALID = RecipientCode.INVALID_NUMBER


@pytest.mark.parametrize(
    "text",
    [
        "+263771200001",
        " +263 77 120 0001 ",
        "+263-77-120-0001",
        "+263 (77) 120.0001",
        "+263 (0)77 120 0001",
        "+2630771200001",
        "00263771200001",
        "00 263 77 120 0001",
        "00263 (0) 77 120 0001",
        "263771200001",
        "2630771200001",
        "+263\u00a077\u2011120\u20130001",
        "+263/771200001",
        "\u202a+263 77 120 0001\u202c",
        "\ufeff+263771200001\r\n",
    ],
)
def test_a_number_with_its_country_code_is_read_as_people_write_it(text: str) -> None:
    for country in (None, "ZW", "ZA", "ZM", "XX"):
        assert read_phone(TARIFF, text, country) == ZIMBABWEAN, country


@pytest.mark.parametrize(
    "text",
    [
        *("0771200001", "771200001", "077 120 0001", "77 120 0001", "(0)77-120-0001", "(077) 120-0001"),
        *("077.120.0001", "077/120/0001", "0 7 7 1 2 0 0 0 0 1", "\t0771200001\n"),
        *("077\u00a0120\u00a00001", "077\u2009120\u202f0001", "\u200e077\u2011120\u20140001\u200f"),
    ],
)
def test_a_local_number_is_completed_for_its_country(text: str) -> None:
    assert read_phone(TARIFF, text, "ZW") == ZIMBABWEAN
    # The number exists in both countries.
    assert read_phone(TARIFF, text, "ZA") == "+27771200001"
    there = text.replace("77", "82", 1).replace("7 7", "8 2").replace("120", "123").replace("1 2 0", "1 2 3")
    assert read_phone(TARIFF, there, "ZA") == SOUTH_AFRICAN
    # No mobile number of Zimbabwe begins like this.
    assert read_phone(TARIFF, there, "ZW") is None
    for country in (None, "XX"):
        assert read_phone(TARIFF, text, country) is None


@pytest.mark.parametrize("country", [None, "ZW", "ZA"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "system",
        "077120000",
        "07712000011",
        "26377120000",
        "+26377120000",
        "+2637712000011",
        "+263 (00) 77 120 0001",
        "+0771200001",
        "+260971200001",
        "+14155550100",
        "+٢٦٣٧٧١٢٠٠٠٠١",
        "\uff0b263771200001",
        "O771200001",
        "+263771200001,+263771200002",
        "+263771200001;DROP",
        "+263771200001\x00",
        "+263771200001#",
        "0771200001 ext 5",
        "=0771200001",
    ],
)
def test_a_number_that_we_cannot_text_is_nobodys(text: str, country: str | None) -> None:
    assert read_phone(TARIFF, text, country) is None


def test_a_country_whose_numbers_begin_with_a_zero_keeps_it() -> None:
    ivory_coast = Destination("CI", "225", "Ivory Coast", (10,))
    price = Price("sms", "CI", Decimal("0.05"), PriceStatus.ACTIVE)
    tariff = Tariff(2, [*TARIFF.destinations, ivory_coast], [*TARIFF.prices, price])
    for text in ("0701200001", "07 01 20 00 01", "+225 07 01 20 00 01", "2250701200001"):
        assert read_phone(tariff, text, "CI") == "+2250701200001"


typed = st.one_of(
    st.text(max_size=20),
    st.from_regex(r"\A[ (]?(\+|00)?(263|27)?[ )-]?(\(0\)|0)?[0-9 .-]{0,14}\Z"),
    st.from_regex(r"\A\(?0?[78][1-9]\)?[ -]?[0-9]{3}[ -]?[0-9]{4}\Z"),
)


@settings(max_examples=200)
@given(typed, st.sampled_from(["ZW", "ZA", "ZM", None]))
def test_what_is_completed_stays_as_it_is(text: str, country: str | None) -> None:
    number = complete(TARIFF, text, country)
    assert complete(TARIFF, number, country) == number
    read = read_phone(TARIFF, text, country)
    assert read in {None, number}
    if read is not None:
        # In international form, it is the same number for everybody.
        assert read[0] == "+"
        assert read[1:].isascii()
        assert read[1:].isdecimal()
        assert {complete(TARIFF, read, one) for one in ("ZW", "ZA", None)} == {read}
        assert read_phone(TARIFF, write_phone(read)) == read


@given(st.sampled_from([("ZW", "+263", "77"), ("ZA", "+27", "82")]), st.integers(0, 9_999_999), st.data())
def test_however_a_national_number_is_written_it_is_one_of_its_country(
    place: tuple[str, str, str], last: int, data: st.DataObject
) -> None:
    country, code, first = place
    prefix = data.draw(st.sampled_from(["0", "(0)", "", code, f"{code} (0)", "00" + code[1:], code[1:]]))
    gaps = st.text(" -.()\u00a0", max_size=1)
    text = prefix + "".join(digit + data.draw(gaps) for digit in f"{first}{last:07}")
    number = f"{code}{first}{last:07}"
    assert read_phone(TARIFF, text, country) == number
    (recipient,) = sort_recipients(TARIFF, "sms", [number]).accepted
    assert recipient.country == country == country_of(TARIFF, number)


def test_the_country_of_a_number_is_known_without_a_price_too() -> None:
    numbers = (ZIMBABWEAN, SOUTH_AFRICAN, "+260971200001", "+263242000000", "+14155550100", "", "system")
    assert [country_of(TARIFF, one) for one in numbers] == ["ZW", "ZA", "ZM", "ZW", None, None, None]


def test_numbers_are_shown_in_groups() -> None:
    assert write_phone(ZIMBABWEAN) == "+263\xa077\xa0120\xa00001"
    assert write_phone(SOUTH_AFRICAN) == "+27\xa082\xa0123\xa00001"
    for other in ("+263••••••001", "+263•erased", "+260971200001", "system", ""):
        assert write_phone(other) == other


@pytest.mark.parametrize(
    ("text", "country", "said"),
    [
        ("+447700900123", "ZW", "We do not send to this country."),
        ("+260971200001", "ZW", "We do not send to this country."),
        ("0771200001", None, "Add the country code, for example +263 77 120 0001."),
        ("+0771200001", "ZW", "Add the country code, for example +263 77 120 0001."),
        ("Moyo", "ZW", "This is not a phone number."),
        ("+", "ZW", "This is not a phone number."),
        ("123", "ZW", "This number is too short."),
        ("1" * 20, "ZW", "This number is too long."),
        ("077 120 000", "ZW", "Numbers in Zimbabwe have 9 digits after +263. This one has 8."),
        ("+27 82 123 00011", "ZW", "Numbers in South Africa have 9 digits after +27. This one has 10."),
        ("0242 000 000", "ZW", "This is not a mobile number in Zimbabwe."),
        ("011 000 0000", "ZA", "This is not a mobile number in South Africa."),
    ],
)
def test_it_is_said_why_a_number_cannot_be_sent_to(text: str, country: str | None, said: str) -> None:
    number = complete(TARIFF, text, country)
    (rejected,) = sort_recipients(TARIFF, "sms", [number]).rejected
    assert explain(TARIFF, number, rejected.code) == said


@pytest.mark.parametrize(
    ("text", "country", "meant"),
    [
        ("0771200001", None, "+263771200001 (Zimbabwe) or +27771200001 (South Africa)"),
        ("0821230001", "ZW", SOUTH_AFRICAN),
        ("+0771200001", "ZW", ZIMBABWEAN),
        ("O77 l2O OOOI", "ZW", ZIMBABWEAN),
        ("+26377120000l", None, ZIMBABWEAN),
        ("263771200", None, None),
        ("077120000", "ZW", None),
        ("Moyo", "ZW", None),
        ("", None, None),
    ],
)
def test_the_likely_number_is_suggested(text: str, country: str | None, meant: str | None) -> None:
    assert suggest(TARIFF, text, country) == meant


@pytest.mark.parametrize("pattern", ["1 ", "7 7 1 2 0 0 0 0 1 ", "1 2345678 1 1 1 1 ", "077 120 0001 ", "1,"])
def test_a_form_full_of_digits_is_read_no_further_than_a_message_can_go(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    is_reached = phone_numbers._is_reached

    def look(tariff: Tariff, number: str) -> bool:
        looks.append(number)
        return is_reached(tariff, number)

    monkeypatch.setattr(phone_numbers, "_is_reached", look)
    text = pattern * (120_000 // len(pattern))

    read = read_recipients(TARIFF, text, "ZW")

    assert len(read) == RECIPIENTS_MAX + 1
    # The pieces behind each number are tried with it, in a few readings, and never all that follow.
    assert len(looks) <= 20 * len(read)
    assert read[:10] == read_recipients(TARIFF, text[:1000], "ZW")[:10]
    # The twin without the limit reads all of it.
    assert len(read_recipients(TARIFF, text, "ZW", len(text))) > RECIPIENTS_MAX + 1
