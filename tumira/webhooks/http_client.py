"""How do we call a customer's server, so that it can neither lead us astray nor hold us up?

A client belongs to one endpoint, so no two customers ever share a connection. Whom it calls is vetted for
each connection: the name is resolved once, every answer must be public, the connection goes to one of those.

Bounds: a call takes at most `call_s` with all it does; the request is at most 64 KiB and leaves the memory
with its call; of the answer at most one read of the socket beyond 64 KiB is taken, and 1 KiB is kept.
"""

import asyncio
import functools
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from tumira.core.dns import Resolve, Resolver
from tumira.webhooks.addresses import is_public
from tumira.webhooks.http_connection import Connection, Outcome
from tumira.webhooks.http_response import Answer
from tumira.webhooks.url import Target

__all__ = [
    "DEFAULT_TIMING",
    "Answer",
    "CallFailedError",
    "NotPublicError",
    "Resolve",
    "Resolver",
    "Timing",
    "WebhookClient",
    "default_tls",
    "vet",
]

_REQUEST_BODY_MAX: Final = 64 * 1024
_IDLE_MAX: Final = 64
_ADDRESSES_MAX: Final = 8

# RFC 9110, section 5.1: a name is a token. What frames the request is ours to set.
_HEADER_NAME: Final = re.compile(
    r"(?!(?:host|connection|content-length|transfer-encoding)\Z)[a-z0-9!#$%&'*+.^_`|~-]{1,64}", re.IGNORECASE
)

_NOT_TRUSTED: Final = "The certificate of {host} comes from an authority that is not trusted."
_INCOMPLETE: Final = "The certificate of {host} comes without those that join it to a trusted authority."
_MISFIT: Final = "The certificate does not fit {host}."
# By OpenSSL's numbers for what is wrong with a certificate (x509_vfy.h).
_CERTIFICATE_WORDS: Final = {
    9: "The certificate of {host} is not valid yet.",
    10: "The certificate of {host} has expired.",
    18: "The certificate of {host} is self-signed.",
    19: _NOT_TRUSTED,
    20: _INCOMPLETE,
    21: _INCOMPLETE,
    62: _MISFIT,
    64: _MISFIT,
}


@dataclass(frozen=True, slots=True)
class Timing:
    """How long each wait may take."""

    # For all of a call, from looking for a connection to the last octet of the answer.
    call_s: float = 15
    # For the addresses of the name.
    resolve_s: float = 5
    # For a connection to one of the addresses, TLS included.
    connect_s: float = 5
    # How long a connection is kept that nobody uses.
    idle_s: float = 30
    # How long a connection is used at all: a name that has moved is noticed then.
    lifetime_s: float = 300
    # For the goodbye of TLS.
    part_s: float = 2


DEFAULT_TIMING: Final = Timing()


class CallFailedError(Exception):
    """No answer came; the words are for the customer, and name no address."""


class NotPublicError(CallFailedError):
    """The endpoint is where we do not call."""


def default_tls() -> ssl.SSLContext:
    """Return a context that trusts whom the system trusts."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


# To read all the authorities of a system takes some 20 ms, which an endpoint should not cost.
_shared_tls: Final = functools.cache(default_tls)


class WebhookClient:
    """Calls one endpoint, and keeps its connections from one call to the next."""

    def __init__(
        self,
        target: Target,
        *,
        allow_private: bool,
        resolve: Resolve,
        tls: ssl.SSLContext | None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        assert target.tls or allow_private
        self._timing = timing
        self._overdue_words = f"No complete answer within {timing.call_s:g} seconds."
        self._target = target
        self._allow_private = allow_private
        self._resolve = resolve
        self._tls = (tls or _shared_tls()) if target.tls else None
        assert self._tls is None or (self._tls.check_hostname and self._tls.verify_mode == ssl.CERT_REQUIRED)
        self._head = (
            f"POST {target.path} HTTP/1.1\r\n"
            f"host: {target.authority}\r\n"
            "user-agent: Tumira-Webhooks/1\r\n"
            "content-type: application/json\r\n"
            "accept: */*\r\n"
        )
        # The one used last is at the end, and is the first to be used again; the others may grow old and go.
        self._idle: list[Connection] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def post(self, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        """Call the endpoint; raises CallFailedError when no answer comes, whatever the reason."""
        request = self._write(headers, body)
        deadline = asyncio.get_running_loop().time() + self._timing.call_s
        outcome: Outcome = None
        if self._idle:
            outcome = await self._idle.pop().ask(request, deadline)
        # None: there was no connection, or only one that the other end had closed meanwhile. If it had read
        # the request before, it gets it twice, which is what every receiver must be ready for.
        if outcome is None:
            connection = await self._open(deadline)
            outcome = await connection.ask(request, deadline)
        if isinstance(outcome, Answer):
            return outcome
        raise CallFailedError(outcome)

    def close(self) -> None:
        """Drop the connections that are not in use, and each of the others after its call."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        while self._idle:
            self._idle.pop().end()

    def _write(self, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
        assert len(body) <= _REQUEST_BODY_MAX
        lines = [self._head]
        for name, value in headers:
            # A line end within a value would begin a header of its own.
            if not (_is_header_name(name) and value.isascii() and value.isprintable()):
                raise ValueError(f"the header {name!r} may not be sent, or not with such a value")
            lines.append(f"{name}: {value}\r\n")
        lines.append(f"content-length: {len(body)}\r\n\r\n")
        return "".join(lines).encode("ascii") + body

    # Connections.

    def put_back(self, connection: Connection) -> None:
        """Keep a connection for the next call, unless it is old or there are enough."""
        now = connection.idle_since
        is_old = now - connection.made_at >= self._timing.lifetime_s
        if self._closed or is_old or len(self._idle) >= _IDLE_MAX:
            connection.end()
            return
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_at(now + self._timing.idle_s, self._sweep)

    def forget(self, connection: Connection) -> None:
        """Take out a connection that has ended."""
        if connection in self._idle:
            self._idle.remove(connection)

    def _sweep(self) -> None:
        """Drop what was idle too long; those stand in front."""
        loop = asyncio.get_running_loop()
        self._sweeping = None
        idle_before = loop.time() - self._timing.idle_s
        while self._idle and self._idle[0].idle_since <= idle_before:
            self._idle.pop(0).end()
        if self._idle:
            self._sweeping = loop.call_at(self._idle[0].idle_since + self._timing.idle_s, self._sweep)

    async def _open(self, deadline: float) -> Connection:
        loop = asyncio.get_running_loop()
        addresses = await vet(
            self._target,
            allow_private=self._allow_private,
            resolve=self._resolve,
            resolve_s=min(deadline - loop.time(), self._timing.resolve_s),
        )
        host = self._target.host
        end = min(deadline, loop.time() + self._timing.connect_s)
        problem: OSError = TimeoutError()
        for index, address in enumerate(addresses):
            # Each gets its share of the time, so that one that swallows packets does not use up all of it.
            share = (end - loop.time()) / (len(addresses) - index)
            try:
                async with asyncio.timeout(share):
                    return await self._connect(address)
            except ssl.SSLError as error:
                raise CallFailedError(_tls_words(error, host)) from None
            except OSError as error:
                problem = error
        raise CallFailedError(_connect_words(problem, self._timing)) from None

    async def _connect(self, address: str) -> Connection:
        """Connect to an address as it stands; the name is for TLS alone."""
        assert _is_literal(address)
        loop = asyncio.get_running_loop()
        secured = self._tls is not None
        _, connection = await loop.create_connection(
            lambda: Connection(self, loop, self._overdue_words),
            address,
            self._target.port,
            ssl=self._tls,
            server_hostname=self._target.host if secured else None,
            ssl_handshake_timeout=self._timing.connect_s if secured else None,
            ssl_shutdown_timeout=self._timing.part_s if secured else None,
        )
        return connection


@functools.lru_cache(64)
def _is_header_name(name: str) -> bool:
    return _HEADER_NAME.fullmatch(name) is not None


async def vet(
    target: Target, *, allow_private: bool, resolve: Resolve, resolve_s: float = DEFAULT_TIMING.resolve_s
) -> Sequence[str]:
    """Return the addresses that may be called for a target; raises NotPublicError if any may not."""
    host = target.host
    addresses: Sequence[str]
    if _is_literal(host):
        addresses = (host,)
    else:
        try:
            async with asyncio.timeout(resolve_s):
                addresses = await resolve(host, target.port)
        except TimeoutError:
            raise CallFailedError(f"{host} did not resolve within {resolve_s:.2g} seconds.") from None
        except OSError:
            addresses = ()
    if not addresses:
        raise CallFailedError(f"{host} does not resolve to an address.")
    # One bad answer spoils all: a name that mixes them is made to be tried until the bad one is met.
    if not allow_private and not all(is_public(address) for address in addresses):
        verb = "is" if _is_literal(host) else "resolves to"
        raise NotPublicError(f"{host} {verb} an address that is not public.")
    return addresses[:_ADDRESSES_MAX]


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _tls_words(error: ssl.SSLError, host: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        words = _CERTIFICATE_WORDS.get(error.verify_code, "The certificate of {host} cannot be trusted.")
        return words.format(host=host)
    reason = (error.reason or "").replace("_", " ").lower()
    return f"The TLS handshake failed ({reason})." if reason else "The TLS handshake failed."


def _connect_words(error: OSError, timing: Timing) -> str:
    if isinstance(error, TimeoutError):
        return f"No connection within {timing.connect_s:g} seconds."
    if isinstance(error, ConnectionRefusedError):
        return "Connection refused."
    if isinstance(error, ConnectionError):
        return "The connection was closed before it was ready."
    return "The server cannot be reached."
