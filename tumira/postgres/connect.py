"""Connections to the server that takes writes, among those that TUMIRA_DATABASE_URL names.

No message quotes a piece of the URL: with one character in the wrong place a password looks like a host.
"""

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from asyncpg.exceptions import TargetServerAttributeNotMatched

from tumira.core import urls
from tumira.core.errors import OperatorError

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection

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


# For all hosts of a URL together: while the first is silent, the others have to be tried in this time.
CONNECT_TIMEOUT_S: Final = 5.0

# A peer whose machine is gone answers nothing: after a few seconds of that the kernel closes the connection,
# on our side and, by the settings of the session, on the server's.
KEEPALIVE_IDLE_S: Final = 5
KEEPALIVE_INTERVAL_S: Final = 2
KEEPALIVE_COUNT: Final = 3
UNANSWERED_MS: Final = 10_000

# By where it is said and not by its words, which depend on the language of the server.
_CANCELLED_WAIT: Final = "SyncRepWaitForLSN"

SESSION: Final[Mapping[str, str]] = {
    "application_name": "tumira",
    "jit": "off",
    "timezone": "UTC",
    # `SyncCommitWatcher` needs warnings: they tell a commit on one server from a commit on both.
    "client_min_messages": "warning",
    # A process that froze, or whose machine is gone, lets go of the rows that it holds.
    "idle_in_transaction_session_timeout": "5s",
    "client_connection_check_interval": "2s",
    "tcp_keepalives_idle": str(KEEPALIVE_IDLE_S),
    "tcp_keepalives_interval": str(KEEPALIVE_INTERVAL_S),
    "tcp_keepalives_count": str(KEEPALIVE_COUNT),
    "tcp_user_timeout": str(UNANSWERED_MS),
}


class UnreachedError(ConnectionError):
    """No host gave a connection; the text says for each why."""

    def __init__(self, reasons: Sequence[tuple[Host | None, Exception]]) -> None:
        super().__init__("; ".join(_said(host, error) for host, error in reasons))
        self.errors: Final = [error for _, error in reasons]


class UnsureCommitError(ConnectionError):
    """A commit is on the primary, but its wait for the standby was cancelled; it must not be relied on."""

    def __init__(self) -> None:
        super().__init__("the wait for the synchronous standby was cancelled")


class SyncCommitWatcher:
    """Notices when the server gave up waiting for its standby.

    An operator's `pg_cancel_backend`, or a `statement_timeout`, ends such a wait. The commit then succeeds,
    with a warning that is easily missed, and is lost if the primary is.
    """

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard = False

    def on_notice(self, _connection: object, message: asyncpg.PostgresLogMessage) -> None:
        """Take a notice of the server; called before the statement returns."""
        if getattr(message, "server_source_function", None) == _CANCELLED_WAIT:
            self._heard = True

    def check(self) -> None:
        """Raise if a commit since the last check is not as safe as it seemed."""
        if self._heard:
            self._heard = False
            raise UnsureCommitError


# The numbers of these types, and of their elements, are the same on every server.
_ARRAYS: Final = {
    1000: ("_bool", 16),
    1001: ("_bytea", 17),
    1005: ("_int2", 21),
    1007: ("_int4", 23),
    1016: ("_int8", 20),
    1022: ("_float8", 701),
    1182: ("_date", 1082),
    1185: ("_timestamptz", 1184),
    1231: ("_numeric", 1700),
    2951: ("_uuid", 2950),
}


class ServerConnection(_Connection):
    """A connection that knows its host, and notices when the host is gone."""

    __slots__ = ("host",)

    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self.host: Host | None = None
        _notice_silence(transport.get_extra_info("socket"))

    async def _introspect_types(self, typeoids: Collection[int], timeout: Any) -> Any:  # noqa: ASYNC109
        """Return what asyncpg asks the server about types that a statement uses, without asking.

        Its question takes the server longer than all statements of a send together, and each connection asks
        several times.
        """
        if not _ARRAYS.keys() >= set(typeoids):
            return await super()._introspect_types(typeoids, timeout)  # type: ignore[misc] # has no stub
        return [_describe_array(number) for number in typeoids], _NOT_ASKED


# In place of the statement that asked: it has a name, so the statement it is for is still prepared.
_NOT_ASKED: Final = SimpleNamespace(name="none")


def _describe_array(number: int) -> Mapping[str, Any]:
    name, element = _ARRAYS[number]
    return {
        "oid": number,
        "ns": "pg_catalog",
        "name": name,
        "kind": b"b",
        "basetype": None,
        "elemtype": element,
        "elemdelim": b",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
    }


async def reach(address: Address, first: Host | None, **options: Any) -> ServerConnection:
    """Connect to the first host that can be used, beginning with `first`.

    A host that is silent, refuses, starts, stops or takes no writes is skipped. Any other answer, such as
    that the server is full or knows no such user, is final: no other host is tried.
    """
    hosts: list[Host | None] = [*sorted(address.hosts, key=lambda host: host != first)] or [None]
    reasons: list[tuple[Host | None, Exception]] = []
    for host in hosts:
        where: dict[str, Any] = {} if host is None else {"host": host.name, "port": host.port}
        try:
            wire: ServerConnection = await asyncpg.connect(
                address.url,
                connection_class=ServerConnection,
                timeout=CONNECT_TIMEOUT_S / len(hosts),
                target_session_attrs=SessionAttribute(address.target),
                **where,
                **options,
            )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            reasons.append((host, error))
            if not _is_passed_over(error):
                break
        else:
            wire.host = host
            return wire
    raise UnreachedError(reasons) from reasons[-1][1]


def _is_passed_over(error: Exception) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        return isinstance(error, asyncpg.PostgresConnectionError | asyncpg.OperatorInterventionError)
    return not isinstance(error, ValueError)


def _said(host: Host | None, error: Exception) -> str:
    if isinstance(error, TargetServerAttributeNotMatched):
        reason = "it takes no writes"
    elif isinstance(error, TimeoutError) and not str(error):
        reason = "no answer in time"
    else:
        reason = " ".join(str(error).split()) or type(error).__name__
    return reason if host is None else f"{host}: {reason}"


def _notice_silence(line: socket.socket | None) -> None:
    if line is None or line.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
        "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S,
        "TCP_KEEPCNT": KEEPALIVE_COUNT,
        "TCP_USER_TIMEOUT": UNANSWERED_MS,
    }
    for name, value in wanted.items():
        # Not every system has all of them.
        option = getattr(socket, name, None)
        if option is not None:
            line.setsockopt(socket.IPPROTO_TCP, option, value)
