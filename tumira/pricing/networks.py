"""Mobile networks of Zimbabwe and South Africa: their prefixes, their codes, and which queue each has.

As of November 2026: for Zimbabwe the plan that POTRAZ notified to the ITU in 2019 with the blocks added since
(72, 79), for South Africa the blocks as issued. Codes are those of ITU bulletin 1280 (MCC and MNC).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

TABLE_DATE: Final = "2026-11-16"
# A number of a country whose network is not known.
OTHER: Final = "other"
# A number keeps its digits here when its owner changes networks.
PORTED_COUNTRIES: Final = frozenset({"ZA"})


class MobileNetwork(Struct, frozen=True):
    """A network; of two prefixes that fit a number the longer one counts.

    In Zimbabwe the prefix is the network. In South Africa people keep their number when they change networks,
    so there it is a guess. `606-609` is four prefixes.
    """

    key: str
    country: str
    name: str
    codes: str
    prefixes: str


# The blocks of five and six digits stand between landlines.
NETWORKS: Final[Sequence[MobileNetwork]] = (
    MobileNetwork("econet", "ZW", "Econet", "64804", "77 78 79"),
    MobileNetwork("netone", "ZW", "NetOne", "64801", "71 72"),
    MobileNetwork("telecel", "ZW", "Telecel", "64803", "73"),
    MobileNetwork("dolphin", "ZW", "Dolphin", "", "75"),
    MobileNetwork(
        "vodacom",
        "ZA",
        "Vodacom",
        "65501 65565",
        "71 72 76 79 82 606-609 636-637 646-649 660-665 673-675 818 "
        "10492-10494 12492 21492 31492 41492 51492 87086-87087 87158 87285-87289 87310 "
        "164920 174920 184920 284920 324920 334920 344920 354920 364920 394920 404920 424920 454920 464920 "
        "484920 494920 534920 564920 574920 584920 224950 274950 474950 544950 134920-134922 134925 144950 "
        "144952-144953 144955 154920 154950-154951 434920-434921 444920-444921",
    ),
    MobileNetwork(
        "mtn",
        "ZA",
        "MTN",
        "65510 65512",
        "73 78 83 603-605 63 640 655-657 686-690 710 717-719 810",
    ),
    MobileNetwork("cellc", "ZA", "Cell C", "65507", "61 62 74 84 641-645 650-654"),
    MobileNetwork(
        "telkom",
        "ZA",
        "Telkom Mobile",
        "65502 65503 65505",
        "67 68 69 75 601-602 614 658-659 811-815 817 191-192",
    ),
    MobileNetwork("rain", "ZA", "Rain", "65519 65538 65573 65574", "50 696 816"),
    MobileNetwork("liquid", "ZA", "Liquid", "65513 65514", "600"),
)
_CALLING_CODES: Final = {"ZW": "+263", "ZA": "+27"}
# The countries whose networks are known.
NETWORK_COUNTRIES: Final = frozenset(_CALLING_CODES)
_PORTED_START: Final = _CALLING_CODES["ZA"]

NAMES: Final[Mapping[str, str]] = {one.key: one.name for one in NETWORKS}
_BY_CODE: Final[Mapping[str, MobileNetwork]] = {code: one for one in NETWORKS for code in one.codes.split()}


def _prefixes(written: str) -> Iterator[str]:
    for text in written.split():
        first, _, last = text.partition("-")
        for digits in range(int(first), int(last or first) + 1):
            yield str(digits)


_BY_PREFIX: Final[Mapping[str, str]] = {
    _CALLING_CODES[one.country] + digits: one.key for one in NETWORKS for digits in _prefixes(one.prefixes)
}
# Nearly all numbers are known from this many characters, `+` and calling code included.
START: Final = 7
_LONGEST: Final = max(map(len, _BY_PREFIX))
_STARTS_CACHED: Final = 16_384
_DIGITS_MAX: Final = 15


def find_network(number: str) -> str:
    """Return the network to which a number was issued, by its key, or `other`."""
    return _find(number[:START]) or _search(number[:_LONGEST]) or OTHER


def _search(start: str) -> str | None:
    for length in range(len(start), 0, -1):
        found = _BY_PREFIX.get(start[:length])
        if found is not None:
            return found
    return None


_find: Final = lru_cache(_STARTS_CACHED)(_search)


def knows_start(start: str) -> bool:
    """Tell whether all numbers that begin with these `START` characters were issued to one network."""
    return _find(start) is not None


def list_networks(country: str) -> Sequence[str]:
    """Return the keys of a country's networks, `other` last; none where they are not known."""
    found = [one.key for one in NETWORKS if one.country == country]
    return [*found, OTHER] if found else []


def write_network(network: str) -> str:
    """Write the name of a network given by its key."""
    return NAMES.get(network, network)


def ported_digits(number: str) -> str | None:
    """Return the digits of a number that may be in another network than its prefix says; None for others."""
    digits = number[1:]
    is_sound = number.startswith(_PORTED_START) and len(digits) <= _DIGITS_MAX
    return digits if is_sound and digits.isascii() and digits.isdecimal() else None


def list_ported(numbers: Iterable[str]) -> Sequence[int]:
    """Return the numbers that may be in another network than their prefix says; spaces do not count."""
    # A quick look first: a call may have a thousand numbers, and usually none of these.
    near = [number for number in numbers if _PORTED_START in number]
    return [int(digits) for number in near if (digits := ported_digits(number.strip())) is not None]


_CODE: Final = re.compile(r"([0-9]{3})[- ]?([0-9]{1,3})")


def read_code(code: str) -> MobileNetwork | None:
    """Return the network of an MCC and MNC in one text, as `65510`, `655-10` or `655010`."""
    found = _CODE.fullmatch(code.strip())
    # Both countries write MNCs with two digits; 7, 07 and 007 are one.
    return None if found is None else _BY_CODE.get(f"{found[1]}{int(found[2]):02}")


# Queues. A network with routes of its own has a queue of its own, so that it waits for no other; all other
# networks of a country share the country's.


def queue_of(country: str, network: str, routed: Collection[str]) -> str:
    """Return the queue of a network: `ZW-econet` if it is among the routed ones, else `ZW`."""
    queue = f"{country}-{network}" if routed else country
    return queue if queue in routed else country


def country_of(queue: str) -> str:
    return queue.partition("-")[0]


def list_queues(country: str) -> Sequence[str]:
    """Return every queue that messages of a country may be in, routed now or earlier."""
    return [country, *(f"{country}-{network}" for network in list_networks(country))]


# Statistics show networks by name, and those that are not known by their country.


def network_of(number: str, country: str) -> str:
    """Return the name of a number's network, or its country, as in `ZM`, where that is not known."""
    return NAMES.get(find_network(number), country)


def network_name(network: str, country: str, country_name: str) -> str:
    """Return the label of a network, or of all the networks of a country that are not known."""
    if network != country:
        return network
    return f"{country_name}, other networks" if country in NETWORK_COUNTRIES else country_name
