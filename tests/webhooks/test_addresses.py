"""The addresses that may be called: public ones, in whatever spelling."""

from ipaddress import IPv4Address, IPv6Address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from tumira.webhooks.addresses import is_public

# The first, a middle and the last address of each are tried.
INSIDE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    *("::/128", "::1/128", "::/96", "64:ff9b:1::/48", "100::/64", "200::/7", "2001::/23", "2001::/32"),
    *("2001:2::/48", "2001:10::/28", "2001:20::/28", "2001:db8::/32", "2002::/16", "3fff::/20", "4000::/2"),
    *("5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
)
JUST_OUTSIDE = (
    *("9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0"),
    *("168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0"),
    *("192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "8.8.8.8"),
    *("2001:4860:4860::8888", "2001:200::1", "2001:db9::1", "2003::1", "2c0f:fb50::1"),
    *("64:ff9b::808:808", "::ffff:8.8.8.8"),
)
# What `ipaddress` calls global in one Python or another, and what tells a machine its secrets.
CALLED_GLOBAL = (
    *("::ffff:100.64.0.1", "64:ff9b::a9fe:a9fe", "::127.0.0.1", "fec0::1", "224.0.0.1", "ff02::1"),
    *("2002:a9fe:a9fe::", "192.0.0.192", "64:ff9b:1::1", "64:ff9b:1::808:808"),
    *("169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"),
)
NONSENSE = (
    *("", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "8.8.8", "8.8.8.256", "8.8.8.8:443"),
    *("8.8.8.0/24", "[2001:4860:4860::8888]", " 8.8.8.8", "8.8.8.8\n"),
    "8.8.8.8".translate({ord("8"): "\N{FULLWIDTH DIGIT EIGHT}"}),
    *("fe80::1%eth0", "2001:4860:4860::8888%1"),
)


def test_no_address_of_the_ranges_is_public_and_those_beside_them_are() -> None:
    for network in map(ip_network, INSIDE):
        for address in (network[0], network[network.num_addresses // 2], network[-1]):
            assert not is_public(str(address)), address
    assert [one for one in JUST_OUTSIDE if not is_public(one)] == []


def test_what_python_calls_global_and_what_is_no_plain_address_is_not_public() -> None:
    assert [one for one in (*CALLED_GLOBAL, *NONSENSE) if is_public(one)] == []


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_an_ipv4_address_written_as_ipv6_is_public_only_if_it_is(address: IPv4Address) -> None:
    number = int(address)
    assert is_public(f"::ffff:{address}") == is_public(str(address))
    assert is_public(str(IPv6Address(0x64FF9B << 96 | number))) == is_public(str(address))
    assert not is_public(str(IPv6Address(number)))
    assert not is_public(str(IPv6Address(0x2002 << 112 | number << 80)))
    assert not is_public(str(IPv6Address(0x20010000 << 96 | number ^ 0xFFFFFFFF)))


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_no_address_is_public_that_python_calls_something_else(address: IPv6Address) -> None:
    special = address.is_private or address.is_multicast or address.is_reserved or address.is_site_local
    wraps = address.ipv4_mapped is not None or address in ip_network("64:ff9b::/96")
    assert not (is_public(str(address)) and special and not wraps)
