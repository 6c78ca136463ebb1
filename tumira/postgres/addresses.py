"""Which servers does TUMIRA_DATABASE_URL name, and what is wrong with it if it cannot be read?

No message quotes a piece of the URL: with one character in the wrong place a password looks like a host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote

from tumira.core import urls
from tumira.core.errors import OperatorError

HOSTS_MAX: Final = 5
PORT: Final = 5432

# What a server has to be to be used. Each of our processes writes, so a standby is of no use to any.
READ_WRITE: Final = "read-write"
ANY: Final = "any"
USABLE: Final = (ANY, "primary", READ_WRITE)
USELESS: Final = ("read-only", "standby", "prefer-standby")


@dataclass(frozen=True, slots=True)
class Host:
    """A machine and port, or a directory with a socket."""

    name: str
    port: int

    def __str__(self) -> str:
        if self.name.startswith("/"):
            return self.name
        return urls.write_authority(self.name, self.port)


@dataclass(frozen=True, slots=True)
class Address:
    """The servers of a URL in their order; none if the URL leaves that to the environment."""

    url: str
    hosts: Sequence[Host]
    target: str


def read_address(url: str) -> Address:
    """Read a URL as PostgreSQL's own programs do."""
    parts = urls.parse(url, many_hosts=True)
    if parts is None:
        raise _url_error("cannot be read as a URL")
    try:
        query = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _url_error("cannot be read as a URL") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise _url_error("does not begin with postgresql://")
    if parts.fragment or "@" in parts.path:
        raise _url_error("has a # or a / in its user or password: write them as %23 and %2F")
    options = {name: values[-1] for name, values in query.items()}
    hosts = _hosts(parts.authority, options)
    if len(hosts) > HOSTS_MAX:
        raise _url_error(f"names {len(hosts)} hosts; {HOSTS_MAX} are the most that can be tried in time")
    return Address(url, hosts, _target(options, hosts))


def _hosts(netloc: str, options: Mapping[str, str]) -> Sequence[Host]:
    _, _, text = netloc.partition("@") if "@" in netloc else ("", "", netloc)
    if "@" in text:
        raise _url_error("has more than one @: write one that belongs to the password as %40")
    if text:
        return [_host(place, unquote(part), PORT) for place, part in enumerate(text.split(","), start=1)]
    if "host" not in options:
        return []
    names = options["host"].split(",")
    ports = [
        _port(place, text) for place, text in enumerate(options.get("port", str(PORT)).split(","), start=1)
    ]
    if len(ports) == 1:
        ports *= len(names)
    if len(ports) != len(names):
        raise _url_error(
            f"names {len(names)} hosts but {len(ports)} ports: give one port, or one for each host"
        )
    return [
        _named(place, name, port)
        for place, (name, port) in enumerate(zip(names, ports, strict=True), start=1)
    ]


def _host(place: int, text: str, port: int) -> Host:
    if text.startswith("/"):
        return _named(place, text, port)
    split = urls.split_port(text)
    if split is None or (text.startswith("[") and not split[0].endswith("]")):
        raise _url_error(f"has an IPv6 address as host {place} that is not written like [::1]:5432")
    name, port_text = split
    name = name[1:-1] if name.startswith("[") else name
    return _named(place, name, port if port_text is None else _port(place, port_text))


def _named(place: int, name: str, port: int) -> Host:
    if not name:
        raise _url_error(f"names no host in place {place} of its list")
    return Host(name, port)


def _port(place: int, text: str) -> int:
    port = urls.parse_port(text)
    if port is None:
        raise _url_error(f"has a port in place {place} that is not a number from 1 to {urls.PORT_MAX}")
    return port


def _target(options: Mapping[str, str], hosts: Sequence[Host]) -> str:
    target = options.get("target_session_attrs")
    if target is None:
        return READ_WRITE if len(hosts) > 1 else ANY
    if target in USELESS:
        raise _url_error(f"asks for target_session_attrs={target}, but Tumira writes: use {READ_WRITE}")
    if target not in USABLE:
        raise _url_error(f"asks for target_session_attrs that do not exist: use {READ_WRITE}")
    return target


def _url_error(what: str) -> OperatorError:
    return OperatorError(f"TUMIRA_DATABASE_URL {what}.")
