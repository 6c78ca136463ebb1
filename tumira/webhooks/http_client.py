"""The HTTP client for customers' servers, safe against servers that redirect it inside or keep it waiting.

A client belongs to one endpoint, so no two customers share a connection. The address is checked for each
connection: the name is resolved once, every address must be public, and the connection goes to one of them.

Bounds: a call takes at most `call_s`; the request is at most 64 KiB and leaves the memory with its call; of
the response at most one read of the socket beyond 64 KiB is read, and 1 KiB is kept.
"""

import asyncio
import functools
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from msgspec import Struct

from tumira.core.dns import Resolve
from tumira.core.urls import is_ip_address
from tumira.webhooks.addresses import is_public
from tumira.webhooks.http_response import CLOSED_EARLY, HttpResponse, ResponseReader
from tumira.webhooks.url import Target

# The result of a call: a response, or the words about its failure.
Outcome = HttpResponse | str
OnOutcome = Callable[[Outcome], None]

_REQUEST_BODY_MAX: Final = 64 * 1024
_IDLE_MAX: Final = 64
_ADDRESSES_MAX: Final = 8

_NOT_TRUSTED: Final = "The certificate of {host} comes from an authority that is not trusted."
_INCOMPLETE: Final = "The certificate of {host} comes without those that join it to a trusted authority."
_MISFIT: Final = "The certificate does not fit {host}."
# By OpenSSL's numbers for problems with a certificate (x509_vfy.h).
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
class Timeouts:
    # A whole call, from the connection to the last byte of the response.
    call_s: float = 15
    # Resolving the name.
    resolve_s: float = 5
    # A connection to one of the addresses, TLS included.
    connect_s: float = 5
    # How long an unused connection is kept.
    idle_s: float = 30
    # How long a connection is used at all: after that the name is resolved again.
    lifetime_s: float = 300
    # Closing TLS.
    close_s: float = 2


DEFAULT_TIMEOUTS: Final = Timeouts()


class CallFailedError(Exception):
    """There was no response; the words are for the customer, and name no address."""


class NotPublicError(CallFailedError):
    """The name leads to an address that is not public."""


def default_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


# Reading the authorities of the system takes some 20 ms, which is too much for each endpoint.
_shared_tls: Final = functools.cache(default_tls)


class _Call(Struct):
    """A request that waits for its response."""

    request: bytes
    deadline: float
    done: OnOutcome


class _Connection(asyncio.Protocol):
    """One connection, which carries one call at a time."""

    def __init__(self, client: "WebhookClient", loop: asyncio.AbstractEventLoop) -> None:
        self.made_at = self.idle_since = loop.time()
        self._client = client
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._is_reused = False
        # Set during a call, and only then.
        self._call: _Call | None = None
        self._reader = ResponseReader()

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def begin(self, call: _Call) -> None:
        assert self._call is None
        assert self._transport is not None
        self._call = call
        self._transport.write(call.request)

    def end(self, *, at_once: bool = False) -> None:
        transport = self._transport
        assert transport is not None
        # Bytes that the other end does not read would keep the connection open for as long as it likes.
        if at_once or transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()

    def conclude(self, outcome: Outcome | None) -> None:
        """End the call, and keep the connection if it can carry another one.

        Without an outcome the other end had closed a kept connection, and the call gets a new one.
        """
        call, transport = self._call, self._transport
        if call is None or transport is None:
            return
        self._call = None
        self._client.forget_call(self)
        # A response may come before the request was read; the rest of the request would still be on its way.
        is_free = not transport.is_closing() and not transport.get_write_buffer_size()
        if isinstance(outcome, HttpResponse) and self._reader.can_reuse and is_free:
            self._is_reused = True
            self.idle_since = self._loop.time()
            self._reader.restart()
            self._client.put_back(self)
        else:
            self._reader.stop()
            self.end(at_once=not isinstance(outcome, HttpResponse))
        if outcome is None:
            self._client.call_anew(call)
        else:
            call.done(outcome)

    def abort(self) -> None:
        """End the connection; the caller is not told."""
        self._call = None
        self.end(at_once=True)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._call is None:
            # No request was sent, so these bytes must not be read as the response to the next one.
            self._client.forget(self)
            self.end(at_once=True)
            return
        outcome = self._reader.feed(data)
        if outcome is not None:
            self.conclude(outcome)

    def eof_received(self) -> None:
        """Do not use the connection again; returning None closes it."""
        self._client.forget(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter.
        self._client.forget(self)
        is_stale = self._is_reused and not self._reader.received
        outcome = self._reader.finish()
        self.conclude(None if is_stale else outcome)


class WebhookClient:
    """Calls one endpoint, and keeps its connections from one call to the next."""

    def __init__(
        self,
        target: Target,
        *,
        allow_private: bool,
        resolve: Resolve,
        tls: ssl.SSLContext | None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        assert target.tls or allow_private
        self._timeouts = timeouts
        self._timeout_words = f"No complete answer within {timeouts.call_s:g} seconds."
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
        self._loop = asyncio.get_running_loop()
        # The connection used last is at the end, and is used first again; the others may grow old.
        self._idle: list[_Connection] = []
        self._sweeping: asyncio.TimerHandle | None = None
        # The connections with a call, and the deadline of each. One timer is set to the earliest of them: a
        # timer for each call costs more than looking through a few connections now and then.
        self._calls: dict[_Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    def post(self, event_id: str, at_s: int, signature: str, body: bytes, done: OnOutcome) -> None:
        """Post an event; `done` gets the response, or why there is none, after this has returned."""
        assert len(body) <= _REQUEST_BODY_MAX
        head = (
            f"{self._head}webhook-id: {event_id}\r\nwebhook-timestamp: {at_s}\r\n"
            f"webhook-signature: {signature}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        call = _Call(head.encode("ascii") + body, self._loop.time() + self._timeouts.call_s, done)
        connection = self._idle.pop() if self._idle else None
        if connection is None or connection.is_closing:
            self.call_anew(call)
        else:
            self._begin(connection, call)

    def close(self) -> None:
        """Close the idle connections now, and each of the others after its call."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        while self._idle:
            self._idle.pop().end()

    def abort(self) -> None:
        """Close all connections now; no outcome is reported any more."""
        self.close()
        for task in self._opening:
            task.cancel()
        while self._calls:
            self._calls.popitem()[0].abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Called by connections.

    def call_anew(self, call: _Call) -> None:
        """Make a call on a new connection.

        There was none, or the other end had closed it meanwhile. If the other end had read the request
        before, it gets it twice, and every receiver must be ready for that.
        """
        task = self._loop.create_task(self._call_on_new(call))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def forget_call(self, connection: _Connection) -> None:
        self._calls.pop(connection, None)

    def put_back(self, connection: _Connection) -> None:
        """Keep a connection for the next call, unless it is old or there are enough."""
        now = connection.idle_since
        is_old = now - connection.made_at >= self._timeouts.lifetime_s
        if self._closed or is_old or len(self._idle) >= _IDLE_MAX:
            connection.end()
            return
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = self._loop.call_at(now + self._timeouts.idle_s, self._sweep)

    def forget(self, connection: _Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    async def _call_on_new(self, call: _Call) -> None:
        try:
            connection = await self._open(call.deadline)
        except CallFailedError as error:
            call.done(str(error))
        else:
            if connection.is_closing:
                call.done(CLOSED_EARLY)
            else:
                self._begin(connection, call)

    def _begin(self, connection: _Connection, call: _Call) -> None:
        self._calls[connection] = call.deadline
        if self._timer is None or call.deadline < self._timer_at:
            self._set_timer(call.deadline)
        connection.begin(call)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._end_overdue)

    def _end_overdue(self) -> None:
        self._timer = None
        now = self._loop.time()
        for connection in [one for one, deadline in self._calls.items() if deadline <= now]:
            connection.conclude(self._timeout_words)
        if self._calls:
            self._set_timer(min(self._calls.values()))

    def _sweep(self) -> None:
        """Close the connections that were idle too long, which are first in the list."""
        self._sweeping = None
        idle_before = self._loop.time() - self._timeouts.idle_s
        while self._idle and self._idle[0].idle_since <= idle_before:
            self._idle.pop(0).end()
        if self._idle:
            self._sweeping = self._loop.call_at(self._idle[0].idle_since + self._timeouts.idle_s, self._sweep)

    async def _open(self, deadline: float) -> _Connection:
        loop = asyncio.get_running_loop()
        addresses = await resolve_public(
            self._target,
            allow_private=self._allow_private,
            resolve=self._resolve,
            resolve_s=min(deadline - loop.time(), self._timeouts.resolve_s),
        )
        host = self._target.host
        end = min(deadline, loop.time() + self._timeouts.connect_s)
        problem: OSError = TimeoutError()
        for index, address in enumerate(addresses):
            # Each gets its share of the time, so that an address that drops packets does not use up all.
            share = (end - loop.time()) / (len(addresses) - index)
            try:
                async with asyncio.timeout(share):
                    return await self._connect(address)
            except ssl.SSLError as error:
                raise CallFailedError(_tls_words(error, host)) from None
            except OSError as error:
                problem = error
        raise CallFailedError(_connect_words(problem, self._timeouts)) from None

    async def _connect(self, address: str) -> _Connection:
        """Connect to this address; the name is for TLS alone."""
        assert is_ip_address(address)
        loop = asyncio.get_running_loop()
        secured = self._tls is not None
        _, connection = await loop.create_connection(
            lambda: _Connection(self, loop),
            address,
            self._target.port,
            ssl=self._tls,
            server_hostname=self._target.host if secured else None,
            ssl_handshake_timeout=self._timeouts.connect_s if secured else None,
            ssl_shutdown_timeout=self._timeouts.close_s if secured else None,
        )
        return connection


async def resolve_public(
    target: Target, *, allow_private: bool, resolve: Resolve, resolve_s: float = DEFAULT_TIMEOUTS.resolve_s
) -> Sequence[str]:
    """Return the addresses of a target; raises NotPublicError if any of them is not public."""
    host = target.host
    addresses: Sequence[str]
    if is_ip_address(host):
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
    # One private address refuses the name: a name that mixes them waits for a call to reach the private one.
    if not allow_private and not all(is_public(address) for address in addresses):
        verb = "is" if is_ip_address(host) else "resolves to"
        raise NotPublicError(f"{host} {verb} an address that is not public.")
    return addresses[:_ADDRESSES_MAX]


def _tls_words(error: ssl.SSLError, host: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        words = _CERTIFICATE_WORDS.get(error.verify_code, "The certificate of {host} cannot be trusted.")
        return words.format(host=host)
    reason = (error.reason or "").replace("_", " ").lower()
    return f"The TLS handshake failed ({reason})." if reason else "The TLS handshake failed."


def _connect_words(error: OSError, timeouts: Timeouts) -> str:
    if isinstance(error, TimeoutError):
        return f"No connection within {timeouts.connect_s:g} seconds."
    if isinstance(error, ConnectionRefusedError):
        return "Connection refused."
    if isinstance(error, ConnectionError):
        return "The connection was closed before it was ready."
    return "The server cannot be reached."
