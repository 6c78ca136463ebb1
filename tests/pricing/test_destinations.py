"""Numbers accepted once at their price or rejected once with a code."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.core.errors import RecipientCode
from tumira.pricing.destinations import (
    Destination,
    Price,
    PriceStatus,
    Recipient,
    Rejected,
    Sorted,
    Tariff,
    is_mobile,
    sort_recipients,
)

ZW = Destination("ZW", "263", "Zimbabwe", (9,))
ZA = Destination("ZA", "27", "South Africa", (9,))
PRICES = (
    Price("sms", "ZW", Decimal("0.0400"), PriceStatus.ACTIVE),
    Price("sms", "ZA", Decimal("0.0200"), PriceStatus.ACTIVE),
    Price("sms", "ZW", Decimal("0.0190"), PriceStatus.COMING_SOON),
)
TARIFF = Tariff(1, (ZW, ZA), PRICES)

INVALID = RecipientCode.INVALID_NUMBER
UNSUPPORTED = RecipientCode.UNSUPPORTED_DESTINATION


def active(country: str, price_usd: str) -> Price:
    return Price("sms", country, Decimal(price_usd), PriceStatus.ACTIVE)


def code_of(tariff: Tariff, number: str) -> RecipientCode | None:
    outcome = sort_recipients(tariff, "sms", [number])
    return outcome.rejected[0].code if outcome.rejected else None


@pytest.mark.parametrize(
    "number",
    [
        *("", " ", "+", "263771200001", "0771200001", "00263771200001", "++263771200001", "+0263771200001"),
        *("+263 771 200 001", "+263-771-200001", "+26377120000a", "+263771200001;ext=5", "tel:+263771200001"),
        *("+26377120000\N{FULLWIDTH DIGIT ONE}", "+26377120000\N{ARABIC-INDIC DIGIT ONE}", "+26377120000²"),
        "\N{FULLWIDTH PLUS SIGN}263771200001",
        *("+263771200001\0", "+263771200001\n+27821230001", "+123456", "+1234567890123456"),
        *("+26377120000", "+2637712000011", "+2782123000", "+278212300011", "+2782123", "+27821"),
    ],
)
def test_what_is_not_e164_or_lacks_a_digit_is_an_invalid_number(number: str) -> None:
    assert code_of(TARIFF, number) is INVALID


@pytest.mark.parametrize(
    "number", ["+15550001234", "+1555000", "+155500012345678", "+447911123456", "+260955000000", "+2699999"]
)
def test_a_number_of_another_country_is_an_unsupported_destination(number: str) -> None:
    assert code_of(TARIFF, number) is UNSUPPORTED


@pytest.mark.parametrize("space", [" ", "\t", "\r\n", "\N{NO-BREAK SPACE}", "\N{IDEOGRAPHIC SPACE}"])
def test_space_around_a_number_is_trimmed(space: str) -> None:
    outcome = sort_recipients(TARIFF, "sms", [f"{space}+263771200001{space}"])
    assert [recipient.number for recipient in outcome.accepted] == ["+263771200001"]


def test_a_number_is_accepted_once_in_the_first_place_and_rejected_once_as_first_written() -> None:
    given_numbers = [
        *("+27821230001", " +263771200001", "+27821230001 ", "+263771200001", "+27821230002"),
        *(" +15550001234", "nonsense ", "+15550001234", "nonsense"),
    ]
    assert sort_recipients(TARIFF, "sms", given_numbers) == Sorted(
        [
            Recipient("+27821230001", "ZA", Decimal("0.0200")),
            Recipient("+263771200001", "ZW", Decimal("0.0400")),
            Recipient("+27821230002", "ZA", Decimal("0.0200")),
        ],
        [Rejected(" +15550001234", UNSUPPORTED), Rejected("nonsense ", INVALID)],
    )


def test_an_announced_price_does_not_open_a_destination() -> None:
    announced = Price("sms", "ZM", Decimal("0.0300"), PriceStatus.COMING_SOON)
    zambia = Destination("ZM", "260", "Zambia", (9,))
    assert code_of(Tariff(2, (ZW, ZA, zambia), (*PRICES, announced)), "+260955000000") is UNSUPPORTED
    assert code_of(Tariff(3, (ZW, ZA, zambia), (*PRICES, active("ZM", "0.0300"))), "+260955000000") is None
    # Without a price, a number is unsupported before it is too short.
    assert code_of(Tariff(2, (zambia,), ()), "+26095500") is UNSUPPORTED
    assert code_of(Tariff(0, (), ()), "+263771200001") is UNSUPPORTED


def test_a_price_on_one_channel_opens_no_other() -> None:
    assert sort_recipients(TARIFF, "whatsapp", ["+263771200001"]).rejected == [
        Rejected("+263771200001", UNSUPPORTED)
    ]
    prices = (*PRICES, Price("whatsapp", "ZA", Decimal("0.0100"), PriceStatus.ACTIVE))
    outcome = sort_recipients(Tariff(2, (ZW, ZA), prices), "whatsapp", ["+263771200001", "+27821230001"])
    assert outcome.accepted == [Recipient("+27821230001", "ZA", Decimal("0.0100"))]


def test_the_longest_calling_code_decides() -> None:
    united_states = Destination("US", "1", "United States", (10,))
    bahamas = Destination("BS", "1242", "Bahamas", (7,))
    both = Tariff(2, (united_states, bahamas), (active("US", "0.01"), active("BS", "0.09")))
    assert [recipient.country for recipient in sort_recipients(both, "sms", ["+15550001234"]).accepted] == [
        "US"
    ]
    assert [recipient.country for recipient in sort_recipients(both, "sms", ["+12425550001"]).accepted] == [
        "BS"
    ]
    # Without a price of its own the longer code is closed; it does not fall to the shorter one's price.
    assert (
        code_of(Tariff(3, (united_states, bahamas), (active("US", "0.01"),)), "+12425550001") is UNSUPPORTED
    )


def test_of_countries_with_one_calling_code_the_first_whose_length_fits_is_taken() -> None:
    one = Destination("US", "1", "United States", (10,))
    two = Destination("CA", "1", "Canada", (9, 10))
    tariff = Tariff(2, (one, two), (active("US", "0.01"), active("CA", "0.02")))
    outcome = sort_recipients(tariff, "sms", ["+15550001234", "+1555000123", "+155500012345"])
    assert [recipient.country for recipient in outcome.accepted] == ["US", "CA"]
    assert outcome.rejected == [Rejected("+155500012345", INVALID)]
    # A country without a price does not stand in the way of the next one.
    only_canada = Tariff(3, (one, two), (active("CA", "0.02"),))
    assert [
        recipient.country for recipient in sort_recipients(only_canada, "sms", ["+15550001234"]).accepted
    ] == ["CA"]


# How the mobile numbers of both countries begin, after the numbering plans. The blocks of five and six digits
# lie between landlines.
MOBILE = {
    "263": "7",
    "27": """
        6 7 81 82 83 84 85 50 191 192 10492 10493 10494 12492 21492 31492 41492 51492
        87086 87087 87158 87285 87286 87287 87288 87289 87310
        164920 174920 184920 284920 324920 334920 344920 354920 364920 394920
        404920 424920 454920 464920 484920 494920 534920 564920 574920 584920
        224950 274950 474950 544950 134920 134921 134922 134925 144950 144952 144953 144955
        154920 154950 154951 434920 434921 444920 444921
    """,
}
LANDLINES = {
    # Harare, Bulawayo, Mutare, Gweru, former area codes, VoIP, toll-free and reserved numbers.
    "263": "242 292 202 254 4 9 13 20 26 27 38 55 61 68 86 80 1 5",
    # Johannesburg, Pretoria, Cape Town, Durban, toll-free, shared cost, premium, VoIP and reserved numbers.
    "27": "10 11 12 13 21 31 41 51 53 58 80 86 860 861 862 87 88 89 90 91 193 15493 10495 27",
}


def fill(calling_code: str, prefix: str) -> str:
    return f"+{calling_code}{prefix:0<9}"


def test_mobile_numbers_are_sent_to_and_landlines_are_not_billed() -> None:
    for calling_code, prefixes in MOBILE.items():
        assert {code_of(TARIFF, fill(calling_code, prefix)) for prefix in prefixes.split()} == {None}
    for calling_code, prefixes in LANDLINES.items():
        assert {code_of(TARIFF, fill(calling_code, prefix)) for prefix in prefixes.split()} == {INVALID}


def test_where_the_ranges_of_a_country_are_not_known_every_number_is_sent_to() -> None:
    tariff = Tariff(2, (Destination("ZM", "260", "Zambia", (9,)),), (active("ZM", "0.03"),))
    assert code_of(tariff, fill("260", "21")) is None


def expected_code(number: str) -> RecipientCode | None:
    digits = number[1:]
    if not number.startswith("+") or not digits.isascii() or not digits.isdecimal():
        return INVALID
    if digits.startswith("0") or not 7 <= len(digits) <= 15:
        return INVALID
    for destination in (ZW, ZA):
        if digits.startswith(destination.calling_code):
            national = digits.removeprefix(destination.calling_code)
            is_sound = len(national) in destination.national_lengths
            return (
                None
                if is_sound and national.startswith(tuple(MOBILE[destination.calling_code].split()))
                else INVALID
            )
    return UNSUPPORTED


texts = st.one_of(
    st.from_regex(r"\A\+(263|27|26|1|0)?[0-9]{0,14}\Z"),
    st.from_regex(r"\A\s?\+(2637712[0-9]{5}|2782123[0-9]{4})\s?\Z"),
    st.text(max_size=18),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(texts, max_size=30))
def test_every_distinct_number_has_exactly_one_outcome(numbers: Sequence[str]) -> None:
    outcome = sort_recipients(TARIFF, "sms", numbers)
    distinct = list(dict.fromkeys(number.strip() for number in numbers))
    assert [recipient.number for recipient in outcome.accepted] == [
        number for number in distinct if expected_code(number) is None
    ]
    assert [(rejected.to.strip(), rejected.code) for rejected in outcome.rejected] == [
        (number, expected_code(number)) for number in distinct if expected_code(number)
    ]
    assert all(rejected.to in numbers for rejected in outcome.rejected)


def test_a_number_that_a_text_may_not_go_to_is_rejected_with_its_reason() -> None:
    barred = {"+263771200001": RecipientCode.RECIPIENT_LIMIT, "+15550001234": RecipientCode.RECIPIENT_LIMIT}
    found = sort_recipients(TARIFF, "sms", [" +263771200001", "+27821230001", "+15550001234"], barred)
    assert [one.number for one in found.accepted] == ["+27821230001"]
    # As it was written, and one that cannot be sent to anyway for that reason.
    assert found.rejected == [
        Rejected(" +263771200001", RecipientCode.RECIPIENT_LIMIT),
        Rejected("+15550001234", UNSUPPORTED),
    ]


def test_lengths_are_those_of_whole_numbers() -> None:
    assert TARIFF.lengths == {13, 12}
    assert Tariff(1, (Destination("ZM", "260", "Zambia", (9, 7)),), ()).lengths == {13, 11}


def test_landlines_are_told_from_mobile_numbers_where_their_ranges_are_known() -> None:
    assert is_mobile("+263771200001", "263")
    assert not is_mobile("+263242700000", "263")
    assert is_mobile("+27821230001", "27")
    assert not is_mobile("+27115550001", "27")
    assert is_mobile("+260955000000", "260")
