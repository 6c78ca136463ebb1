"""How do we get a connection to the server that takes writes, and notice when it is gone without a word?"""

import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from asyncpg.exceptions import TargetServerAttributeNotMatched

from tumira.postgres.addresses import Address, Host

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection

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
    """No host gave us a connection; says for each why."""

    def __init__(self, reasons: Sequence[tuple[Host | None, Exception]]) -> None:
        super().__init__("; ".join(_said(host, error) for host, error in reasons))
        self.errors: Final = [error for _, error in reasons]


class UnsureCommitError(ConnectionError):
    """A commit is on the primary, but nobody waited until the standby had it; it must not be relied on."""

    def __init__(self) -> None:
        super().__init__("the wait for the synchronous standby was cancelled")


class SyncCommitWatcher:
    """Hears whether the server gave up waiting for its standby.

    An operator's `pg_cancel_backend`, or a `statement_timeout`, ends such a wait. The commit then succeeds,
    with a warning that is easily missed, and is lost if the primary is.
    """

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard = False

    def on_notice(self, _connection: object, message: asyncpg.PostgresLogMessage) -> None:
        """Take a notice of the server; called before whoever waits for the statement goes on."""
        if getattr(message, "server_source_function", None) == _CANCELLED_WAIT:
            self._heard = True

    def check(self) -> None:
        """Raise if a commit since the last look is not as safe as it seemed."""
        if self._heard:
            self._heard = False
            raise UnsureCommitError


class Wire(_Connection):
    """A connection that knows to which host it goes, and whose end is noticed."""

    __slots__ = ("host",)

    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self.host: Host | None = None
        _notice_silence(transport.get_extra_info("socket"))


async def reach(address: Address, first: Host | None, **options: Any) -> Wire:
    """Connect to the first host that can be used, beginning with `first`.

    One that is silent, refuses, starts, stops or takes no writes is passed over. One that answers anything
    else, such as that it is full or knows no such user, is the one that is meant: we do not look for another.
    """
    hosts: list[Host | None] = [*sorted(address.hosts, key=lambda host: host != first)] or [None]
    reasons: list[tuple[Host | None, Exception]] = []
    for host in hosts:
        where: dict[str, Any] = {} if host is None else {"host": host.name, "port": host.port}
        try:
            wire: Wire = await asyncpg.connect(
                address.url,
                connection_class=Wire,
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
