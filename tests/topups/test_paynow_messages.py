"""Messages are written, signed and read as Paynow does it."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.topups.providers.paynow_messages import (
    FIELDS_MAX,
    Meaning,
    is_signed,
    meaning_of,
    read,
    read_amount,
    read_expiry,
    sign,
    write,
)

# The key that Paynow's documentation publishes in its examples.
KEY: Final = "3e9fed89-60e1-4ce5-ab6e-6b1eb2d4f977"

EXPRESS: Final = [
    ("id", "1201"),
    ("reference", "TUM-000123"),
    ("amount", "5.00"),
    ("additionalinfo", "Tumira top-up"),
    ("returnurl", "https://tumira.example/topups/000123"),
    ("resulturl", "https://tumira.example/hooks/paynow/000123"),
    ("authemail", "owner@example.co.zw"),
    ("phone", "0771111111"),
    ("method", "ecocash"),
    ("merchanttrace", "tum000123a1"),
    ("status", "Message"),
]
EXPRESS_HASH: Final = (
    "FA22C42D2A313E8E2E4243188C182C7E93F400539CB72C365C87D2E4839DC519"
    "A137E4193CB9C541BE6FFCF454AC312E477FCC5EB556F1A741F3C05C7052354D"
)
TRACE: Final = [("id", "1201"), ("merchanttrace", "tum000123a1"), ("status", "Message")]
TRACE_HASH: Final = (
    "B1CAF9B2BD56AE4D88A86D12C27D095C41C15FEE3E3678EB0E6BDBBFE0647448"
    "2BCBD6A1B2F3C703BEA32B6EC18271ADB0AEFC94DE2E3A7B4A8D7D782640CE51"
)
BEGUN: Final = (
    b"status=Ok&browserurl=https%3a%2f%2fstaging.paynow.co.zw%2fPayment%2fConfirmPayment%2f9510"
    b"&pollurl=https%3a%2f%2fstaging.paynow.co.zw%2fInterface%2fCheckPayment%2f%3fguid%3d"
    b"c7ed41da-0159-46da-b428-69549f770413&paynowreference=9510"
    b"&hash=750DD0B0DF374678707BB5AF915AF81C228B9058AD57BB7120569EC68BBB9C2E"
    b"FC1B26C6375D2BC562AC909B3CD6B2AF1D42E1A5E479FFAC8F4FB3FDCE71DF4D"
)
TOLD: Final = (
    b"reference=TUM-000123&paynowreference=9510&amount=5.00&status=Awaiting+Delivery"
    b"&pollurl=https%3A%2F%2Fwww.paynow.co.zw%2FInterface%2FCheckPayment%2F%3Fguid%3D"
    b"c7ed41da-0159-46da-b428-69549f770413"
    b"&hash=28E33660B778705B63BDBD1FF350F93F80F97263494A733569A831F9BBE49F3C"
    b"35A54971F9104E670A90C21D9D7375B5E88A86660C2A6406C2BE492C05972B29"
)

texts: Final = st.text(st.characters(codec="utf-8"), max_size=20)


def test_what_we_send_has_the_documented_hash() -> None:
    for pairs, expected in ((EXPRESS, EXPRESS_HASH), (TRACE, TRACE_HASH)):
        assert sign(pairs, KEY) == expected
        # The key is written either way in what merchants are sent.
        assert sign(pairs, KEY.upper()) == expected


@pytest.mark.parametrize("body", [BEGUN, TOLD])
def test_what_paynow_sends_has_the_documented_hash_and_any_change_is_noticed(body: bytes) -> None:
    pairs = read(body)
    assert pairs is not None
    assert is_signed(pairs, KEY)
    assert not is_signed(pairs, KEY[:-1] + "8")
    for place, (name, value) in enumerate(pairs):
        changed = [*pairs[:place], (name, value + "0"), *pairs[place + 1 :]]
        assert not is_signed(changed, KEY), name
    assert not is_signed(pairs[:-1], KEY)
    assert not is_signed(list(reversed(pairs)), KEY)


def test_a_digit_that_changes_fields_is_not_noticed_by_the_hash() -> None:
    # Why nothing but who sent it is taken from a notice.
    told = [("paynowreference", "9515"), ("amount", "5.00")]
    assert sign(told, KEY) == sign([("paynowreference", "951"), ("amount", "55.00")], KEY)


@given(st.lists(st.tuples(st.text("abcdefg", min_size=1, max_size=8), texts), max_size=20))
def test_what_is_written_is_read_again_and_is_signed(pairs: list[tuple[str, str]]) -> None:
    pairs = [(f"{name}{place}", value) for place, (name, value) in enumerate(pairs)]
    found = read(write(pairs, KEY))
    assert found == [*pairs, ("hash", sign(pairs, KEY))]
    assert is_signed(found, KEY)


@given(st.binary(max_size=200))
def test_nothing_that_comes_raises_and_nobody_hits_the_hash(body: bytes) -> None:
    pairs = read(body)
    assert pairs is None or not is_signed(pairs, KEY)


def test_names_are_read_in_lower_case_and_a_body_that_can_be_read_in_two_ways_is_refused_whole() -> None:
    body = b"Status=Ok&BrowserUrl=https%3A%2F%2FExample&Blank=&Hash=abc\r\n"
    fields = {"status": "Ok", "browserurl": "https://Example", "blank": "", "hash": "abc"}
    assert read(body) == list(fields.items())
    many = b"&".join(b"f%d=1" % place for place in range(FIELDS_MAX + 1))
    for refused in (b"status=Paid&Status=Cancelled&hash=1", b"hash=1&HASH=2", b"status=\xff", many):
        assert read(refused) is None


def test_a_status_means_what_paynow_says() -> None:
    meanings = {
        Meaning.OPEN: ("Created", "Sent"),
        Meaning.PAID: ("Paid", "PAID", "Awaiting Delivery", "awaiting delivery", "Delivered"),
        Meaning.CANCELLED: ("Cancelled",),
        Meaning.FAILED: ("Failed",),
        Meaning.TAKEN_BACK: ("Disputed", "Refunded"),
        None: ("Ok", "Error", "NotFound", "Paid?", ""),
    }
    for meaning, statuses in meanings.items():
        assert {meaning_of(status) for status in statuses} == {meaning}


def test_amounts_are_read_and_nothing_else() -> None:
    for text, amount in (("5.00", "5"), ("5", "5"), ("0.5", "0.5"), ("12.3400", "12.34")):
        assert read_amount(text) == Decimal(amount)
    for text in ("", "-5.00", "+5", "5,00", "5e3", "NaN", " 5", "\u0665", "1" * 11, "5.00 USD", "."):
        assert read_amount(text) is None


def test_a_code_expires_by_the_clock_of_harare() -> None:
    for text, at in (
        ("5-Nov-2026 14:30", datetime(2026, 11, 5, 12, 30, tzinfo=UTC)),
        ("15-NOV-2026 01:05", datetime(2026, 11, 14, 23, 5, tzinfo=UTC)),
        ("1-Sept-2026 00:00", datetime(2026, 8, 31, 22, 0, tzinfo=UTC)),
    ):
        assert read_expiry(text) == at
    for text in ("", "soon", "31-Feb-2026 10:00", "5-Foo-2026 10:00", "5-Nov-2026 25:00"):
        assert read_expiry(text) is None
