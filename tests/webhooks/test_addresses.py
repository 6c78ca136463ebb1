"""The addresses that may be called: public ones, in whatever spelling."""

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.webhooks.addresses import is_public

# A range and why nobody may have us call there. The first and the last address of each are tried, and those
# just outside where they are public.
INSIDE = {
    "this host": "0.0.0.0/8",
    "private, class A": "10.0.0.0/8",
    "carrier-grade NAT": "100.64.0.0/10",
    "loopback": "127.0.0.0/8",
    "host of an Azure machine": "168.63.129.16/32",
    "link-local and metadata": "169.254.0.0/16",
    "private, class B": "172.16.0.0/12",
    "protocol assignments": "192.0.0.0/24",
    "documentation 1": "192.0.2.0/24",
    "relays of 6to4": "192.88.99.0/24",
    "private, class C": "192.168.0.0/16",
    "benchmarks": "198.18.0.0/15",
    "documentation 2": "198.51.100.0/24",
    "documentation 3": "203.0.113.0/24",
    "multicast": "224.0.0.0/4",
    "reserved": "240.0.0.0/4",
    "IPv6 unspecified": "::/128",
    "IPv6 loopback": "::1/128",
    "IPv4-compatible": "::/96",
    "NAT64 of a network's own": "64:ff9b:1::/48",
    "discard-only": "100::/64",
    "IPv6 protocol assignments": "2001::/23",
    "Teredo": "2001::/32",
    "IPv6 benchmarks": "2001:2::/48",
    "ORCHID": "2001:10::/28",
    "ORCHID 2": "2001:20::/28",
    "IPv6 documentation": "2001:db8::/32",
    "6to4": "2002::/16",
    "IPv6 documentation 2": "3fff::/20",
    "segment routing": "5f00::/16",
    "unique local": "fc00::/7",
    "IPv6 link-local": "fe80::/10",
    "site-local": "fec0::/10",
    "IPv6 multicast": "ff00::/8",
    "not assigned, low": "200::/7",
    "not assigned, high": "4000::/2",
}

JUST_OUTSIDE = {
    "before private, class A": "9.255.255.255",
    "after private, class A": "11.0.0.0",
    "before carrier-grade NAT": "100.63.255.255",
    "after carrier-grade NAT": "100.128.0.0",
    "before loopback": "126.255.255.255",
    "after loopback": "128.0.0.0",
    "beside the host of an Azure machine": "168.63.129.17",
    "before link-local": "169.253.255.255",
    "after link-local": "169.255.0.0",
    "before private, class B": "172.15.255.255",
    "after private, class B": "172.32.0.0",
    "after protocol assignments": "192.0.1.0",
    "before private, class C": "192.167.255.255",
    "after private, class C": "192.169.0.0",
    "before benchmarks": "198.17.255.255",
    "after benchmarks": "198.20.0.0",
    "before multicast": "223.255.255.255",
    "a resolver of all": "8.8.8.8",
    "IPv6 resolver of all": "2001:4860:4860::8888",
    "after IPv6 protocol assignments": "2001:200::1",
    "after IPv6 documentation": "2001:db9::1",
    "after 6to4": "2003::1",
    "IPv6 of Africa": "2c0f:fb50::1",
    "NAT64 of a public address": "64:ff9b::808:808",
    "a public address mapped": "::ffff:8.8.8.8",
}

# The table of what `ipaddress` calls global in one Python or another.
CALLED_GLOBAL = [
    "::ffff:100.64.0.1",
    "64:ff9b::a9fe:a9fe",
    "::127.0.0.1",
    "fec0::1",
    "224.0.0.1",
    "ff02::1",
    "2002:a9fe:a9fe::",
    "192.0.0.192",
    "64:ff9b:1::1",
    "64:ff9b:1::808:808",
]

METADATA = ["169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254"]

NONSENSE = {
    "nothing": "",
    "a name": "localhost",
    "a number": "2130706433",
    "hexadecimal": "0x7f.1",
    "octal": "0177.0.0.1",
    "too short": "8.8.8",
    "too large": "8.8.8.256",
    "a port": "8.8.8.8:443",
    "a network": "8.8.8.0/24",
    "brackets": "[2001:4860:4860::8888]",
    "spaces": " 8.8.8.8",
    "a line end": "8.8.8.8\n",
    "other digits": "8.8.8.8".translate({ord("8"): "\N{FULLWIDTH DIGIT EIGHT}"}),
    "a zone": "fe80::1%eth0",
    "a zone at a public address": "2001:4860:4860::8888%1",
}


@pytest.mark.parametrize("network", INSIDE.values(), ids=INSIDE)
def test_no_address_of_the_range_is_public(network: str) -> None:
    parsed = ip_network(network)
    middle = parsed[parsed.num_addresses // 2]
    assert not any(is_public(str(address)) for address in (parsed[0], middle, parsed[-1]))


@pytest.mark.parametrize("address", JUST_OUTSIDE.values(), ids=JUST_OUTSIDE)
def test_an_address_outside_of_the_ranges_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", CALLED_GLOBAL + METADATA)
def test_what_python_calls_global_and_what_tells_a_machine_its_secrets_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
def test_what_is_no_plain_address_is_not_public(text: str) -> None:
    assert not is_public(text)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_an_ipv4_address_written_as_ipv6_is_public_only_if_it_is(address: IPv4Address) -> None:
    number = int(address)
    assert is_public(f"::ffff:{address}") == is_public(str(address))
    assert is_public(str(IPv6Address(0x64FF9B << 96 | number))) == is_public(str(address))
    assert not is_public(str(IPv6Address(number)))
    assert not is_public(str(IPv6Address(0x2002 << 112 | number << 80)))
    assert not is_public(str(IPv6Address(0x20010000 << 96 | number ^ 0xFFFFFFFF)))


@given(st.text())
def test_any_text_gets_a_verdict(text: str) -> None:
    assert is_public(text) in {True, False}


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_no_address_is_public_that_python_calls_something_else(address: IPv6Address) -> None:
    special = address.is_private or address.is_multicast or address.is_reserved or address.is_site_local
    wraps = address.ipv4_mapped is not None or address in ip_network("64:ff9b::/96")
    assert not (is_public(str(address)) and special and not wraps)
