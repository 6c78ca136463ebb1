"""The URLs of webhook endpoints: which ones customers may give, and what is called for them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final
from urllib.parse import quote

from tumira.core import urls
from tumira.core.translation import _

URL_MAX: Final = 2048

_PORT_HTTPS: Final = 443
_PORT_HTTP: Final = 80
# Lower ports are those of system services, mail among them; of those only 443 is allowed.
_PORT_FREE: Final = 1024
# Ports of other protocols: their servers see our calls as a broken client, and some then block the sender.
_OTHER_PROTOCOLS: Final[Mapping[int, str]] = {
    1433: "SQL Server",
    1521: "Oracle",
    1723: "PPTP",
    1883: "MQTT",
    2049: "NFS",
    2775: "SMPP",
    3306: "MySQL",
    3389: "remote desktops",
    5060: "SIP",
    5061: "SIP",
    5222: "XMPP",
    5432: "PostgreSQL",
    5672: "AMQP",
    5900: "VNC",
    6000: "X11",
    6379: "Redis",
    6667: "IRC",
    6697: "IRC",
    9042: "Cassandra",
    9092: "Kafka",
    11211: "memcached",
    27017: "MongoDB",
}

# Names that resolve to this machine or its own network: RFC 6761, 6762, 8375, and the name that ICANN keeps
# for private use.
_INSIDE: Final = ("localhost", "local", "internal", "home.arpa")
# Python's codec follows IDNA 2003, which maps these to other names than browsers do.
_DEVIATIONS: Final = frozenset("ßẞς\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}")

# As inet_aton of the C library reads an address: decimal, octal or hexadecimal, in one to four parts.
_PART: Final = re.compile(r"0x[0-9a-f]{0,8}|[0-9]{1,11}")
_PARTS_MAX: Final = 4

_PATH_SAFE: Final = "/?:@!$&'()*+,;=-._~%[]"


@dataclass(frozen=True, slots=True)
class Target:
    """The server to call; `path` includes the query, and all parts are ASCII."""

    url: str
    tls: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        return _write_authority(self.host, self.port, tls=self.tls)


def parse(url: str, *, allow_private: bool) -> Target:
    """Check a URL; a ValueError says in one sentence what to change."""
    _check_characters(url)
    scheme, _separator, rest = url.partition("://")
    tls = scheme.lower() == "https"
    if not tls and not (allow_private and scheme.lower() == "http"):
        wanted = "https:// or http://" if allow_private else "https://"
        text = _("The URL must begin with {wanted}, as in https://hooks.example.com/tumira.")
        raise ValueError(text.format(wanted=wanted))
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    place, path = rest[:end], rest[end:]
    if "@" in place:
        raise ValueError(_("The URL must have no user and password; every call is signed instead."))
    split = urls.split_port(place)
    if split is None:
        raise ValueError(_("After the ] of an IPv6 address the URL can only have a port, as in [::1]:8443."))
    host, port_text = split
    host = _read_host(host, allow_private=allow_private)
    port = _read_port(port_text, tls=tls, allow_private=allow_private)
    path = _read_path(path)
    written = f"http{'s' if tls else ''}://{_write_authority(host, port, tls=tls)}{path}"
    # Escapes make it longer, and the stored URL is checked again when it is called.
    if len(written) > URL_MAX:
        text = _("The URL must have at most {count} characters, each escape counted as three.")
        raise ValueError(text.format(count=f"{URL_MAX:,}"))
    return Target(url=written, tls=tls, host=host, port=port, path=path)


def _check_characters(url: str) -> None:
    if len(url) > URL_MAX:
        raise ValueError(_("The URL must have at most {count} characters.").format(count=f"{URL_MAX:,}"))
    if any(not character.isprintable() or character.isspace() for character in url):
        raise ValueError(
            _("The URL must have no spaces, line ends or control characters; write a space as %20.")
        )
    # Some programs read it as a slash, and so find another host than we do.
    if "\\" in url:
        raise ValueError(_("The URL must have no backslash; write it as %5C."))
    if "#" in url:
        raise ValueError(_("The URL must have no fragment; leave out the # and the rest."))


def _write_authority(host: str, port: int, *, tls: bool) -> str:
    is_default = port == (_PORT_HTTPS if tls else _PORT_HTTP)
    return urls.write_authority(host, None if is_default else port)


def _read_host(text: str, *, allow_private: bool) -> str:
    if text.startswith("["):
        host = _read_literal_6(text)
        is_literal = True
    else:
        host = _to_ascii(text).removesuffix(".")
        if not urls.is_host_name(host):
            raise ValueError(_("The URL must name a host, as in https://hooks.example.com/tumira."))
        # No name ends in a number, so this is an address in one of its spellings.
        is_literal = _PART.fullmatch(host.rpartition(".")[2]) is not None
        if is_literal:
            host = _read_literal_4(host)
    if allow_private:
        return host
    if is_literal:
        raise ValueError(
            _("The URL must name the host, as in https://hooks.example.com/tumira, not its address.")
        )
    if "." not in host or any(host == name or host.endswith("." + name) for name in _INSIDE):
        text = _("{host} is not a public host name; use a name such as hooks.example.com.")
        raise ValueError(text.format(host=host))
    return host


def _to_ascii(host: str) -> str:
    if host.isascii():
        return host.lower()
    if _DEVIATIONS.isdisjoint(host):
        try:
            return host.encode("idna").decode("ascii").lower()
        except UnicodeError:
            pass
    raise ValueError(_("The host name cannot be read; write it in its ASCII form, which begins with xn--."))


def _read_literal_6(text: str) -> str:
    address = urls.parse_ipv6(text)
    # A zone names an interface of one machine; it has no meaning to another.
    if address is None or address.scope_id is not None:
        raise ValueError(_("The brackets must hold an IPv6 address, as in [2001:db8::1]."))
    return str(address)


def _read_literal_4(host: str) -> str:
    """Write an address, in any spelling that a resolver accepts, as four decimal numbers."""
    parts = host.split(".")
    numbers = [_read_part(part) for part in parts[:_PARTS_MAX]]
    # The last number fills all the octets that the ones before it leave.
    most = [255] * (len(numbers) - 1) + [256 ** (_PARTS_MAX + 1 - len(numbers)) - 1]
    if len(parts) > _PARTS_MAX or any(number > limit for number, limit in zip(numbers, most, strict=True)):
        text = _("{host} is neither a name nor an address; use a name such as hooks.example.com.")
        raise ValueError(text.format(host=host))
    value = numbers[-1]
    for index, number in enumerate(numbers[:-1]):
        value += number << 8 * (_PARTS_MAX - 1 - index)
    return str(IPv4Address(value))


def _read_part(part: str) -> int:
    """Return the number, or a number that is too large for every address."""
    too_large: Final = 1 << 32
    if not _PART.fullmatch(part):
        return too_large
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    if part.startswith("0"):
        return int(part, 8) if set(part) <= set("01234567") else too_large
    return int(part)


def _read_port(text: str | None, *, tls: bool, allow_private: bool) -> int:
    # RFC 3986, section 6.2.3: a colon without a port means the default.
    if not text:
        return _PORT_HTTPS if tls else _PORT_HTTP
    port = urls.parse_port(text)
    if port is None:
        raise ValueError(_("The port must be a whole number from 1 to {most}.").format(most=urls.PORT_MAX))
    if allow_private:
        return port
    if port != _PORT_HTTPS and port < _PORT_FREE:
        text = _("The port must be {https}, or {free} or higher.")
        raise ValueError(text.format(https=_PORT_HTTPS, free=_PORT_FREE))
    if port in _OTHER_PROTOCOLS:
        text = _("Port {port} is used for {protocol}; choose another port.")
        raise ValueError(text.format(port=port, protocol=_OTHER_PROTOCOLS[port]))
    return port


def _read_path(text: str) -> str:
    if urls.has_bad_escape(text):
        raise ValueError(_("The URL has a % that is not part of an escape such as %20; write it as %25."))
    path = quote(text, safe=_PATH_SAFE)
    return path if path.startswith("/") else "/" + path
