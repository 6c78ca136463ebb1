"""Destinations and prices: which numbers can be sent to, and what a segment costs.

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
NOBODY: Final[Mapping[str, RecipientCode]] = {}


@dataclass(frozen=True, slots=True)
class Destination:
    """A country that numbers can belong to; `national_lengths` count the digits after the calling code."""

    country: str
    calling_code: str
    name: str
    national_lengths: tuple[int, ...]


class PriceStatus(StrEnum):
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


# How mobile numbers of a country begin after the calling code: no other number gets texts. Whole ranges of
# the numbering plans count, so that a new block of a network is not refused. From 19 on, those of South
# Africa are blocks of mobile networks between landlines.
_MOBILE_STARTS: Final = {
    "263": "7",
    "27": "[67]|8[1-5]|50|19[12]|1049[2-4]|(?:12|[2-5]1)492|87(?:08[67]|158|28[5-9]|310)"
    "|(?:1[6-8]|28|3[2-69]|4[025689]|5[36-8])4920|(?:2[27]|47|54)4950"
    "|13492[0-25]|14495[0235]|1549(?:20|5[01])|4[34]492[01]",
}
_MOBILE: Final = {code: re.compile(rf"\+{code}(?:{starts})").match for code, starts in _MOBILE_STARTS.items()}
_EVERY_NUMBER: Final = re.compile("").match

# By calling code, and then by the length of the whole number: the country and its price per segment.
_PriceIndex = Mapping[str, Mapping[int, tuple[str, Decimal]]]


class Tariff:
    """One version of all destinations and prices; never changed once built."""

    __slots__ = ("destinations", "lengths", "names", "price_index", "prices", "routed", "shape", "version")

    def __init__(
        self,
        version: int,
        destinations: Sequence[Destination],
        prices: Sequence[Price],
        routed: frozenset[str] = frozenset(),
    ) -> None:
        self.version: Final = version
        self.destinations: Final = tuple(destinations)
        self.names: Final = {one.country: one.name for one in destinations}
        self.prices: Final = tuple(prices)
        # The networks with routes, and so a queue, of their own, as in `ZW-econet`.
        self.routed: Final = routed
        # How long whole numbers can be: a quick look before a number is read in several ways.
        self.lengths: Final = frozenset(
            len("+") + len(one.calling_code) + length
            for one in destinations
            for length in one.national_lengths
        )
        # Longest first, because the first code that fits is taken: +1242 is not +1. Codes without an active
        # price are included, or their numbers would match a shorter code.
        codes = sorted({destination.calling_code for destination in destinations}, key=len, reverse=True)
        self.shape: Final = re.compile(rf"\+(?=[1-9][0-9]{{6,14}}\Z)({'|'.join([*codes, ''])})")
        self.price_index: Final = {
            channel: _index_prices(self.destinations, self.prices, channel)
            for channel in {price.channel for price in prices}
        }


def _index_prices(destinations: Sequence[Destination], prices: Sequence[Price], channel: str) -> _PriceIndex:
    active = {
        price.country: price.price_usd
        for price in prices
        if price.channel == channel and price.status == PriceStatus.ACTIVE
    }
    index: dict[str, dict[int, tuple[str, Decimal]]] = {}
    for destination in destinations:
        if destination.country in active:
            by_length = index.setdefault(destination.calling_code, {})
            for national_length in destination.national_lengths:
                length = len("+") + len(destination.calling_code) + national_length
                # Countries may share a calling code; a number whose length fits both is the first one's.
                by_length.setdefault(length, (destination.country, active[destination.country]))
    return index


def sort_recipients(
    tariff: Tariff, channel: str, given: Sequence[str], barred: Mapping[str, RecipientCode] = NOBODY
) -> Sorted:
    """Sort the numbers of a call into those that are sent to and those that are not, each number once.

    `barred` are numbers that this text may not go to, with the reason.
    """
    texts: dict[str, str] = {}
    for text in given:
        texts.setdefault(text.strip(), text)
    index = tariff.price_index.get(channel, {})
    mobile, every = _MOBILE.get, _EVERY_NUMBER
    accepted: list[Recipient] = []
    rejected: list[Rejected] = []
    for number, text in texts.items():
        shaped = tariff.shape.match(number)
        if shaped is None:
            rejected.append(Rejected(text, RecipientCode.INVALID_NUMBER))
        elif (by_length := index.get(code := shaped[1])) is None:
            rejected.append(Rejected(text, RecipientCode.UNSUPPORTED_DESTINATION))
        elif (found := by_length.get(len(number))) is None or not mobile(code, every)(number):
            rejected.append(Rejected(text, RecipientCode.INVALID_NUMBER))
        elif number in barred:
            rejected.append(Rejected(text, barred[number]))
        else:
            accepted.append(Recipient(number, *found))
    return Sorted(accepted, rejected)


def is_mobile(number: str, calling_code: str) -> bool:
    """Tell landlines from mobile numbers; where a country's ranges are not known, every number is mobile."""
    return _MOBILE.get(calling_code, _EVERY_NUMBER)(number) is not None
