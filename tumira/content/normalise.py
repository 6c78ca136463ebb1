"""Normalises a text to the plain lower-case letters that a reader sees, before it is classified.

Compatibility forms (full width, mathematical, circled) and look-alikes from other alphabets become Latin
letters, accents and invisible characters are removed, and words whose letters are spaced out are joined.
Every letter keeps its original position, so that the reasons can be shown in the original text.
"""

import re
import unicodedata
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from msgspec import Struct

# Letters that look like Latin ones: Cyrillic, Greek, small capitals, and Latin ones with a stroke.
_LOOK_ALIKES: Final = str.maketrans(
    {
        "а": "a", "в": "b", "е": "e", "ё": "e", "і": "i", "ї": "i", "ј": "j", "к": "k", "м": "m", "н": "h",
        "о": "o", "р": "p", "ѕ": "s", "с": "c", "т": "t", "у": "y", "х": "x", "ԁ": "d", "ԛ": "q", "ԝ": "w",
        "һ": "h", "ӏ": "l", "г": "r", "п": "n", "и": "u", "ь": "b", "ո": "n", "ս": "u", "օ": "o", "հ": "h",
        "α": "a", "β": "b", "ε": "e", "η": "n", "ι": "i", "κ": "k", "μ": "u", "ν": "v", "ο": "o", "ρ": "p",
        "σ": "o", "τ": "t", "υ": "u", "χ": "x", "ω": "w", "γ": "y", "ζ": "z", "ᴀ": "a", "ʙ": "b", "ᴄ": "c",
        "ᴅ": "d", "ᴇ": "e", "ꜰ": "f", "ɢ": "g", "ʜ": "h", "ɪ": "i", "ᴊ": "j", "ᴋ": "k", "ʟ": "l", "ᴍ": "m",
        "ɴ": "n", "ᴏ": "o", "ᴘ": "p", "ʀ": "r", "ꜱ": "s", "ᴛ": "t", "ᴜ": "u", "ᴠ": "v", "ᴡ": "w", "ʏ": "y",
        "ᴢ": "z", "ı": "i", "ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ɡ": "g", "ɑ": "a", "ɩ": "i", "ƒ": "f",
        "’": "'", "‘": "'", "ʼ": "'", "`": "'", "´": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-",
    }
)  # fmt: skip

# White letters on black, and the letters of flags, which have no compatibility form.
_BOXED: Final = ((0x1F150, 0x1F169), (0x1F170, 0x1F189), (0x1F1E6, 0x1F1FF))
_UNSEEN: Final = frozenset(["Cf", "Cc", "Mn", "Me", "Cs", "Co", "Cn"])
# Letters by category that show nothing.
_BLANK: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800")

# Greek capitals look like other letters than their small forms.
_CAPITALS: Final = str.maketrans("ΝΗΜΥ", "nhmy")

# Three or more single letters with the same short gap between them: w.i.n, c*a*s*h, F R E E.
_SPACED_OUT: Final = r"(?<![^\W_])[^\W_](?P<gap>%s)[^\W_](?:(?P=gap)[^\W_])+(?![^\W_])"
_BY_SIGNS: Final = re.compile(_SPACED_OUT % r"[.\-_*|/~+,:][ .\-_*|/~+,:]?")
_BY_BLANKS: Final = re.compile(_SPACED_OUT % r" [ .\-_*|/~+,:]?")
# What every spaced-out word has in it: two single letters behind a sign.
_SPACED_PART: Final = re.compile(r"[ .\-_*|/~+,:][^\W_][ .\-_*|/~+,:]{1,2}[^\W_](?![^\W_])")
# Single vowels in a row are words in Sotho and Tswana.
_VOWELS: Final = frozenset("aeiou ")
# Where nearly everything is spaced out, short words and signs are too, and a wider gap ends a word.
_MOSTLY: Final = 0.6
_ALONE: Final = re.compile(r"(?<!\S)\S(?!\S)")
_NARROW: Final = re.compile(r"(?<=\S) (?=\S(?!\S))")
LETTERS_MIN: Final = 3
ALONE_MIN: Final = 8


class Normalised(Struct, frozen=True):
    """A normalised text, and for each of its letters the position in the original."""

    text: str
    places: Sequence[int]


def normalise(text: str) -> Normalised:
    if text.isascii() and text.isprintable():
        return _join(Normalised(text.lower().replace("`", "'"), range(len(text))))
    letters: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for letter in _normalise_character(character):
            letters.append(letter)
            places.append(place)
    return _join(Normalised("".join(letters), places))


@lru_cache(maxsize=4096)
def _normalise_character(character: str) -> str:
    code = ord(character)
    for first, last in _BOXED:
        if first <= code <= last:
            return chr(ord("a") + code - first)
    if character in "\n\r\t":
        return "\n" if character == "\n" else " "
    if character in _BLANK or unicodedata.category(character) in _UNSEEN:
        return ""
    if character == "\u00b4":
        # Its compatibility form is a blank.
        return "'"
    plain = unicodedata.normalize("NFKD", character).translate(_CAPITALS).casefold()
    seen = "".join(letter for letter in plain if unicodedata.category(letter) not in _UNSEEN)
    return " " if seen.isspace() else seen.translate(_LOOK_ALIKES)


def _join(normalised: Normalised) -> Normalised:
    """Join the letters of spaced-out words; spaced-out numbers stay."""
    text = normalised.text
    if text.count(" ") * 3 >= len(text) and len(_ALONE.findall(text)) > max(
        ALONE_MIN, _MOSTLY * len(text.split())
    ):
        normalised = _without(normalised, {match.start() for match in _NARROW.finditer(text)})
    if not _SPACED_PART.search(normalised.text):
        return normalised
    for pattern in (_BY_SIGNS, _BY_BLANKS):
        text = normalised.text
        normalised = _without(
            normalised,
            {
                place
                for match in pattern.finditer(text)
                if sum(letter.isalpha() for letter in match[0]) >= LETTERS_MIN
                and not _VOWELS.issuperset(match[0])
                for place in range(*match.span())
                if not text[place].isalnum()
            },
        )
    return normalised


def _without(normalised: Normalised, dropped: AbstractSet[int]) -> Normalised:
    if not dropped:
        return normalised
    kept = [place for place in range(len(normalised.text)) if place not in dropped]
    text = "".join(normalised.text[place] for place in kept)
    return Normalised(text, [normalised.places[place] for place in kept])
