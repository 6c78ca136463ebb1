"""A passcode is recognised by its text, and only where a late one is of no use."""

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.content.service_messages import service_messages
from tests.support.content.texts import LANGUAGES, PROMOTIONAL, TRANSACTIONAL, passcode_messages
from tumira.content.passcodes import CHARACTERS_MAX, is_passcode

# Enough for every frame of each language and family.
SLICE = 2_000
# Of a hundred passcodes those that are recognised, and of a hundred other notices those that are mistaken.
RECOGNISED_MIN = 85
MISTAKEN_MAX = 2


@pytest.mark.parametrize(
    "text",
    [
        "Your code is 493817.",
        "493817 is your Tumira OTP. Do not share it.",
        "Your login PIN: 493-817, valid for 10 minutes",
        "Use 493817 to sign in to Tumira",
        "Code 4938 authorises payment of R450.00 to Spar on 12/05 at 09:30. Not you? Call 0821230001.",
        "Kodhi yenyu ndeiyi 493817. Inoshanda kwemaminitsi 10.",
        "G-493817 is your verification code",
        "Your cоde is 493817",  # noqa: RUF001 - a Cyrillic letter
    ],
)
def test_a_passcode_is_recognised(text: str) -> None:
    assert is_passcode(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Your order is ready.",
        "Your code is on its way.",
        "Your balance is $210.15",
        "Your PIN for collecting parcel 88213 is 4938. Show it to the driver.",
        "Locker code 493817 for your package at Avondale",
        "Your voucher PIN is 49381726",
        "Jou pakkie se afhaalkode is 493817",
        "Your code is 493817. It is valid for 24 hours.",
        "Use code 493817 within 7 days to activate the card",
        "Use code 482913 to get 20% off",
        "Reminder: dentist on Tuesday at 09:00",
        "Your code is 493817. " * 30,
    ],
)
def test_what_is_of_use_later_is_none(text: str) -> None:
    assert not is_passcode(text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_its_words(language: str) -> None:
    assert [text for text in passcode_messages(language) if not is_passcode(text)] == []
    assert [text for text in (*TRANSACTIONAL[language], *PROMOTIONAL[language]) if is_passcode(text)] == []


def test_notices_of_other_kinds_are_seldom_mistaken() -> None:
    found: Counter[tuple[bool, bool]] = Counter(
        (family == "passcode", is_passcode(text)) for _, family, text in islice(service_messages(), SLICE)
    )
    codes = found[True, True] + found[True, False]
    others = found[False, True] + found[False, False]
    assert found[True, True] * 100 >= codes * RECOGNISED_MIN
    assert found[False, True] * 100 <= others * MISTAKEN_MAX


@given(st.integers(0, 999_999))
def test_the_figures_do_not_matter(code: int) -> None:
    assert is_passcode(f"Your code is {code:06}.")


@pytest.mark.parametrize("unit", ["code ", "0000 ", "0.", "a", "0", "*0", "$"])
def test_a_long_text_is_none_without_being_read(unit: str) -> None:
    assert not is_passcode((unit * 100_000)[:100_000])
    assert is_passcode((unit * CHARACTERS_MAX)[:CHARACTERS_MAX]) in {True, False}
