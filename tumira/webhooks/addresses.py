"""The addresses that must not be called for a customer: all that are not on the public internet (SSRF).

Kept by hand: what `ipaddress` calls global differs between versions of Python, and includes addresses that
lead back inside through NAT64, 6to4, or an IPv4 address written as IPv6.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_DENIED_4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared with a carrier-grade NAT; also the metadata of one cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the host of a virtual machine in Azure, although the range is public
        "169.254.0.0/16",  # link-local: the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; also the metadata of one cloud
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, deprecated by RFC 7526
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, with the broadcast address
    )
)

# All public addresses are in here (RFC 4291, section 2.4, and IANA's registry). Loopback, IPv4-compatible,
# discard-only, unique local, link-local, site-local and multicast addresses are outside, and so is
# 64:ff9b:1::/48, the local NAT64 of a network.
_UNICAST_6: Final = IPv6Network("2000::/3")
_DENIED_6: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which wraps any IPv4 address, deprecated by RFC 7526
        "3fff::/20",  # documentation
    )
)

# RFC 6052: the last 32 bits are the IPv4 address that the translator calls for us.
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Tell whether an address is public; a text that is no address, or has a zone, is not."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return _is_public_4(parsed)
    return _is_public_6(parsed)


def _is_public_4(address: IPv4Address) -> bool:
    return address.is_global and not any(address in network for network in _DENIED_4)


def _is_public_6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return _is_public_4(address.ipv4_mapped)
    if address in _NAT64:
        return _is_public_4(IPv4Address(address.packed[-4:]))
    is_assigned = address in _UNICAST_6 and not any(address in network for network in _DENIED_6)
    return is_assigned and address.is_global
