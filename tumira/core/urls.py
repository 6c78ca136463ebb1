"""Parses URLs, host names, ports and percent-encoding, within bounds.

No function raises an error that quotes a part of the URL: with one character in the wrong place a password
looks like a host.
"""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

PORT_MAX: Final = 65_535

# RFC 1123, section 2.1, with the underscore that some names have.
_LABEL: Final = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
HOST_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_PORT: Final = re.compile(r"[0-9]{1,9}")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL. User and password are still percent-encoded; the host is in lower case."""

    scheme: str
    authority: str
    user: str | None
    password: str | None
    host: str
    port: int | None
    path: str
    query: str
    fragment: str


def parse(url: str, *, many_hosts: bool = False) -> Url | None:
    """Split a URL; None if it cannot be split or its port is no port.

    With `many_hosts` the authority may list several, so `host` and `port` stay empty.
    """
    try:
        parts = urlsplit(url)
        host, port = ("", None) if many_hosts else (parts.hostname or "", parts.port)
    except ValueError:
        return None
    return Url(
        scheme=parts.scheme,
        authority=parts.netloc,
        user=parts.username,
        password=parts.password,
        host=host,
        port=port,
        path=parts.path,
        query=parts.query,
        fragment=parts.fragment,
    )


def split_port(text: str) -> tuple[str, str | None] | None:
    """Split `host:port`, an IPv6 address in its brackets; None if something else follows the bracket."""
    if text.startswith("["):
        inside, bracket, rest = text.partition("]")
        if rest and not rest.startswith(":"):
            return None
        return inside + bracket, rest[1:] if rest else None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def parse_port(text: str) -> int | None:
    return int(text) if _PORT.fullmatch(text) and 1 <= int(text) <= PORT_MAX else None


def parse_ipv6(text: str) -> IPv6Address | None:
    """Read an IPv6 address in brackets."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        return IPv6Address(text[1:-1])
    except AddressValueError:
        return None


def is_host_name(text: str) -> bool:
    return HOST_NAME.fullmatch(text) is not None


def is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_host(text: str) -> bool:
    """Tell whether a text is a name, an IPv4 address, or an IPv6 address without brackets."""
    return is_ip_address(text) if ":" in text else is_host_name(text)


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine."""
    return ip_address(host).is_loopback if is_ip_address(host) else host == "localhost"


def write_authority(host: str, port: int | None = None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def has_bad_escape(text: str) -> bool:
    """Tell whether a text has a % that begins no percent-encoding."""
    return _BAD_ESCAPE.search(text) is not None


def unescape(text: str) -> str | None:
    """Undo percent-encoding of UTF-8; None if it is none. A plus stays a plus."""
    if has_bad_escape(text):
        return None
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None
