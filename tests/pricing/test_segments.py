"""Segment counts and cuts."""

import string
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.pricing.segments import Encoding, Measure, measure, parts, ucs2_characters

GSM = Encoding.GSM_7
UCS = Encoding.UCS_2

# The table of 3GPP TS 23.038, by what it takes from ASCII and what it adds, apart from the code under test.
ASCII_MISSING = "[\\]^`{|}~"
ASCII_BASIC = "".join(
    character
    for character in string.ascii_letters + string.digits + string.punctuation + " \n\r"
    if character not in ASCII_MISSING
)
BASIC = ASCII_BASIC + "£¥èéùìòÇØøÅåÆæßÉ¤¡ÄÖÑÜ§¿äöñüà" + "ΔΦΓΛΩΠΨΣΘΞ"
EXTENSION = "\f^{}\\[~]|€"

EMOJI = "\N{GRINNING FACE}"
FLAG = "\N{REGIONAL INDICATOR SYMBOL LETTER Z}\N{REGIONAL INDICATOR SYMBOL LETTER W}"
CYRILLIC = "я"
# The pairs with the lowest and the highest second unit.
FIRST_PAIR = chr(0x10000)
LAST_PAIR = chr(0x10FFFF)


@pytest.mark.parametrize(
    ("text", "segments", "encoding", "characters"),
    [
        ("", 1, GSM, 0),
        ("a" * 160, 1, GSM, 160),
        ("a" * 161, 2, GSM, 161),
        ("a" * 765, 5, GSM, 765),
        ("a" * 766, 6, GSM, 766),
        ("a" * 153_000, 1000, GSM, 153_000),
        ("€" * 80, 1, GSM, 160),
        ("€" * 81, 2, GSM, 162),
        ("€" * 153, 3, GSM, 306),
        ("a" * 152 + "€" + "a" * 6, 1, GSM, 160),
        ("a" * 152 + "€" + "a" * 7, 2, GSM, 161),
        ("a" * 152 + "€" + "a" * 152, 3, GSM, 306),
        ("a" * 151 + "€" + "a" * 153, 2, GSM, 306),
        ("\r\n" * 80, 1, GSM, 160),
        (BASIC, 1, GSM, 127),
        (BASIC + EXTENSION, 1, GSM, 147),
        (CYRILLIC * 70, 1, UCS, 70),
        (CYRILLIC * 71, 2, UCS, 71),
        (CYRILLIC * 335, 5, UCS, 335),
        (CYRILLIC * 336, 6, UCS, 336),
        ("€" * 69 + CYRILLIC, 1, UCS, 70),
        (EMOJI * 35, 1, UCS, 70),
        (EMOJI * 36, 2, UCS, 72),
        (CYRILLIC * 66 + EMOJI + CYRILLIC * 66, 3, UCS, 134),
        (CYRILLIC * 65 + EMOJI + CYRILLIC * 67, 2, UCS, 134),
        (CYRILLIC * 66 + FIRST_PAIR + CYRILLIC * 66, 3, UCS, 134),
        (CYRILLIC * 66 + LAST_PAIR + CYRILLIC * 66, 3, UCS, 134),
        (CYRILLIC * 67 + "\N{BYTE ORDER MARK}" * 67, 2, UCS, 134),
        (FLAG, 1, UCS, 4),
        ("e\N{COMBINING ACUTE ACCENT}" * 36, 2, UCS, 72),
        ("é" * 160, 1, GSM, 160),
        ("\x1b", 1, UCS, 1),
    ],
)
def test_the_boundaries(text: str, segments: int, encoding: Encoding, characters: int) -> None:
    assert measure(text) == Measure(segments, encoding, characters)
    assert len(parts(text)) == segments
    assert "".join(parts(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [""]),
        ("a" * 160, ["a" * 160]),
        ("a" * 161, ["a" * 153, "a" * 8]),
        ("a" * 152 + "€" + "b" * 20, ["a" * 152, "€" + "b" * 20]),
        ("a" * 151 + "€" + "b" * 20, ["a" * 151 + "€", "b" * 20]),
        (CYRILLIC * 66 + EMOJI + "b" * 20, [CYRILLIC * 66, EMOJI + "b" * 20]),
        (CYRILLIC * 65 + EMOJI + "b" * 20, [CYRILLIC * 65 + EMOJI, "b" * 20]),
        # The standard knows code units only: a flag may lose its second half to the next part.
        (CYRILLIC * 65 + FLAG + "b" * 20, [CYRILLIC * 65 + FLAG[0], FLAG[1] + "b" * 20]),
    ],
)
def test_a_text_is_cut_where_a_part_is_full_but_never_inside_a_pair(
    text: str, expected: Sequence[str]
) -> None:
    assert list(parts(text)) == list(expected)


def test_exactly_the_characters_of_the_table_are_gsm_7() -> None:
    everything = "".join(chr(code) for code in range(0x10000))
    assert set(everything) - set(ucs2_characters(everything)) == set(BASIC + EXTENSION)
    assert {character for character in BASIC + EXTENSION if measure(character).characters == 2} == set(
        EXTENSION
    )


def test_the_characters_that_forced_ucs_2_are_named_once_as_they_come() -> None:
    assert ucs2_characters(f"Hi {EMOJI} «я» {EMOJI} €") == (EMOJI, "«", "я", "»")
    assert ucs2_characters("") == ()


HIGH = chr(0xD83D)
LOW = chr(0xDE00)


@pytest.mark.parametrize("text", [HIGH, LOW, (LOW + HIGH) * 100, HIGH * 300, "a" * 67 + LOW * 9])
def test_a_lone_surrogate_does_not_stop_the_count(text: str) -> None:
    assert measure(text).encoding is UCS
    assert measure(text).characters == len(text)
    assert len(parts(text)) == measure(text).segments


def widths(text: str) -> list[int]:
    if all(character in BASIC + EXTENSION for character in text):
        return [2 if character in EXTENSION else 1 for character in text]
    return [2 if ord(character) > 0xFFFF else 1 for character in text]


def counted_one_by_one(text: str) -> Measure:
    gsm = all(character in BASIC + EXTENSION for character in text)
    single, part_max = (160, 153) if gsm else (70, 67)
    total = sum(widths(text))
    segments, filled = 1, 0
    for width in widths(text) if total > single else ():
        if filled + width > part_max:
            segments, filled = segments + 1, 0
        filled += width
    return Measure(segments, GSM if gsm else UCS, total)


def around(*boundaries: int) -> st.SearchStrategy[int]:
    return st.sampled_from(boundaries).flatmap(
        lambda boundary: st.integers(max(0, boundary - 3), boundary + 3)
    )


@st.composite
def texts(draw: st.DrawFn) -> str:
    filler = draw(st.sampled_from(["a", "é", "€", CYRILLIC, EMOJI]))
    special = draw(st.text(alphabet="ab[]€\n" + draw(st.sampled_from(["", f"я\t{EMOJI}"])), max_size=8))
    head = filler * draw(around(0, 32, 67, 70, 76, 134, 153, 160, 306))
    return head + special + draw(st.sampled_from(["a", "€", filler])) * draw(around(0, 67, 153, 306))


@settings(deadline=None, max_examples=50)
@given(st.one_of(texts(), st.text(max_size=200), st.text(alphabet=BASIC + EXTENSION, max_size=400)))
def test_the_count_equals_that_of_filling_the_parts_one_by_one(text: str) -> None:
    assert measure(text) == counted_one_by_one(text)


@settings(deadline=None, max_examples=50)
@given(texts())
def test_the_parts_of_a_text_make_up_the_text_and_none_is_too_long(text: str) -> None:
    pieces = parts(text)
    size = measure(text)
    assert "".join(pieces) == text
    assert len(pieces) == size.segments
    if size.segments > 1:
        # What a part takes depends on the encoding of the whole text, not on its own characters.
        most = 153 if size.encoding is GSM else 67
        width = iter(widths(text))
        assert all(0 < sum(next(width) for _ in piece) <= most for piece in pieces)
