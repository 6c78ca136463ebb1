"""Which network does a number belong to? Told by its first digits, where the longest known beginning counts.

In Zimbabwe these digits are the network. In South Africa they are where a number was issued: people keep it
when they change networks, so there it is a guess.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

# By calling code: the networks, and the first digits of their national numbers. `606-609` is four beginnings.
_ISSUED: Final = {
    "+263": {
        "Econet": "77 78 79",
        "NetOne": "71 72",
        "Telecel": "73",
        "Dolphin": "75",
    },
    "+27": {
        "Vodacom": "71 72 76 79 82 606-609 636-637 646-649 660-665 673-675 818",
        "MTN": "73 78 83 603-605 63 640 655-657 686-690 710 717-719 810",
        "Cell C": "61 62 74 84 641-645 650-654",
        "Telkom Mobile": "67 68 69 75 601-602 614 658-659 811-815 817",
        "Rain": "50 696",
        "Liquid": "600",
    },
}
# A number is told by this many of its characters, `+` and calling code included.
_HEAD: Final = 7
_HEADS_MAX: Final = 16_384

# Where a number keeps its digits when its owner changes networks.
PORTED: Final = frozenset({"ZA"})
# The countries whose networks are told apart.
TOLD_APART: Final = frozenset({"ZW", "ZA"})


def network_of(number: str, country: str) -> str:
    """Return the name of a number's network, or its country, as in `ZM`, where that is not known."""
    return _known(number[:_HEAD]) or country


def name(network: str, country: str, country_name: str) -> str:
    """Return what people call a network, or all those of a country that are not told apart."""
    if network != country:
        return network
    return f"{country_name}, other networks" if country in TOLD_APART else country_name


@lru_cache(_HEADS_MAX)
def _known(head: str) -> str | None:
    for length in range(len(head), 0, -1):
        found = _NETWORKS.get(head[:length])
        if found is not None:
            return found
    return None


def _beginnings(written: str) -> Iterator[str]:
    for one in written.split():
        first, _, last = one.partition("-")
        for digits in range(int(first), int(last or first) + 1):
            yield str(digits)


_NETWORKS: Final[Mapping[str, str]] = {
    code + digits: network
    for code, networks in _ISSUED.items()
    for network, written in networks.items()
    for digits in _beginnings(written)
}
