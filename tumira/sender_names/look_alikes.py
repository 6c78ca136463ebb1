"""Look-alikes: sender names that a reader may take for the name of another business.

Names are compared by a key in which letters and digits that look alike are the same. With ASCII alone there
are no letters of other scripts, so digits for letters and pairs of letters are all that is left.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tumira.sender_names.protected_names import PROTECTED_NAMES, WHOLE_WORDS, NameKind

# A shorter name is found in longer ones only as a word; one letter more or less makes it another word.
CONTAINED_MIN: Final = 4
NEAR_MIN: Final = 6

_DIGITS: Final = str.maketrans("0i123456789", "ollzeasgtbg")
_NOT_PLAIN: Final = re.compile(r"[^a-z0-9]")
_REPEATED: Final = re.compile(r"(.)\1+")
_PIECE: Final = re.compile(r"[A-Za-z0-9]+")
# FNBAlert is FNB and Alert.
_CASED: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class LookAlike(Struct, frozen=True):
    """A protected name that a sender name looks like."""

    kind: NameKind
    name: str


class _Protected(Struct, frozen=True):
    look_alike: LookAlike
    key: str
    is_whole_word: bool


def fold(name: str) -> str:
    """Return the key of a name: without case, spaces and signs, and with look-alikes made the same."""
    plain = _NOT_PLAIN.sub("", name.lower()).translate(_DIGITS)
    single = _REPEATED.sub(r"\1", plain.replace("vv", "w"))
    return _REPEATED.sub(r"\1", single.replace("rn", "m").replace("cl", "d"))


def words_of(name: str) -> frozenset[str]:
    """Return the keys of the words in a name."""
    return frozenset(map(fold, split_words(name)))


def split_words(name: str) -> Sequence[str]:
    """Return the words of a name, divided by signs and also by capital letters."""
    return [word for piece in _PIECE.findall(name) for word in (piece, *_CASED.findall(piece))]


def is_near(key: str, other: str) -> bool:
    """Tell whether keys are the same, or long enough and one letter or one swap apart."""
    if key == other:
        return True
    return min(len(key), len(other)) >= NEAR_MIN and _is_one_apart(key, other)


def _is_one_apart(key: str, other: str) -> bool:
    short, long = sorted((key, other), key=len)
    if len(long) - len(short) > 1:
        return False
    same = next((place for place, letter in enumerate(short) if letter != long[place]), len(short))
    if len(short) < len(long):
        return short[same:] == long[same + 1 :]
    is_swapped = (
        short[same : same + 2] == long[same : same + 2][::-1] and short[same + 2 :] == long[same + 2 :]
    )
    return is_swapped or short[same + 1 :] == long[same + 1 :]


_PROTECTED: Final[Sequence[_Protected]] = [
    _Protected(LookAlike(kind, name), fold(name), name in WHOLE_WORDS)
    for kind, names in PROTECTED_NAMES.items()
    for name in names
]


def find_look_alikes(name: str) -> Sequence[LookAlike]:
    """Return the protected names that a sender name looks like."""
    key, words = fold(name), words_of(name)
    return [one.look_alike for one in _PROTECTED if _imitates(key, words, one)]


def _imitates(key: str, words: frozenset[str], protected: _Protected) -> bool:
    if protected.look_alike.kind is NameKind.GENERIC:
        return key == protected.key
    if key == protected.key or protected.key in words:
        return True
    if protected.is_whole_word:
        return False
    is_contained = len(protected.key) >= CONTAINED_MIN and protected.key in key
    return is_contained or any(is_near(one, protected.key) for one in (key, *words))
