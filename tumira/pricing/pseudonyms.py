"""What stands for a number that may not be kept whole any more?"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tumira.pricing.destinations import Tariff

# From the moment a message was accepted; after it only country and last digits are left of its number.
NUMBERS_KEPT: Final = timedelta(days=90)
DIGITS_LEFT: Final = 3
# In the place of the digits that were taken away. No number that anybody can look for has one.
MARK: Final = "•"
GAP: Final = MARK * 6

_BETWEEN_DIGITS: Final = re.compile(r"[\s()./-]+")
_NOT_DIGITS: Final = re.compile(r"[^0-9]")


@dataclass(frozen=True, slots=True)
class Subject:
    """A number whose owner asked to be forgotten, in its two halves."""

    calling_code: str
    national: str

    @property
    def number(self) -> str:
        """Return it as messages have it, in E.164."""
        return f"+{self.calling_code}{self.national}"

    @property
    def pseudonym(self) -> str:
        """Return what stands in its place, the same for all of a country, so that none is told apart."""
        return f"+{self.calling_code}{MARK}erased"

    def is_in(self, text: str) -> bool:
        """Tell whether a text holds the number, however it is prefixed and its digits are grouped."""
        return self.national in _NOT_DIGITS.sub("", text)


def read_subject(tariff: Tariff, text: str) -> Subject | None:
    """Read a number with its country code; None if it is not one that a message can ever have gone to."""
    number = _BETWEEN_DIGITS.sub("", text)
    shaped = tariff.shape.match(number)
    if shaped is None:
        return None
    calling_code, national = shaped[1], number[shaped.end() :]
    # Also of a country that has no price any more: what was sent there once is kept.
    lengths = {
        length
        for one in tariff.destinations
        if one.calling_code == calling_code
        for length in one.national_lengths
    }
    return Subject(calling_code, national) if len(national) in lengths else None
