"""Normalised texts, and the original position of each letter."""

import sys
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.content.texts import DISGUISES, PROMOTIONAL
from tumira.content.normalise import normalise

# What the tricks are made of, so that random texts are nasty ones.
NASTY = st.text(st.sampled_from("abzAZ01 59.-_*|/~+,:!$@ \n\t\u00a0\u200b\u00ad\u0301\u0336ﬁß´ΑοсеＦ𝐅🅰🇫"))  # noqa: RUF001
SPACED = st.lists(
    st.tuples(st.sampled_from("abc1."), st.sampled_from([" ", "  ", ".", ". ", "", "*"])), max_size=24
).map(lambda pairs: "".join(letter + gap for letter, gap in pairs))
ANYTHING = st.text(st.characters()) | NASTY | SPACED


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("Ｆｒｅｅ　ｄａｔａ！", "free data!"),  # noqa: RUF001
        ("𝐅𝐫𝐞𝐞 𝓭𝓪𝓽𝓪 𝔴𝔦𝔫 𝚌𝚊𝚜𝚑 𝟓𝟎", "free data win cash 50"),  # noqa: RUF001
        ("ⓕⓡⓔⓔ ⒹⒶⓉⒶ", "free data"),
        ("ﬁne oﬀer", "fine offer"),
        ("ᶠʳᵉᵉ", "free"),
        ("sаvе", "save"),  # noqa: RUF001
        ("САSН", "cash"),  # noqa: RUF001
        ("рrоmо", "promo"),  # noqa: RUF001
        ("ναν οι", "vav oi"),  # noqa: RUF001
        ("ΒΟΤΑ", "bota"),  # noqa: RUF001
        ("ᴡɪɴ", "win"),
        ("f\u200br\u200ce\u200de\u2060 \ufeffdata", "free data"),
        ("dis\u00adcount", "discount"),
        ("w\u0336i\u0336n\u0336", "win"),
        ("f\u0301ré\u0308e", "free"),
        ("Môre, Šomiša, hwetše", "more, somisa, hwetse"),
        ("get F R E E data", "get free data"),
        ("w.i.n c*a*s*h n_o_w s-a-l-e b|e|t", "win cash now sale bet"),
        ("w--i--n. b. e. t!", "win. bet!"),
        ("🅵🆁🅴🅴 🅓🅐🅣🅐 🄵🅁🄴🄴", "free data free"),
        ("🇼🇮🇳", "win"),
        ("free\u00a0data\u202fnow\u2003please", "free data now please"),
        ("free\tdata\nnow", "free data\nnow"),
        ("It’s “free” – now", 'it\'s "free" - now'),  # noqa: RUF001
        # A capital may look like another Latin letter than its small form does.
        ("ΝΟW CΑSΗ ΜΟΝΕΥ ΗURRΥ ΡRΟΜΟ", "now cash money hurry promo"),  # noqa: RUF001
        # An accent by itself is an apostrophe, in any text.
        ("don´t don`t né", "don't don't ne"),  # noqa: RUF001
        # One-letter words before a spaced-out word take nothing from it.
        ("a o t.l.h.o.k.a madi", "a o tlhoka madi"),
        ("J. R. R. Moyo of the U.S.A., a.s.a.p.", "jrr. moyo of the usa., asap."),
    ],
)
def test_a_trick_gives_the_plain_text(written: str, seen: str) -> None:
    assert normalise(written).text == seen


@pytest.mark.parametrize("trick", DISGUISES)
def test_a_disguised_text_normalises_like_its_plain_form(trick: str) -> None:
    for text in chain.from_iterable(PROMOTIONAL.values()):
        # Gaps between words may be wider in a text that is spaced out.
        assert normalise(DISGUISES[trick](text)).text.split() == normalise(text).text.split()


@pytest.mark.parametrize(
    "text",
    [
        "from 8 a.m. to 5 p.m. e.g. on 3.5.",
        "at 10:30, 1/2/2025, 1,200.50 or 3 x 4 m",
        "code 4 8 2 9 1 3",
        "call 0 7 7 1 2 3",
        "account 1-2-3-4",
        "p.o. box 7, a/c 33, st. mary's, dr. t. m. moyo",
        "grade 5 a and 5 b",
        "vitamins a, b and c",
        "i-oda e-durban ngo-9",
        "is it a b or a c?",
        # Words of one letter, as Sotho has them.
        "ke a leboga, o a e bona",
        "a b",
        "",
    ],
)
def test_ordinary_abbreviations_numbers_times_and_initials_stay(text: str) -> None:
    assert normalise(text).text == text


@given(ANYTHING)
@settings(max_examples=50, derandomize=True)
def test_every_normalised_letter_has_a_position_in_the_text(text: str) -> None:
    normalised = normalise(text)
    assert len(normalised.places) == len(normalised.text)
    assert all(first <= second for first, second in pairwise(normalised.places))
    assert all(0 <= place < len(text) for place in normalised.places)
    for letter, place in zip(normalised.text, normalised.places, strict=True):
        assert letter in normalise(f"éxx{text[place]}xx").text[3:-2]


@given(st.lists(st.sampled_from(list(DISGUISES)), max_size=1), st.sampled_from(PROMOTIONAL["en"]))
@settings(max_examples=50, derandomize=True)
def test_a_word_is_found_where_it_stands_in_a_disguised_text(tricks: list[str], text: str) -> None:
    for trick in tricks:
        written = DISGUISES[trick](text)
        normalised = normalise(written)
        for word in ("now", "offer", "hurry"):
            if word in text.lower().split():
                start = normalised.text.index(word)
                places = normalised.places[start : start + len(word)]
                assert normalise(written[places[0] : places[-1] + 1]).text == word


@given(ANYTHING)
@settings(max_examples=50, derandomize=True)
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text).text
    assert normalise(once).text == once


@pytest.mark.parametrize("text", ["a b c d e f g h i x.y.z", "a b c d e f g h i j  x  y  z"])
def test_a_text_that_is_spaced_out_in_two_ways_is_normalised_at_once(text: str) -> None:
    once = normalise(text).text
    assert "xyz" in once
    assert normalise(once).text == once


def test_every_character_of_unicode_is_normalised_once() -> None:
    # Of the planes above the second, every hundredth: they hold ideographs and nothing else.
    codes = [*range(0x20000), *range(0x20000, sys.maxunicode + 1, 100)]
    for first in range(0, len(codes), 0x400):
        text = "".join(f"xx{chr(code)}xx " for code in codes[first : first + 0x400])
        once = normalise(text).text
        for before, after in zip(once.split("xx "), normalise(once).text.split("xx "), strict=True):
            assert before == after


@pytest.mark.parametrize(
    "unit",
    ["a ", "a.", "a. ", "a.b.cc", "1.", "ß", "\u0301", "\u200b", "🅰 ", "\ud800", "ﷺ "],
)
def test_a_hundred_thousand_difficult_characters_are_normalised(unit: str) -> None:
    # Work that grew with the square of the length would not end before the suite's timeout.
    text = (unit * 100_000)[:100_000]
    assert len(normalise(text).places) <= 20 * len(text)
