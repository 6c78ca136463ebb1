"""Phone numbers as people write them, as messages hold them, and what is left of them after erasure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from msgspec import Struct

from tumira.core.errors import RecipientCode
from tumira.pricing.destinations import Tariff, sort_recipients

CHANNEL: Final = "sms"

# The character classes are written out because compose.js reads numbers in the same way and JavaScript has
# another definition of white space. Numbers copied from a contact list contain direction marks.
_ENDS: Final = re.compile("[,;\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BLANKS: Final = re.compile(
    "[\t \x1f\xa0\u1680\u2000-\u200f\u202a-\u202f\u205f\u2060\u2066-\u2069\u3000\ufeff]+"
)
_PUNCTUATION: Final = re.compile("[().\\-\u2010-\u2015]")
_BEGINNING: Final = re.compile(r"\+?[0-9]*")
_DIGITS: Final = re.compile("[0-9]*")
# Fewer digits are not a number; they belong to the piece before them.
_NUMBER_MIN: Final = 7
# 15 digits after the 00.
_NUMBER_MAX: Final = 17
_SEPARATORS: Final = re.compile("[\\s().\\-\u2010-\u2015/]+")

# Counted from acceptance; after that only the country and the last digits of the number are kept.
NUMBERS_KEPT: Final = timedelta(days=90)
DIGITS_LEFT: Final = 3
# Stands in place of removed digits. No number that can be searched for contains it.
MARK: Final = "•"
GAP: Final = MARK * 6

_BETWEEN_DIGITS: Final = re.compile(r"[\s()./-]+")
_NOT_DIGITS: Final = re.compile(r"[^0-9]")


def read_phone(tariff: Tariff, text: str) -> str | None:
    """Read a number as people write it, `+263 77 120 0001` or `00263…`; None if we cannot send to it."""
    number = _SEPARATORS.sub("", text)
    if number.startswith("00"):
        number = "+" + number[2:]
    found = sort_recipients(tariff, "sms", [number])
    return found.accepted[0].number if found.accepted else None


class Entry(Struct, frozen=True):
    written: str
    number: str


def read_recipients(tariff: Tariff, text: str) -> Sequence[Entry]:
    """Find the numbers in typed or pasted text.

    Commas, semicolons and line ends separate them, and so do blanks, unless a number is only complete
    with the pieces behind it: `+263 77 120 0001`.
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
    """Count the pieces of the recipient that begins at this place."""
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
    """Say why a number cannot be sent to, and how to correct it."""
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


@dataclass(frozen=True, slots=True)
class Subject:
    """A number to erase, split after its calling code."""

    calling_code: str
    national: str

    @property
    def number(self) -> str:
        return f"+{self.calling_code}{self.national}"

    @property
    def pseudonym(self) -> str:
        """Return the replacement, the same for all erased numbers of a country."""
        return f"+{self.calling_code}{MARK}erased"

    def is_in(self, text: str) -> bool:
        """Tell whether a text contains the number, whatever its prefix and the grouping of its digits."""
        return self.national in _NOT_DIGITS.sub("", text)


def read_subject(tariff: Tariff, text: str) -> Subject | None:
    """Read a number with its country code; None if no message can ever have gone to it."""
    number = _BETWEEN_DIGITS.sub("", text)
    shaped = tariff.shape.match(number)
    if shaped is None:
        return None
    calling_code, national = shaped[1], number[shaped.end() :]
    # Countries without a price count too: messages that went there are still stored.
    lengths = {
        length
        for one in tariff.destinations
        if one.calling_code == calling_code
        for length in one.national_lengths
    }
    return Subject(calling_code, national) if len(national) in lengths else None
