"""Splits a normalised text into sentences, words and pieces of words, and tells where each word stands.

A text is read chunk by chunk; chunks are separated by white space. Only the number of digits counts, so that
a verdict holds for every passcode. A link, a telephone number, an amount, a date and the like count as one
word each, whatever they say.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, Protocol, TypeVar

from msgspec import Struct

# The word before the first one of a sentence.
START: Final = "^"
# More digits than this in a row are as good as this many.
DIGITS_MAX: Final = 6
PHONE_DIGITS_MIN: Final = 9
REFERENCE_DIGITS_MIN: Final = 2
PIECE_MIN: Final = 2
PIECE_MAX: Final = 5
# Only the beginning of a longer chunk is cut into pieces.
CHUNK_MAX: Final = 30
LEET_MIN: Final = 3
PIECE_MARK: Final = "~"
CONTEXT_MARK: Final = "_"
OUTLINE_MARK: Final = "_#"
# A sentence of more words, or with more figures of a kind, is as good as one of this many.
WORDS_STEP: Final = 3
WORDS_STEPS_MAX: Final = 8
FIGURES_MAX: Final = 3
SHAPE_MAX: Final = 9
SHAPE_END: Final = 3
# Of a text with more sentences, the last one holds the rest.
SENTENCES_MAX: Final = 24

_CHUNK: Final = re.compile(r"\S+")
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d+(?:[.,:]\d+)*|[%$£€*#@+&=!?]")
_LINK: Final = re.compile(
    r"(?:https?://|www\.)\S+|[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|co|net|org|ly|gl|me|io|in|info|biz|africa|app|shop|za|zw|example)(?:/\S*)?"
)
_MONTH: Final = r"(?:jan|feb|mar|apr|may|mei|jun|jul|aug|sep|oct|okt|nov|dec|des)[a-z]*"
_NUMBER: Final = r"\d[\d.,]*"
# What a chunk with digits is, in the order in which it is tried.
_FIGURES: Final = (
    ("(ussd)", re.compile(r"\*\d+[*\d]*#?|\d+(?:\*\d+)*#")),
    ("(percent)", re.compile(rf"{_NUMBER}%(?:-?\w+)?")),
    (
        "(amount)",
        re.compile(
            rf"(?:r|usd|us\$|\$|zwg|zig|rs\.?|inr|n|ngn|ksh|kes|ghs|£|€)-?{_NUMBER}[km]?(?:/-|-)?"
            rf"|{_NUMBER}(?:/-|usd|rand|zwg|rs)"
        ),
    ),
    (
        "(date)",
        re.compile(
            rf"\d{{1,4}}[/-]\d{{1,2}}(?:[/-]\d{{1,4}})?|\d{{1,2}}(?:st|nd|rd|th)?[/-]?{_MONTH}[/-]?\d{{0,4}}"
        ),
    ),
    ("(time)", re.compile(r"\d{1,2}[:h.]\d{2}(?::\d{2})?(?:am|pm|hrs?)?|\d{1,2}(?:am|pm)")),
    ("(data)", re.compile(rf"{_NUMBER}[gmk]?bs?|{_NUMBER}[gm]")),
    ("(account)", re.compile(r"[a-z]{0,6}[x*]{2,}[x*.-]*\d+")),
)
_REFERENCE: Final = re.compile(r"(?=[^a-z]*[a-z])[a-z0-9][a-z0-9./-]{5,}")
_DIGIT: Final = re.compile(r"\d")
EDGES: Final = ".,;:!?()[]\"'"
_DASHES: Final = frozenset("-|•*")
_SENTENCE_ENDS: Final = (".", "!", "?", ";")
# Numbers with a letter or two, such as R17, B357, 5GB and re$3, are not leet spelling.
_NOT_LEET: Final = re.compile(r"[a-z]\d+|[a-z]{2}\d|[a-z]*\$\d+|\d+[a-z]{1,2}")
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


class Chunk(Protocol):
    """What a chunk was read as."""

    @property
    def words(self) -> Sequence[Word]: ...
    @property
    def ends_sentence(self) -> bool: ...


C = TypeVar("C", bound=Chunk)


def sentences(text: str, read: Callable[[str], C]) -> Sequence[tuple[int, Sequence[C]]]:
    """Split a normalised text; each sentence comes with the number of chunks before it, and has words."""
    found: list[tuple[int, list[C]]] = []
    place = 0
    for line in text.split("\n"):
        ended = len(found) < SENTENCES_MAX
        for written in line.split():
            chunk = read(written)
            if ended:
                sentence: list[C] = []
                found.append((place, sentence))
            sentence.append(chunk)
            place += 1
            ended = chunk.ends_sentence and len(found) < SENTENCES_MAX
    return [sentence for sentence in found if any(chunk.words for chunk in sentence[1])]


def read_chunk(written: str, known: Container[str]) -> TextChunk:
    """Split one chunk; leet spelling is undone where that gives a known word."""
    ends_sentence = written.endswith(_SENTENCE_ENDS) or written in _DASHES
    meant = _read_leet(written, known)
    core = meant.strip(EDGES)
    kind = _kind(core)
    if kind is not None:
        end = len(written.rstrip(EDGES))
        signs = [Word(sign, at, at + 1) for at, sign in enumerate(written[end:], start=end) if sign in "!?"]
        return TextChunk([Word(kind, end - len(core), end), *signs], (), ends_sentence)
    words = [
        Word(_count_digits(match[0]) if match[0][0].isdecimal() else match[0], match.start(), match.end())
        for match in _WORD.finditer(meant)
    ]
    return TextChunk(words, _pieces(_DIGIT.sub("0", meant)), ends_sentence)


def pair(first: str, second: str) -> str:
    """Return the feature of two neighbouring words."""
    return f"{first} {second}"


def part_of(place: int, count: int) -> str:
    """Return in which part of the text a sentence stands: first, last or between."""
    return "<" if place == 0 else ">" if place == count - 1 else "="


def contexts(words: Sequence[str], part: str) -> Iterator[tuple[int, str]]:
    """Yield where each word of a sentence stands: in which part of the text, beside and behind what.

    What the sentence as a whole is like counts for its first word.
    """
    for said in outline([shape_of(word) for word in words], part):
        yield 0, said
    kinds = figures(words)
    before, last = "", START
    for number, word in enumerate(words):
        yield number, f"{CONTEXT_MARK}{part}{word}"
        for figure in kinds:
            if figure != word:
                yield number, f"{CONTEXT_MARK}{figure}+{word}"
        if before:
            yield number, f"{CONTEXT_MARK}{before} {word}"
        before, last = last, word


def outline(shapes: Sequence[str], part: str) -> Sequence[str]:
    """Return how long a sentence is, how many figures of each kind it has, and in what order they come."""
    order = [shape for shape, _ in groupby(shapes)]
    return [
        f"{OUTLINE_MARK}{part}long{min(len(shapes) // WORDS_STEP, WORDS_STEPS_MAX)}",
        *[f"{OUTLINE_MARK}{kind}{min(shapes.count(kind), FIGURES_MAX)}" for kind in figures(order)],
        f"{OUTLINE_MARK}{''.join(order[:SHAPE_MAX])}",
        f"{OUTLINE_MARK}{part}{''.join(order[-SHAPE_END:])}",
    ]


def figures(words: Iterable[str]) -> Sequence[str]:
    """Return the kinds of figures among words, each once."""
    return [word for word in dict.fromkeys(words) if word[0] == "("]


def shape_of(word: str) -> str:
    """Return what a word is in the outline of its sentence: a kind of figure, a number, a sign or a word."""
    if word[0] == "(":
        return word
    return "w" if word.isalpha() else "0" if word[0].isdecimal() else "!" if word in "!?" else "w"


def _kind(core: str) -> str | None:
    """Return what a chunk is if it is no ordinary word or number."""
    if _LINK.fullmatch(core):
        return "(link)"
    digits = len(_DIGIT.findall(core))
    if not digits:
        return None
    if digits >= PHONE_DIGITS_MIN and core.strip("+").replace("-", "").isdecimal():
        return "(phone)"
    for kind, pattern in _FIGURES:
        if pattern.fullmatch(core):
            return kind
    if digits >= REFERENCE_DIGITS_MIN and _REFERENCE.fullmatch(core):
        return "(reference)"
    return None


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
    if _NOT_LEET.fullmatch(core) or not any(letter.isalpha() for letter in core):
        return written
    for letters in _LEET_LETTERS:
        meant = core.translate(letters)
        if meant.isalpha() and meant in known:
            return meant + written[len(core) :]
    return written
