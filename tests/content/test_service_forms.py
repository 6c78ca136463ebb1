"""Notices that must arrive are recognised by their form, and are refused only with an offer in them."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice, product

import pytest

from scripts.messages import HELD_OUT, read_corpus
from tests.support.content.service_messages import (
    FAMILIES,
    MESSAGES,
    adverts_in_service_forms,
    service_messages,
)
from tests.support.content.texts import LANGUAGES, PROMOTIONAL, TRANSACTIONAL, passcode_messages
from tumira.content.classifier import classify
from tumira.content.normalise import normalise
from tumira.content.service_forms import has_service_form
from tumira.content.verdict import Label

# Enough for every frame of each language and family.
SLICE = 2_000
# A typo in the one word that names the notice may hide its form.
RECOGNISED_MIN = 1_900
# Of notices that nothing is learnt from, this part may be refused.
REFUSED_MAX = {"passcode": 0.002, "money": 0.007}
ADVERTS = 64
ADVERTS_REFUSED_MIN = 52

FORMS = (
    "Your code is 0000.",
    "0000 is your Tumira OTP",
    "Your login PIN: 000-000",
    "Use 000000 to sign in to Tumira",
    "USD 45.00 was withdrawn from account 3321.",
    "R450 paid to Spar on 12 May",
    "Your balance is $210.15",
    "Received ZiG 900.00 from Rudo. Ref MP2605.1234",
    "Your parcel 88213 is out for delivery",
    "Your order has arrived at our Menlyn branch",
    "Your appointment is on 12 May",
    "Reminder: dentist on Tuesday at 09:00",
    "Electricity is off from 10:00 to 12:00",
    "Water supply interruption in your area",
    "Load shedding stage 4 today",
)
LOOK_ALIKES = (
    "use code SAVE20",
    "Use code SAVE2026 at the till",
    "Use code 482913 to get 20% off",
    "Gebruik kode 482913 en kry 20% afslag",
    "SMS your code to 33445, R5 a week",
    "Your loan of up to R5000 is waiting",
    "R50 credited to your bet wallet, play now",
    "R5000 was credited to your wallet. https://cash.example",
    "Get paid R5000 today before 17:00",
    "Solar kits from R4 999 on 12 May, no more power off at 18:00",
    "Order now and we deliver today before 17:00",
    "Your order on Friday comes with free delivery",
    "Book your appointment on Friday at 09:00",
    "Half price on Saturday from 08:00, R99 off every water tank",
    "Pizza R49 only, order 4471 is ready",
    "Thenga i-oda 4471 ngo-R49 kuphela, ilethwa namuhla",
)


def is_form(text: str) -> bool:
    """Say whether a text has a service form, as the classifier asks for it."""
    return has_service_form(normalise(re.sub(r"\d", "0", text)).text)


def refused(texts: Sequence[str]) -> Sequence[str]:
    return [text for text in texts if classify(text).label is Label.PROMOTIONAL]


@pytest.mark.parametrize("text", FORMS)
def test_a_notice_is_recognised(text: str) -> None:
    assert is_form(text)


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_an_advert_that_looks_like_a_notice_is_not_recognised(text: str) -> None:
    assert not is_form(text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_its_words(language: str) -> None:
    money, delivery, appointment = TRANSACTIONAL[language][:3]
    assert [
        text for text in (money, delivery, appointment, *passcode_messages(language)) if not is_form(text)
    ] == []
    assert [text for text in PROMOTIONAL[language] if is_form(text)] == []


@pytest.mark.long
def test_the_texts_cover_every_language_and_family() -> None:
    kinds = Counter((language, family) for language, family, _ in service_messages())
    assert kinds.total() == MESSAGES
    assert set(kinds) == set(product(LANGUAGES, FAMILIES))
    assert max(kinds.values()) - min(kinds.values()) <= 1


def test_nearly_all_are_recognised() -> None:
    assert sum(is_form(text) for _, _, text in islice(service_messages(), SLICE)) >= RECOGNISED_MIN


@pytest.mark.long
def test_none_of_a_slice_is_refused() -> None:
    assert refused([text for _, _, text in islice(service_messages(), SLICE)]) == []


@pytest.mark.long
def test_none_is_refused() -> None:
    assert refused([text for _, _, text in service_messages()]) == []


def test_an_offer_in_a_service_form_is_refused() -> None:
    texts = [text for _, text in adverts_in_service_forms()]
    assert len(texts) == ADVERTS
    assert {language for language, _ in adverts_in_service_forms()} == set(LANGUAGES)
    assert len(refused(texts)) >= ADVERTS_REFUSED_MIN


@pytest.mark.parametrize(
    "unit",
    [
        "code ",
        "0000 ",
        "000 000 ",
        "0.",
        "0,",
        "*0",
        "a",
        "0",
        "r0 000 ",
        "usd",
        "balance r0 account 000 ",
        "$",
        "0-",
    ],
)
def test_a_hundred_thousand_characters_are_searched(unit: str) -> None:
    # Work that grew with the square of the length would not end before the suite's timeout.
    assert has_service_form((unit * 100_000)[:100_000]) in {True, False}


@pytest.mark.parametrize("notice", REFUSED_MAX)
def test_hardly_any_notice_is_refused_that_nothing_was_learnt_from(notice: str) -> None:
    notices = [row for row in read_corpus(HELD_OUT) if row.notice == notice]
    assert len(notices) > 3_000
    refused = [row.text for row in notices if classify(row.text).label is Label.PROMOTIONAL]
    assert len(refused) <= REFUSED_MAX[notice] * len(notices), refused
