"""Which of the numbers a caller gave can be sent to, and at what price?

Destinations and prices are rows; a tariff is one version of all of them, indexed once and then only read.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from msgspec import Struct

from tumira.core.errors import RecipientCode

RECIPIENTS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Destination:
    """A country that numbers can belong to; `national_lengths` count the digits after the calling code."""

    country: str
    calling_code: str
    name: str
    national_lengths: tuple[int, ...]


class PriceStatus(StrEnum):
    """Whether a price is charged or only announced."""

    ACTIVE = "active"
    COMING_SOON = "coming_soon"


@dataclass(frozen=True, slots=True)
class Price:
    """What a segment costs on one channel to one country."""

    channel: str
    country: str
    price_usd: Decimal
    status: PriceStatus


# A call makes up to a thousand of the next two, and a frozen dataclass takes six times as long to build:
# the sorting of 1,000 numbers would take 2 ms instead of 1.
class Recipient(Struct, frozen=True):
    """A number that is sent to, with its price per segment."""

    number: str
    country: str
    price_usd: Decimal


class Rejected(Struct, frozen=True):
    """A number that is not sent to, as the caller wrote it."""

    to: str
    code: RecipientCode


class Sorted(Struct, frozen=True):
    """The distinct numbers of a call, each list in the order in which they first appeared."""

    accepted: Sequence[Recipient]
    rejected: Sequence[Rejected]


# By calling code, and then by the length of the whole number: the country and its price per segment.
_Offers = Mapping[str, Mapping[int, tuple[str, Decimal]]]


class Tariff:
    """One version of all destinations and prices; never changed once built."""

    __slots__ = ("destinations", "offers", "prices", "shape", "version")

    def __init__(self, version: int, destinations: Sequence[Destination], prices: Sequence[Price]) -> None:
        self.version: Final = version
        self.destinations: Final = tuple(destinations)
        self.prices: Final = tuple(prices)
        # Longest first, because the first code that fits is taken: +1242 is not +1. The codes without an
        # active price are among them, or their numbers would be taken for those of a shorter code.
        codes = sorted({destination.calling_code for destination in destinations}, key=len, reverse=True)
        self.shape: Final = re.compile(rf"\+(?=[1-9][0-9]{{6,14}}\Z)({'|'.join([*codes, ''])})")
        self.offers: Final = {
            channel: _offers(self.destinations, self.prices, channel)
            for channel in {price.channel for price in prices}
        }


def _offers(destinations: Sequence[Destination], prices: Sequence[Price], channel: str) -> _Offers:
    """Index what can be sent to on one channel."""
    active = {
        price.country: price.price_usd
        for price in prices
        if price.channel == channel and price.status == PriceStatus.ACTIVE
    }
    offers: dict[str, dict[int, tuple[str, Decimal]]] = {}
    for destination in destinations:
        if destination.country in active:
            by_length = offers.setdefault(destination.calling_code, {})
            for national_length in destination.national_lengths:
                length = len("+") + len(destination.calling_code) + national_length
                # Countries may share a calling code; a number whose length fits both is the first one's.
                by_length.setdefault(length, (destination.country, active[destination.country]))
    return offers


def sort_recipients(tariff: Tariff, channel: str, given: Sequence[str]) -> Sorted:
    """Sort the numbers of a call into those that are sent to and those that are not, each number once."""
    texts: dict[str, str] = {}
    for text in given:
        texts.setdefault(text.strip(), text)
    offers = tariff.offers.get(channel, {})
    accepted: list[Recipient] = []
    rejected: list[Rejected] = []
    for number, text in texts.items():
        shaped = tariff.shape.match(number)
        if shaped is None:
            rejected.append(Rejected(text, RecipientCode.INVALID_NUMBER))
        elif (by_length := offers.get(shaped[1])) is None:
            rejected.append(Rejected(text, RecipientCode.UNSUPPORTED_DESTINATION))
        elif (offer := by_length.get(len(number))) is None:
            rejected.append(Rejected(text, RecipientCode.INVALID_NUMBER))
        else:
            accepted.append(Recipient(number, *offer))
    return Sorted(accepted, rejected)
