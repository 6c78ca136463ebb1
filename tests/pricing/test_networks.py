"""Every mobile number has exactly one network, and every network with routes has one queue."""

import itertools
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.pricing import networks
from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff, sort_recipients
from tumira.pricing.networks import (
    NETWORK_COUNTRIES,
    NETWORKS,
    OTHER,
    PORTED_COUNTRIES,
    country_of,
    find_network,
    list_networks,
    list_queues,
    network_name,
    network_of,
    ported_digits,
    queue_of,
    read_code,
)

TARIFF = Tariff(
    1,
    (Destination("ZW", "263", "Zimbabwe", (9,)), Destination("ZA", "27", "South Africa", (9,))),
    [Price("sms", country, Decimal("0.04"), PriceStatus.ACTIVE) for country in ("ZW", "ZA")],
)

# First digits of numbers, by the table of each regulator and not by ours.
KNOWN = {
    "263": {
        "econet": "771 780 782 787 799",
        "netone": "712 719 729",
        "telecel": "731 739",
        "dolphin": "751",
        OTHER: "741 202",
    },
    "27": {
        "vodacom": "8212 7110 7111 7160 6361 8180 6060 6491 6650 6730 12492 87285 164920 134925",
        "mtn": "7100 7170 7179 6312 6380 6401 6860 6909 8100 6050",
        "cellc": "6412 6151 6501 7400 8400",
        "telkom": "6149 6850 6912 8170 6010 6580 1910",
        "rain": "6961 5012 8160",
        "liquid": "6001",
        OTHER: "8191 6670 7000 8500",
    },
    # The networks of other countries are not told apart.
    "260": {OTHER: "77"},
}


def test_the_longest_prefix_of_a_number_names_its_network() -> None:
    for calling_code, found in KNOWN.items():
        for network, prefixes in found.items():
            for digits in prefixes.split():
                assert find_network(f"+{calling_code}{digits:0<9}") == network, digits
    for number in ("+1", "", "+2", "+263"):
        assert find_network(number) == OTHER


def test_no_prefix_is_that_of_two_networks() -> None:
    counts = Counter((one.country, prefix) for one in NETWORKS for prefix in networks._prefixes(one.prefixes))
    assert set(counts.values()) == {1}
    codes = [code for one in NETWORKS for code in one.codes.split()]
    assert len(codes) == len(set(codes))


def test_every_prefix_is_that_of_a_mobile_number() -> None:
    for one in NETWORKS:
        calling_code = {"ZW": "263", "ZA": "27"}[one.country]
        for prefix in networks._prefixes(one.prefixes):
            assert sort_recipients(TARIFF, "sms", [f"+{calling_code}{prefix:0<9}"]).accepted, prefix


mobiles = st.from_regex(r"\A\+(2637[0-9]{8}|27([67][0-9]|8[1-5])[0-9]{7})\Z")


@given(mobiles)
def test_every_mobile_number_has_exactly_one_network_of_its_country(number: str) -> None:
    (recipient,) = sort_recipients(TARIFF, "sms", [number]).accepted
    network = find_network(number)
    assert network in list_networks(recipient.country)
    # Only its first digits count, and the longest prefix among them.
    digits = number.removeprefix("+263").removeprefix("+27")
    fitting = [
        (len(prefix), one.key)
        for one in NETWORKS
        if one.country == recipient.country
        for prefix in networks._prefixes(one.prefixes)
        if digits.startswith(prefix)
    ]
    assert network == max(fitting, default=(0, OTHER))[1]
    routed = [f"{recipient.country}-{network}"]
    assert queue_of(recipient.country, network, ()) == recipient.country
    assert queue_of(recipient.country, network, routed) == routed[0]
    assert {country_of(queue) for queue in list_queues(recipient.country)} == {recipient.country}
    assert routed[0] in list_queues(recipient.country)


def test_a_country_without_known_networks_has_one_queue() -> None:
    assert list_networks("ZM") == []
    assert list_queues("ZM") == ["ZM"]
    assert len(set(itertools.chain(list_queues("ZW"), list_queues("ZA")))) == 6 + 8


@pytest.mark.parametrize(
    ("code", "network"),
    [
        ("65510", "mtn"),
        ("655-10", "mtn"),
        ("655010", "mtn"),
        ("6557", "cellc"),
        ("65507", "cellc"),
        ("655007", "cellc"),
        ("64804", "econet"),
        (" 65501 ", "vodacom"),
        ("65599", None),
        ("23410", None),
        ("", None),
        ("655", None),
        ("Vodacom", None),
    ],
)
def test_a_network_is_read_from_its_code(code: str, network: str | None) -> None:
    found = read_code(code)
    assert (None if found is None else found.key) == network


def test_only_numbers_of_countries_with_porting_are_looked_up() -> None:
    assert ported_digits("+27821230001") == "27821230001"
    for number in ("+263771200001", "27821230001", "+27•••001", "+27", "+2782123000x", "+278212300010000000"):
        assert ported_digits(number) in {None, "27"}
    assert PORTED_COUNTRIES <= NETWORK_COUNTRIES


def test_statistics_show_a_network_by_its_name_or_its_country() -> None:
    assert network_of("+263771200001", "ZW") == "Econet"
    assert network_of("+263741200001", "ZW") == "ZW"
    assert network_name("Econet", "ZW", "Zimbabwe") == "Econet"
    assert network_name("ZW", "ZW", "Zimbabwe") == "Zimbabwe, other networks"
    assert network_name("ZM", "ZM", "Zambia") == "Zambia"
