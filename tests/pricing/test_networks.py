"""Is a number's network told by its first digits, the longest known beginning first?"""

import pytest

from tumira.pricing.networks import PORTED, TOLD_APART, name, network_of


@pytest.mark.parametrize(
    ("digits", "network"),
    [
        ("771", "Econet"),
        ("780", "Econet"),
        ("799", "Econet"),
        ("712", "NetOne"),
        ("729", "NetOne"),
        ("731", "Telecel"),
        ("751", "Dolphin"),
        ("741", "ZW"),
        ("202", "ZW"),
    ],
)
def test_zimbabwes_networks_have_their_own_digits(digits: str, network: str) -> None:
    assert network_of(f"+263{digits}", "ZW") == network


@pytest.mark.parametrize(
    ("digits", "network"),
    [
        ("8212", "Vodacom"),
        ("7110", "Vodacom"),
        ("7100", "MTN"),
        ("7179", "MTN"),
        ("6312", "MTN"),
        ("6361", "Vodacom"),
        ("6412", "Cell C"),
        ("6401", "MTN"),
        ("6149", "Telkom Mobile"),
        ("6151", "Cell C"),
        ("6850", "Telkom Mobile"),
        ("6860", "MTN"),
        ("6909", "MTN"),
        ("6912", "Telkom Mobile"),
        ("6961", "Rain"),
        ("5012", "Rain"),
        ("6001", "Liquid"),
        ("8180", "Vodacom"),
        ("8100", "MTN"),
        ("8170", "Telkom Mobile"),
        ("8160", "ZA"),
        ("8191", "ZA"),
        ("6670", "ZA"),
    ],
)
def test_in_south_africa_the_longest_beginning_counts(digits: str, network: str) -> None:
    assert network_of(f"+27{digits}", "ZA") == network


@pytest.mark.parametrize("number", ["+26077", "+1", "", "+2"])
def test_the_networks_of_other_countries_are_not_told_apart(number: str) -> None:
    assert network_of(number, "ZM") == "ZM"


def test_people_read_names() -> None:
    assert name("Econet", "ZW", "Zimbabwe") == "Econet"
    assert name("ZW", "ZW", "Zimbabwe") == "Zimbabwe, other networks"
    assert name("ZM", "ZM", "Zambia") == "Zambia"
    assert PORTED <= TOLD_APART
