"""The HTTP server's side of one connection, with limits on what a client may send and how long it may take.

uvicorn bounds neither the head of a request nor the time that it takes to arrive. The limits are checked
where the octets come in: sizes with every read, times by the server once a second (`check_time`), so that a
request needs no timer of its own. Decision 0031 says why a proxy's limits are not enough.
"""

import asyncio
import resource
import time
from typing import Any, Final, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tumira.api.app import SEND_PATH
from tumira.api.envelope import JSON, NO_SNIFFING, refuse
from tumira.core import metrics
from tumira.core.errors import (
    HeadersTooLarge,
    MalformedRequest,
    PayloadTooLarge,
    Refusal,
    RequestTimeout,
    ServiceUnavailable,
)
from tumira.core.ids import new_request_id
from tumira.direct_cycle import CLOSE, DirectCycle, TakeSend

# The request line with all headers.
HEAD_OCTETS_MAX: Final = 32 * 1024
HEADERS_MAX: Final = 100
# From the first octet of a request to the end of its head.
HEAD_S: Final = 20.0
# From there to the end of its body: so long in all, and a second more for every kilobyte of it that has come.
BODY_S: Final = 60.0
BODY_RATE: Final = 1_000
BODY_LONGEST_S: Final = 600.0
# With all that frames it. Every reader of a body stops long before; what follows is read and dropped, because
# a client that is cut off while it sends does not see our answer.
BODY_OCTETS_MAX: Final = 64 * 1024 * 1024
# Longer than balancers keep a connection that nobody uses (nginx: 60 s), so that it is they who close it. One
# that we closed just as they sent a request on it would be a call that failed.
KEEP_ALIVE_S: Final = 75
# A client that reads nothing of its answer for so long is cut off.
UNREAD_S: Final = 60
# How long a client that was refused may take to read why, and how much it may still send meanwhile.
LINGER_S: Final = 2.0
LINGER_OCTETS_MAX: Final = 4 * 1024 * 1024
# Requests that wait on one connection for the answers to earlier ones.
PIPELINED_MAX: Final = 32
CONNECTIONS_MAX: Final = 8_192
# Files and connections that are not a client's.
OWN_FILES: Final = 256
# With more than this share of all connections in use, those that do nothing make room.
CROWDED: Final = 0.75
CROWDED_S: Final = 5.0

# A read may hold the end of one request and the head of the next. The head is counted in pieces of this size,
# so that what came before it is not taken for a part of it.
_PIECE: Final = 16 * 1024
# A name, a colon, a space, a value and the end of the line.
_HEADER_FRAME: Final = 4

_SEND: Final = SEND_PATH.encode()


def connections_max() -> int:
    """Return how many connections this process takes; it may open as many files as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + OWN_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return CONNECTIONS_MAX if allowed == wanted else max(allowed - OWN_FILES, allowed // 2)


class _Together:
    """A transport that sends all that is written in one turn of the event loop together.

    uvicorn writes the head of an answer and then its body; as two packets they cost us a call to the kernel
    and the client another read.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._written: list[bytes] = []
        self.is_closing = transport.is_closing
        self._soon = asyncio.get_running_loop().call_soon

    def write(self, data: bytes) -> None:
        if not self._written:
            self._soon(self._flush)
        self._written.append(data)

    def write_whole(self, answer: bytes) -> None:
        self._flush()
        self._transport.write(answer)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def _flush(self) -> None:
        if self._written:
            together = b"".join(self._written)
            self._written.clear()
            self._transport.write(together)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


# What these do is done with every request; to call them by name takes half the time of `super()`.
_begin_message: Final = HttpToolsProtocol.on_message_begin
_complete_headers: Final = HttpToolsProtocol.on_headers_complete
_take_body: Final = HttpToolsProtocol.on_body
_complete_message: Final = HttpToolsProtocol.on_message_complete


class _RefusedError(Exception):
    """Stops the parser; the protocol knows why."""


class HttpProtocol(HttpToolsProtocol):
    # Of this process; the server sets it when it starts.
    connections_max = CONNECTIONS_MAX

    def __init__(self, config: uvicorn.Config, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self._take_send: TakeSend = cast("Any", config.app).take_send
        # The body of a send that is taken without ASGI once it has come whole.
        self._held: bytes | None = None
        # Where the request is that arrives: in its head, behind its head, or there is none.
        self._in_head = False
        self._in_body = False
        # Since when it is there, or since when nothing arrives.
        self._since = self.loop.time()
        # What came of the head or of the rest, in whole reads; and what came since the last octet of a body.
        self._octets = 0
        self._framing = 0
        self._hosts = 0
        # Why the parser was stopped.
        self._refusal: Refusal | None = None
        # True when nothing more is read.
        self._is_deaf = False
        # How much of our answers the client had not read when it was last looked at, and since when.
        self._unread = 0
        self._unread_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        together = _Together(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.Transport", together))
        if len(self.connections) > self.connections_max:
            self._is_deaf = True
            self._write(ServiceUnavailable(retry_after_s=1))
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        size = len(data)
        if size > _PIECE:
            whole = memoryview(data)
            for start in range(0, size, _PIECE):
                self.data_received(bytes(whole[start : start + _PIECE]))
            return
        self._octets += size
        self._framing += size
        if self._is_deaf:
            if self._octets > LINGER_OCTETS_MAX:
                self.transport.abort()
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # There is nothing to change to: the request is answered as one that did not ask for it.
            self._end_after_answers()
        except httptools.HttpParserError:
            self._refuse(self._refusal or MalformedRequest("The request is not valid HTTP/1.1."))
        else:
            if self._in_head:
                if self._octets > HEAD_OCTETS_MAX:
                    self._refuse(HeadersTooLarge())
            elif self._in_body:
                self._check_body()

    def _check_body(self) -> None:
        if self._framing > HEAD_OCTETS_MAX:
            self._refuse(MalformedRequest("The body has chunk extensions or trailers that are too long."))
        elif self._octets > BODY_OCTETS_MAX:
            self._refuse(PayloadTooLarge())

    def on_message_begin(self) -> None:
        _begin_message(self)
        self._in_head = True
        self._since = self.loop.time()
        self._octets = self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers are refused: nothing may be added to a request that is being answered."""
        if not self._in_head:
            return
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the answer to a request if its head is valid."""
        if (
            # A head that came in one piece is small enough.
            self._octets
            or len(self.headers) > HEADERS_MAX
            or self._hosts != 1
            or self.url[:1] != b"/"
            or b"#" in self.url
            or self.pipeline
        ):
            self._look_at_head()
        self._in_head = False
        self._in_body = True
        self._octets = self._framing = 0
        if self.url == _SEND and self._is_direct():
            self._held = b""
        else:
            _complete_headers(self)

    def _is_direct(self) -> bool:
        """Tell whether a send can be answered without ASGI, if it is small."""
        return (
            self.parser.get_method() == b"POST"
            and self._is_answered()
            and not self.expect_100_continue
            and not self.flow.write_paused
            and not self.parser.should_upgrade()
        )

    def _release(self, held: bytes) -> None:
        """Give a request to the application through ASGI, with what has come of its body."""
        self._held = None
        _complete_headers(self)
        _take_body(self, held)

    def _look_at_head(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            # Those that wait are answered, and the client sends the rest again on another connection.
            raise _RefusedError
        self._refusal = self._check_head()
        if self._refusal is not None:
            raise _RefusedError

    def _check_head(self) -> Refusal | None:
        if len(self.headers) > HEADERS_MAX or self._head_octets() > HEAD_OCTETS_MAX:
            return HeadersTooLarge()
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() != "1.0"):
            return MalformedRequest("The request must have one Host header.")
        if not self.url.startswith(b"/") or b"#" in self.url:
            return self._read_target()
        return None

    def _head_octets(self) -> int:
        fields = sum(len(name) + len(value) + _HEADER_FRAME for name, value in self.headers)
        return len(self.url) + fields

    def _read_target(self) -> Refusal | None:
        """Take the path from an absolute URL, which proxies send; `*` asks for the server's options."""
        if self.url == b"*" and self.parser.get_method() == b"OPTIONS":
            return None
        refusal = MalformedRequest("The request must name a path.")
        try:
            target = httptools.parse_url(self.url)
        except httptools.HttpParserInvalidURLError:
            return refusal
        if target.schema not in {b"http", b"https"} or b"#" in self.url:
            return refusal
        self.url = (target.path or b"/") + (b"" if target.query is None else b"?" + target.query)
        return None

    def on_body(self, body: bytes) -> None:
        self._framing = 0
        if self._held is None:
            _take_body(self, body)
        else:
            self._held += body
            if len(self._held) > _PIECE:
                self._release(self._held)

    def on_message_complete(self) -> None:
        """End a request; its answer may be under way or given."""
        self._in_body = False
        self._since = self.loop.time()
        if self._held is not None:
            held, earlier, cycle = self._held, self.cycle, DirectCycle(self)
            self.cycle = cast("Any", cycle)
            if self._take_send(self.headers, held, cycle.answer):
                self._held = None
                return
            self.cycle = earlier
            self._release(held)
        _complete_message(self)

    def on_response_complete(self) -> None:
        """End an answer, and start the next one in the pipeline; `check_time` closes idle connections."""
        self.server_state.total_requests += 1
        if not self._in_head:
            self._since = self.loop.time()
            self._octets = 0
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def shutdown(self) -> None:
        """Close the connection after the answer to the request that has come or is coming."""
        if self._held is not None:
            self._release(self._held)
        super().shutdown()

    def check_time(self, now: float, *, crowded: bool) -> None:
        """Disconnect a client that takes too long; called once a second."""
        waited = now - self._since
        if self._is_deaf:
            # One that was refused has its own end, and otherwise there are answers under way.
            pass
        elif self._in_head:
            if waited > (CROWDED_S if crowded else HEAD_S):
                self._refuse(RequestTimeout())
        elif self._in_body:
            allowed = min(BODY_S + self._octets / BODY_RATE, BODY_LONGEST_S)
            # While we do not read, it is not the client that is slow.
            if waited > allowed and not self.flow.read_paused:
                self._refuse(RequestTimeout())
        elif self._is_answered() and waited > (CROWDED_S if crowded else KEEP_ALIVE_S):
            self.transport.close()
        self._check_unread(now)

    def _check_unread(self, now: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread:
            self._unread = unread
            self._unread_since = now
        elif unread and now - self._unread_since > UNREAD_S:
            self.transport.abort()

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, refusal: Refusal) -> None:
        """Answer the current request with a refusal, if it is its turn, and read nothing more."""
        self._is_deaf = True
        self._octets = 0
        if self._in_body and self._held is None:
            # It has been given to the application, which shall not wait for the rest.
            if self.pipeline or self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        elif not self._is_answered():
            self._end_after_answers()
            return
        self._write(refusal)
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def _end_after_answers(self) -> None:
        self._is_deaf = True
        self._octets = 0
        if self._is_answered():
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _write(self, refusal: Refusal) -> None:
        metrics.PAGES.labels("server", refusal.status).inc()
        identifier = new_request_id(time.time_ns() // 1_000_000)
        if getattr(self, "url", b"").startswith(b"/api/"):
            answer = refuse(refusal, identifier)
            kind, body, headers = JSON, answer.body, answer.headers
        else:
            kind, body, headers = b"text/plain; charset=utf-8", refusal.message.encode(), ()
        lines = [
            *(header for header in self.server_state.default_headers if header[0] != b"connection"),
            (b"content-type", kind),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            NO_SNIFFING,
            (b"x-request-id", identifier.encode()),
            *headers,
            CLOSE,
        ]
        head = b"".join(b"%s: %s\r\n" % line for line in lines)
        self.transport.write(STATUS_LINE[refusal.status] + head + b"\r\n" + body)
