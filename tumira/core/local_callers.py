"""Whether a request was made by a program on this machine, and not passed on by a proxy.

The peer alone does not tell: a proxy on this machine is a peer on this machine. So a request counts as local
only if nothing about it says that it was passed on.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

# A proxy names whom it speaks for in one of these (RFC 7239, RFC 9110 section 7.6.3, and customs).
_FORWARDED: Final = frozenset(
    {b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"true-client-ip"}
)
_HOST: Final = re.compile(r"(\[(?P<address>[^\]]*)\]|(?P<name>[^:]*))(:[0-9]*)?")
_FORWARDED_PREFIXES: Final = (b"x-forwarded", b"x-original-", b"x-envoy-", b"cf-")


def is_local(
    peer: str | None, own: str | None, http_version: str, headers: Iterable[tuple[bytes, bytes]]
) -> bool:
    """Tell whether a request comes from this machine itself; `headers` have names in small letters.

    `peer` and `own` are the two ends of its connection. The peer may be what a forwarding header says instead
    of the socket: a request with such a header is refused before the peer is looked at.
    """
    hosts = []
    for name, value in headers:
        if name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES):
            return False
        if name == b"host":
            hosts.append(value)
    # nginx that is told nothing passes requests on as HTTP/1.0, without a header of its own and with our
    # address as Host. Browsers and tools speak 1.1.
    if http_version == "1.0":
        return False
    # A site whose name was pointed at this machine (DNS rebinding), and a proxy that adds no header, give
    # their own name.
    if len(hosts) != 1:
        return False
    host = _host_name(hosts[0].decode("latin-1"))
    # Who connects to an address of their own machine has the same one.
    return (host == "localhost" or _is_here(host, own)) and _is_here(peer, own)


def _host_name(host: str) -> str:
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["address"] or found["name"] or "").lower()


def _is_here(text: str | None, own: str | None) -> bool:
    """Tell whether an address is this machine's: a loopback address, or the address that was connected to."""
    address = _address(text)
    return address is not None and (address.is_loopback or address == _address(own))


def _address(text: str | None) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
