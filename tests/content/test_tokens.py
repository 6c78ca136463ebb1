"""Chunks, words and pieces of a normalised text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.content.tokens import (
    CHUNK_MAX,
    DIGITS_MAX,
    PIECE_MARK,
    PIECE_MAX,
    PIECE_MIN,
    SENTENCES_MAX,
    contexts,
    part_of,
    places,
    read_chunk,
    sentences,
)

KNOWN = frozenset(["win", "free", "cash", "sale", "bet", "best", "rest", "all", "lol"])


def words(written: str) -> list[str]:
    return [word.text for word in read_chunk(written, KNOWN).words]


def test_chunks_are_given_with_their_places_and_new_lines() -> None:
    text = " one two\nthree \n four  five"
    found = list(places(text))
    assert [(chunk, begins) for chunk, _, begins in found] == [
        ("one", False),
        ("two", False),
        ("three", True),
        ("four", True),
        ("five", False),
    ]
    assert all(text[start : start + len(chunk)] == chunk for chunk, start, _ in found)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("parcel", ["parcel"]),
        ("i-oda", ["i", "oda"]),
        ("mary's", ["mary's"]),
        ("30%", ["(percent)"]),
        *((code, ["(ussd)"]) for code in ("*135#", "*120*321#", "555#")),
        *((amount, ["(amount)"]) for amount in ("r450.00", "$20", "usd15", "rs.500/-", "1,250rand")),
        ("r450!", ["(amount)", "!"]),
        *((date, ["(date)"]) for date in ("12/05/2027", "2027-05-12", "12may", "3rd-jun")),
        *((time, ["(time)"]) for time in ("10:30", "08h15", "5pm")),
        *((size, ["(data)"]) for size in ("5gb", "1.5gb", "300mb")),
        *((account, ["(account)"]) for account in ("xx4412", "***9921", "acxx3312")),
        *((reference, ["(reference)"]) for reference in ("mp2510.1440.k221", "txn88213", "a1b2c3d4")),
        ("1234567", ["0" * DIGITS_MAX]),
        *(
            (link, ["(link)"])
            for link in ("https://bank.example/tc", "www.shop.co.za", "bit.ly/x7", "a-b.africa/q?x=1")
        ),
        ("(tumira.example).", ["(link)"]),
        *((phone, ["(phone)"]) for phone in ("+263771234567", "0821234567.", "082-123-4567", "(0771234567)")),
        # Leet spelling of a word that is known, and of others.
        *(
            ("w1n", ["win"]),
            ("fr33!", ["free", "!"]),
            ("c4$h", ["cash"]),
            ("s@le", ["sale"]),
            ("b3t,", ["bet"]),
        ),
        *(("z3br4", ["z", "0", "br", "0"]), ("4ab", ["0", "ab"]), ("5413", ["0000"])),
        ("t&cs", ["t", "&", "cs"]),
        ("now!!", ["now", "!", "!"]),
        ("(code)", ["code"]),
        ("...", []),
    ],
)
def test_a_chunk_is_read_as_words_numbers_and_signs(written: str, read: list[str]) -> None:
    assert words(written) == read


@pytest.mark.parametrize("written", ["e.g.", "3.5", "12.05.2025", "no.7", "a.b"])
def test_dots_alone_make_no_link(written: str) -> None:
    assert words(written) != ["(link)"]


# A price, a seat, a shelf or a litre is not a word, though its figures may look like letters.
@pytest.mark.parametrize("written", ["b357", "r357", "b37", "10l"])
def test_a_letter_and_figures_are_a_figure_and_not_leet(written: str) -> None:
    assert read_chunk(written, KNOWN).words == read_chunk(written, frozenset()).words


def test_a_sentence_ends_with_its_sign_or_a_dash() -> None:
    for written in ("one.", "one!", "one?", "one;", "-", "|", "shop.co.za!", "0821234567."):
        assert read_chunk(written, KNOWN).ends_sentence, written
    for written in ("one", "one,", "one:", "3.5", "one-two", "shop.co.za"):
        assert not read_chunk(written, KNOWN).ends_sentence, written


@given(st.text("abcyz0123459.,:;!?$@%&*#+='_-", min_size=1, max_size=60))
@settings(max_examples=50, derandomize=True)
def test_words_stand_in_the_chunk_in_order_and_pieces_are_bounded(written: str) -> None:
    chunk = read_chunk(written, KNOWN)
    end = 0
    for word in chunk.words:
        assert end <= word.start < word.end <= len(written)
        end = word.end
    sizes = PIECE_MAX - PIECE_MIN + 1
    assert len(chunk.pieces) == len(set(chunk.pieces)) <= sizes * (CHUNK_MAX + 2)
    assert all(piece.startswith(PIECE_MARK) and len(piece) <= PIECE_MAX + 1 for piece in chunk.pieces)


@given(st.from_regex(r"[0-9]{1,8}([.,:][0-9]{1,3})?[.!?%]?", fullmatch=True), st.integers(1, 9))
@settings(max_examples=50, derandomize=True)
def test_figures_count_only_by_how_many_they_are(written: str, step: int) -> None:
    other = "".join(str((int(one) + step) % 10) if one.isdecimal() else one for one in written)
    assert read_chunk(other, KNOWN) == read_chunk(written, KNOWN)


@pytest.mark.parametrize("unit", ["a.", "a-", "1.", "a'", "0a", "www.", "a.com/"])
def test_a_chunk_of_a_hundred_thousand_characters_is_read(unit: str) -> None:
    # Work that grew with the square of the length would not end before the suite's timeout.
    assert len(read_chunk((unit * 100_000)[:100_000], KNOWN).pieces) < 150


def said(text: str) -> list[tuple[int, list[str]]]:
    """Return the sentences of a text as words, with the number of chunks before each."""
    found = sentences(text, lambda written: read_chunk(written, KNOWN))
    return [(place, [word.text for chunk in chunks for word in chunk.words]) for place, chunks in found]


def test_a_sentence_ends_with_its_sign_a_dash_or_the_line_and_has_words() -> None:
    assert said("paid. - balance r20\n... thank you") == [
        (0, ["paid"]),
        (2, ["balance", "(amount)"]),
        (5, ["thank", "you"]),
    ]
    assert said(" \n ") == []


def test_of_a_text_with_too_many_sentences_the_last_one_holds_the_rest() -> None:
    found = said("one. " * (SENTENCES_MAX + 5))
    assert len(found) == SENTENCES_MAX
    assert [len(words) for _, words in found] == [*[1] * (SENTENCES_MAX - 1), 6]


def test_a_word_is_known_by_its_part_of_the_text_the_figures_beside_it_and_the_word_before_the_last() -> None:
    found = list(contexts(["only", "(amount)", "today"], "<"))
    assert [context for context in found if not context[1].startswith("_#")] == [
        (0, "_<only"),
        (0, "_(amount)+only"),
        (1, "_<(amount)"),
        (1, "_^ (amount)"),
        (2, "_<today"),
        (2, "_(amount)+today"),
        (2, "_only today"),
    ]
    parts = [part_of(place, 3) for place in range(3)]
    assert [list(contexts(["now"], part))[-1][1] for part in parts] == ["_<now", "_=now", "_>now"]


def test_a_sentence_is_known_by_its_length_its_figures_and_their_order() -> None:
    words = ["bread", "(amount)", "!", "milk", "two", "(amount)", "00"]
    outline = [context for _, context in contexts(words, "<") if context.startswith("_#")]
    assert outline == ["_#<long2", "_#(amount)2", "_#w(amount)!w(amount)0", "_#<w(amount)0"]
    long = [context for _, context in contexts(["(amount)"] * 40, ">") if context.startswith("_#")]
    assert long == ["_#>long8", "_#(amount)3", "_#(amount)", "_#>(amount)"]
