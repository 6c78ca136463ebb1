"""Connections to carriers over HTTP/1.1, each for one call at a time, kept from one call to the next.

A general client takes some milliseconds of processor time for a call, and the calls of a window wait for each
other (docs/decisions/0053-one-port-for-carriers.md).
"""

import asyncio
import functools
import os
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from tumira.carriers.http.values import HttpAnswer, HttpRequest
from tumira.core import urls
from tumira.webhooks.http_client import default_tls

ANSWER_BYTES_MAX: Final = 256 * 1024
# Servers close an idle connection after five seconds or later. A call that meets such an end is in doubt.
IDLE_S: Final = 4.0

_HEAD_BYTES_MAX: Final = 64 * 1024
_STATUS_FINAL: Final = 200
_PORTS: Final = {"https": 443, "http": 80}

# Reading the authorities of the system takes some 20 ms, so all carriers share them.
_shared_tls: Final = functools.cache(default_tls)

_Origin = tuple[str, str, int]


class RequestNotSentError(Exception):
    """Nothing reached the carrier; the words contain neither the address nor the request."""


class AnswerLostError(Exception):
    """No usable answer came, and the carrier may have acted; as above, the words repeat nothing."""


class _AnswerReader:
    """Reads one answer after the other; called by the parser."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.restart()

    def restart(self) -> None:
        self.status = 0
        self.is_complete = False
        self.is_too_long = False
        self.can_reuse = False
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self._head_bytes = 0

    @property
    def answer(self) -> HttpAnswer:
        return HttpAnswer(self.status, self.headers, bytes(self.body))

    @property
    def ends_with_connection(self) -> bool:
        """Tell whether the end of the connection is the end of the body."""
        return bool(self.status) and not {"content-length", "transfer-encoding"} & self.headers.keys()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        self.is_too_long |= self._head_bytes > _HEAD_BYTES_MAX
        # Not the trailers, which come after the body.
        if not self.status and not self.is_too_long:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= _STATUS_FINAL:
            self.status = status
            self.can_reuse = self.parser.should_keep_alive()
        else:
            self.headers = {}

    def on_body(self, body: bytes) -> None:
        self.body += body
        self.is_too_long |= len(self.body) > ANSWER_BYTES_MAX

    def on_message_complete(self) -> None:
        self.is_complete = bool(self.status)


class _CarrierConnection(asyncio.Protocol):
    def __init__(self, idle: "list[_CarrierConnection]") -> None:
        self._idle = idle
        self._reader = _AnswerReader()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._loop = asyncio.get_running_loop()
        self.idle_since = 0.0

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def begin(self, request: bytes) -> "asyncio.Future[HttpAnswer]":
        assert self._transport is not None
        self._reader.restart()
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return self._answer

    def abort(self) -> None:
        if self in self._idle:
            self._idle.remove(self)
        self._answer = None
        if self._transport is not None:
            self._transport.abort()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if self._answer is None:
            # No request was sent, so these octets must not be read as the answer to the next one.
            self.abort()
            return
        try:
            reader.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not reader.is_complete:
                self._lose("the answer is no HTTP")
                return
        if reader.is_too_long:
            self._lose("the answer was too long")
        elif reader.is_complete:
            self._conclude()

    def eof_received(self) -> None:
        """Do not use the connection again; returning None closes it."""
        if self in self._idle:
            self._idle.remove(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        if self._answer is None:
            return
        if exc is None and self._reader.ends_with_connection:
            self._conclude()
        else:
            self._lose("the connection was closed before the answer was complete")

    def _conclude(self) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        assert self._transport is not None
        is_free = not self._transport.is_closing() and not self._transport.get_write_buffer_size()
        if is_free and self._reader.is_complete and self._reader.can_reuse:
            self.idle_since = self._loop.time()
            self._idle.append(self)
        else:
            self._transport.close()
        if not answer.done():
            answer.set_result(self._reader.answer)

    def _lose(self, why: str) -> None:
        answer = self._answer
        self.abort()
        if answer is not None and not answer.done():
            answer.set_exception(AnswerLostError(why))


class CarrierConnections:
    """The connections of one carrier; those that are idle are used again, the last one first."""

    def __init__(self, connect_s: float, answer_s: float) -> None:
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._idle: dict[_Origin, list[_CarrierConnection]] = {}
        self._loop = asyncio.get_running_loop()

    async def send(self, request: HttpRequest) -> HttpAnswer:
        """Make a call; raises RequestNotSentError or AnswerLostError."""
        parts = urlsplit(request.url)
        assert parts.hostname is not None
        origin = (parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        octets = _write(request, target, urls.write_authority(parts.hostname, parts.port))
        connection = self._take(origin) or await self._open(origin)
        answer = connection.begin(octets)
        try:
            async with asyncio.timeout(self._answer_s):
                return await answer
        except TimeoutError:
            raise AnswerLostError("no answer came in time") from None
        finally:
            if not answer.done() or answer.cancelled():
                connection.abort()

    async def close(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().abort()

    def _take(self, origin: _Origin) -> _CarrierConnection | None:
        idle = self._idle.setdefault(origin, [])
        fresh_since = self._loop.time() - IDLE_S
        while idle and idle[0].idle_since < fresh_since:
            idle[0].abort()
        while idle:
            connection = idle.pop()
            if not connection.is_closing:
                return connection
        return None

    async def _open(self, origin: _Origin) -> _CarrierConnection:
        scheme, host, port = origin
        idle = self._idle.setdefault(origin, [])
        try:
            async with asyncio.timeout(self._connect_s):
                _, connection = await self._loop.create_connection(
                    lambda: _CarrierConnection(idle),
                    host,
                    port,
                    ssl=_shared_tls() if scheme == "https" else None,
                )
        except OSError as error:
            raise RequestNotSentError(f"not reached ({connect_problem(error)})") from None
        if connection.is_closing:
            raise RequestNotSentError("not reached (closed at once)")
        return connection


def connect_problem(error: OSError) -> str:
    """Describe why there is no connection, without the address."""
    of_tls = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    if of_tls:
        return str(of_tls)
    is_of_system = error.errno is not None and error.errno > 0
    return (os.strerror(error.errno or 0) if is_of_system else error.strerror) or type(error).__name__


def _write(request: HttpRequest, target: str, authority: str) -> bytes:
    lines = [
        f"{request.method} {target} HTTP/1.1",
        f"host: {authority}",
        "user-agent: Tumira",
        "accept-encoding: identity",
        *(f"{name}: {value}" for name, value in request.headers),
    ]
    if request.body or request.method != "GET":
        lines.append(f"content-length: {len(request.body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise RequestNotSentError("a setting has a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body
