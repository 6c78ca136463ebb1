"""Splits a normalised text into sentences, words and pieces of words.

A text is read chunk by chunk; chunks are separated by white space. Only the number of digits counts, so that
a verdict holds for every passcode; a link or a telephone number counts as one word.
"""

import re
from collections.abc import Container, Iterator, Sequence
from typing import Final

from msgspec import Struct

LINK: Final = "(link)"
PHONE: Final = "(phone)"
# More digits than this in a row are as good as this many.
DIGITS_MAX: Final = 6
PHONE_DIGITS_MIN: Final = 9
PIECE_MIN: Final = 2
PIECE_MAX: Final = 5
# Only the beginning of a longer chunk is cut into pieces.
CHUNK_MAX: Final = 30
LEET_MIN: Final = 3
PIECE_MARK: Final = "~"

_CHUNK: Final = re.compile(r"\S+")
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d+(?:[.,:]\d+)*|[%$£€*#@+&=!?]")
_LINK: Final = re.compile(
    r"(?:https?://|www\.)\S+|[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|co|net|org|ly|gl|me|io|info|biz|africa|app|shop|za|zw|example)(?:/\S*)?"
)
_DIGIT: Final = re.compile(r"\d")
_DASHES: Final = frozenset("-|•*")
_SENTENCE_ENDS: Final = (".", "!", "?", ";")
# Numbers with a letter or two, such as R17, B357, 5GB and re$3.
_FIGURES: Final = re.compile(r"[a-z]\d+|[a-z]{2}\d|[a-z]*\$\d+|\d+[a-z]{1,2}")
# Signs that replace letters in leet spelling; 1 and ! may be an i or an l.
_LEET_SIGNS: Final = frozenset("0134578@$!|")
_LEET_LETTERS: Final = tuple(
    str.maketrans("013457@$!|8", letters) for letters in ("oieastasiib", "oleastasllb")
)


class Word(Struct, frozen=True):
    """A word, number or sign, and its position in the chunk."""

    text: str
    start: int
    end: int


class TextChunk(Struct, frozen=True):
    """Text without white space: its words, its pieces, and whether it ends a sentence."""

    words: Sequence[Word]
    pieces: Sequence[str]
    ends_sentence: bool


def places(text: str) -> Iterator[tuple[str, int, bool]]:
    """Yield each chunk of a normalised text, its start, and whether it begins a line."""
    after = 0
    for match in _CHUNK.finditer(text):
        yield match[0], match.start(), "\n" in text[after : match.start()]
        after = match.end()


def read_chunk(written: str, known: Container[str]) -> TextChunk:
    """Split one chunk; leet spelling is undone where that gives a known word."""
    core = written.strip(".,;:!?()[]\"'")
    if _LINK.fullmatch(core):
        return TextChunk([Word(LINK, 0, len(written))], (), written.endswith(_SENTENCE_ENDS))
    digits = len(_DIGIT.findall(written))
    if digits >= PHONE_DIGITS_MIN and core.strip("+").replace("-", "").isdecimal():
        return TextChunk([Word(PHONE, 0, len(written))], (), written.endswith(_SENTENCE_ENDS))
    meant = _read_leet(written, known)
    words = [
        Word(_count_digits(match[0]) if match[0][0].isdecimal() else match[0], match.start(), match.end())
        for match in _WORD.finditer(meant)
    ]
    return TextChunk(
        words, _pieces(_DIGIT.sub("0", meant)), written.endswith(_SENTENCE_ENDS) or written in _DASHES
    )


def pair(first: str, second: str) -> str:
    """Return the feature of two neighbouring words."""
    return f"{first} {second}"


def _count_digits(number: str) -> str:
    return "0" * min(len(number), DIGITS_MAX)


def _pieces(chunk: str) -> Sequence[str]:
    padded = f" {chunk[:CHUNK_MAX]} "
    return sorted(
        {
            PIECE_MARK + padded[place : place + size]
            for size in range(PIECE_MIN, PIECE_MAX + 1)
            for place in range(len(padded) - size + 1)
        }
    )


def _read_leet(written: str, known: Container[str]) -> str:
    core = written.rstrip(".,;:!?")
    if len(core) < LEET_MIN or core.isalpha() or not _LEET_SIGNS & set(core):
        return written
    if _FIGURES.fullmatch(core) or not any(letter.isalpha() for letter in core):
        return written
    for letters in _LEET_LETTERS:
        meant = core.translate(letters)
        if meant.isalpha() and meant in known:
            return meant + written[len(core) :]
    return written
