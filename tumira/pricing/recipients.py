"""Which numbers did somebody type or paste, and what is wrong with one that cannot be sent to?"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tumira.core.errors import RecipientCode
from tumira.pricing.destinations import Tariff, sort_recipients

CHANNEL: Final = "sms"

# The classes of characters are written out because the browser's script, which reads numbers in the same way,
# has other ideas of what white space is. Numbers copied from a list of contacts have marks of direction.
_ENDS: Final = re.compile("[,;\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BLANKS: Final = re.compile(
    "[\t \x1f\xa0\u1680\u2000-\u200f\u202a-\u202f\u205f\u2060\u2066-\u2069\u3000\ufeff]+"
)
_PUNCTUATION: Final = re.compile("[().\\-\u2010-\u2015]")
_BEGINNING: Final = re.compile(r"\+?[0-9]*")
_DIGITS: Final = re.compile("[0-9]*")
# Fewer digits are no number of their own, so they belong to what stands before them.
_NUMBER_MIN: Final = 7
# 15 digits after the 00.
_NUMBER_MAX: Final = 17


class Entry(Struct, frozen=True):
    """One of the recipients: as it was written, and as a number."""

    written: str
    number: str


def read_recipients(tariff: Tariff, text: str) -> Sequence[Entry]:
    """Find the numbers in what somebody typed or pasted.

    Commas, semicolons and ends of lines part them, and so do blanks, unless only together with what follows
    a number becomes one: `+263 77 120 0001`.
    """
    entries: list[Entry] = []
    for line in _ENDS.split(text):
        pieces = [piece for piece in _BLANKS.split(line) if piece]
        place = 0
        while place < len(pieces):
            end = place + _span(tariff, pieces, place)
            entries.append(Entry(" ".join(pieces[place:end]), _number(_plain("".join(pieces[place:end])))))
            place = end
    return entries


def _span(tariff: Tariff, pieces: Sequence[str], place: int) -> int:
    """Return how many pieces make up the recipient that begins here."""
    joined = _plain(pieces[place])
    if not _BEGINNING.fullmatch(joined) or _is_reached(tariff, _number(joined)):
        return 1
    number, glued, short = 0, 1, True
    for count in range(2, min(_NUMBER_MAX, len(pieces) - place) + 1):
        piece = _plain(pieces[place + count - 1])
        joined += piece
        if not _DIGITS.fullmatch(piece) or len(joined) > _NUMBER_MAX:
            break
        if _is_reached(tariff, _number(joined)):
            number = count
        short = short and len(piece) < _NUMBER_MIN
        glued = count if short else glued
    return number or glued


def _plain(written: str) -> str:
    return _PUNCTUATION.sub("", written)


def _number(plain: str) -> str:
    return "+" + plain[2:] if plain.startswith("00") else plain


def _is_reached(tariff: Tariff, number: str) -> bool:
    return len(number) > _NUMBER_MIN and bool(sort_recipients(tariff, CHANNEL, [number]).accepted)


def explain(tariff: Tariff, number: str, code: RecipientCode) -> str:
    """Say why a number cannot be sent to, and what to do about it."""
    if code is RecipientCode.UNSUPPORTED_DESTINATION:
        return "We do not send to this country."
    shaped = tariff.shape.match(number)
    if shaped is None:
        if _is_reached(tariff, "+" + number):
            return f"Begin it with a plus: +{number}."
        return "This is no number with its country code, like +263771200001."
    there = [one for one in tariff.destinations if one.calling_code == shaped[1]]
    lengths = " or ".join(str(length) for one in there for length in one.national_lengths)
    given = len(number) - shaped.end()
    return f"After +{shaped[1]} come {lengths} digits in {there[0].name}; here are {given}."
