"""Respelling in GSM-7, and names for invisible characters."""
# ruff: noqa: RUF001 - Characters that look like others are what it is about.

import re
import unicodedata

import pytest
from hypothesis import example, given, settings

from tests.support.pricing.segment_vectors import (
    CHARACTERS,
    CYRILLIC,
    EMOJI,
    FAMILY,
    FLAG,
    KEYCAP,
    SCOTLAND,
    texts,
)
from tumira.pricing.gsm7 import (
    AFTER_DIGIT,
    DECOMPOSED,
    INVISIBLE,
    JOINERS,
    MARKS,
    NAMES,
    PICTOGRAPHS,
    SPELLINGS,
    Respelling,
    name,
    respell,
)
from tumira.pricing.segments import BASIC, EXTENSION, Encoding, measure, parts, room, ucs2_characters

GSM_7 = frozenset(BASIC + EXTENSION)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“Hello” – it’s «done»…", '"Hello" - it\'s "done"...'),
        ("• one\n• two", "- one\n- two"),
        ("a\N{NO-BREAK SPACE}b\N{THIN SPACE}c\td\N{IDEOGRAPHIC SPACE}e", "a b c d e"),
        ("co\N{SOFT HYPHEN}operate\N{ZERO WIDTH SPACE}d\x1b\0", "cooperated"),
        ("one\N{LINE SEPARATOR}two", "one\ntwo"),
        ("č Č ç Ç È à À š ê ï", "c C c Ç E à A s e i"),
        ("Ḓi ṱa ṅw ḽa ṋ ŉ ɓ ɗ", "Di ta nw la n 'n b d"),
        ("œuvre ﬁne Ĳ ẞ", "oeuvre fine IJ SS"),
        ("Ｈｉ ５０！", "Hi 50!"),
        ("𝐇𝐢 𝔽 𝒜 Ⓐ ⒜ 🅐", "Hi F A A (a) A"),
        ("₦500, ₹20, 50¢, €3", "NGN500, INR20, 50c, €3"),
        ("25℃, 25°C, 5㎏, 5 µg, № 7", "25degC, 25degC, 5kg, 5 ug, No. 7"),
        ("3 × 4 ÷ 2 ≤ 7 ≠ 8 ± 1", "3 x 4 / 2 <= 7 != 8 +/- 1"),
        ("A → B", "A -> B"),
        ("Ω ∆ Ώ Ω", "Ω Δ Ω Ω"),
    ],
)
def test_what_has_a_spelling_is_spelt(text: str, expected: str) -> None:
    respelling = respell(text)
    assert respelling.text == expected
    assert respelling.left == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("½ cup", "1/2 cup"),
        ("1½ cups", "1 1/2 cups"),
        ("m²", "m2"),
        ("10²", "10^2"),
        ("10²³", "10^23"),
        ("H₂O", "H2O"),
        ("①②", "(1)(2)"),
        ("5\N{KEYCAP TEN}", "5 10"),
        ("=\N{COMBINING LONG SOLIDUS OVERLAY}", "!="),
        ("❌ paid ✅ due", "x paid due"),
    ],
)
def test_a_spelling_never_makes_another_number_or_the_opposite(text: str, expected: str) -> None:
    assert respell(text).text == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e\N{COMBINING ACUTE ACCENT}", "é"),
        ("A\N{COMBINING RING ABOVE}", "Å"),
        ("c\N{COMBINING CEDILLA}", "c"),
        ("x\N{COMBINING ACUTE ACCENT}", "x"),
        ("u\N{COMBINING DIAERESIS}\N{COMBINING MACRON}", "ü"),
        ("ǖ ǻ ǽ", "ü å æ"),
        ("\N{COMBINING ACUTE ACCENT}a", "a"),
        (KEYCAP, "1"),
    ],
)
def test_of_the_accents_those_are_kept_that_the_alphabet_has(text: str, expected: str) -> None:
    assert respell(text) == Respelling(expected, respell(text).replaced, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Hi {EMOJI} there", "Hi there"),
        (f"{EMOJI} Hi", "Hi"),
        (f"Hi {EMOJI}", "Hi"),
        (f"Hi {EMOJI} {EMOJI} there {EMOJI}!", "Hi there !"),
        (f"Hi {EMOJI}\r\n{EMOJI} there", "Hi\r\nthere"),
        (f"Paid{EMOJI}Balance", "Paid Balance"),
        (f"Paid.{EMOJI}Balance", "Paid.Balance"),
        (f"Hi  there {EMOJI} you", "Hi  there you"),
        (f"a {FAMILY} b {FLAG} c {SCOTLAND} d \N{HEAVY BLACK HEART}\ufe0f e", "a b c d e"),
        ("\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-5} ok", "ok"),
        (EMOJI, ""),
    ],
)
def test_pictures_are_removed_and_leave_one_blank_at_most(text: str, expected: str) -> None:
    respelling = respell(text)
    assert respelling.text == expected
    assert respelling.left == ()


def test_letters_of_other_scripts_stay_with_all_that_belongs_to_them() -> None:
    assert respell("Привет").left == tuple("Привет")
    persian = "می\N{ZERO WIDTH NON-JOINER}خواهم"
    assert respell(persian).text == persian
    decomposed = "и\N{COMBINING BREVE}"
    assert respell(f"{decomposed} – 漢{CYRILLIC}").text == f"{decomposed} - 漢{CYRILLIC}"
    assert respell(f"{decomposed} – 漢{CYRILLIC}").left == (decomposed, "漢", CYRILLIC)


def test_what_was_replaced_and_what_was_left_is_named_once_as_it_comes() -> None:
    respelling = respell(f"“я” – “ж” {EMOJI} я {EMOJI}")
    assert respelling.replaced == (("“", '"'), ("”", '"'), ("\N{EN DASH}", "-"), (EMOJI, ""))
    assert respelling.left == ("я", "ж")
    assert respell(f"{FAMILY}!").replaced == ((FAMILY, ""),)


@settings(deadline=None, max_examples=50)
@given(texts())
@example(f"{CYRILLIC}\N{ZERO WIDTH SPACE}\N{ZERO WIDTH JOINER}")
def test_a_text_is_respelt_once_and_is_gsm_7_unless_something_is_left(text: str) -> None:
    respelling = respell(text)
    again = respell(respelling.text)
    assert again == Respelling(respelling.text, (), respelling.left)
    assert (measure(respelling.text).encoding is Encoding.GSM_7) is (respelling.left == ())
    assert all(piece in text for piece, _ in respelling.replaced)
    assert all(GSM_7.issuperset(spelt) for _, spelt in respelling.replaced)
    assert set(ucs2_characters(respelling.text)) <= set("".join(respelling.left))


def test_the_tables_hold_single_characters_and_spell_them_in_the_alphabet() -> None:
    for table in (SPELLINGS, AFTER_DIGIT):
        for character, spelt in table.items():
            assert len(character) == 1
            assert character not in GSM_7
            assert GSM_7.issuperset(spelt), character
    assert all(len(character) == 1 for character in NAMES)


def test_no_character_is_in_two_tables_that_say_different_things() -> None:
    kinds = [re.compile(f"[{inside}]") for inside in (MARKS, JOINERS, INVISIBLE, PICTOGRAPHS)]
    for character in CHARACTERS:
        matching = sum(1 for kind in kinds if kind.match(character))
        assert matching + (character in SPELLINGS) + (character in GSM_7) <= 1, hex(ord(character))


def test_what_is_spelt_with_a_digit_first_is_a_digit_or_is_parted_from_one() -> None:
    for character in CHARACTERS:
        spelt = respell(character).text
        if spelt[:1].isdecimal() and unicodedata.category(character) != "Nd":
            assert character in AFTER_DIGIT, hex(ord(character))


def test_letters_are_spelt_with_letters_of_their_case() -> None:
    latin = [character for character in CHARACTERS if re.match(f"[{DECOMPOSED}]", character)]
    for character in latin:
        spelt = respell(character).text
        if unicodedata.category(character) in {"Lu", "Ll"} and GSM_7.issuperset(spelt):
            letters = [one for one in spelt if one.isalpha()]
            assert letters[0].isupper() is character.isupper(), character


@pytest.mark.parametrize(
    ("character", "expected"),
    [
        ("“", "“"),
        (EMOJI, EMOJI),
        (FAMILY, FAMILY),
        ("я", "я"),
        ("...", "..."),
        ("", "nothing"),
        (" ", "space (U+0020)"),
        ("\N{ZERO WIDTH SPACE}", "zero-width space (U+200B)"),
        ("\N{NO-BREAK SPACE}", "no-break space (U+00A0)"),
        ("\N{SOFT HYPHEN}", "soft hyphen (U+00AD)"),
        ("\x1b", "invisible character (U+001B)"),
        ("\N{COMBINING ACUTE ACCENT}", "accent (U+0301)"),
        ("\ue000", "unknown character (U+E000)"),
        ("\ud83d", "unknown character (U+D83D)"),
    ],
)
def test_a_character_is_shown_as_itself_or_in_words_if_nobody_would_see_it(
    character: str, expected: str
) -> None:
    assert name(character) == expected


def test_whatever_is_spelt_as_a_blank_or_removed_unseen_has_words() -> None:
    for character in CHARACTERS:
        if character.isspace() or unicodedata.category(character) in {"Cc", "Zs", "Zl", "Zp"}:
            assert f"(U+{ord(character):04X})" in name(character)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 160),
        ("a" * 160, 0),
        ("a" * 161, 145),
        ("€" * 80, 0),
        ("a" * 152 + "€" + "a" * 7, 144),
        ("a" * 306, 0),
        ("\r\n", 158),
        (CYRILLIC, 69),
        (CYRILLIC * 70, 0),
        (CYRILLIC * 71, 63),
        (CYRILLIC * 66 + EMOJI + CYRILLIC * 65, 0),
        (EMOJI, 68),
    ],
)
def test_the_room_is_what_is_free_in_the_last_segment(text: str, expected: int) -> None:
    assert room(text) == expected


@settings(deadline=None, max_examples=50)
@given(texts())
def test_whatever_fits_into_the_room_takes_no_further_segment(text: str) -> None:
    before = measure(text)
    assert measure(text + "a" * room(text)).segments == before.segments
    assert measure(text + "a" * (room(text) + 1)).segments == before.segments + 1
    assert len(parts(text)) == before.segments
