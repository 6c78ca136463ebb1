"""Reads the HTTP response of a customer's server, within bounds."""

from typing import Final

import httptools
from msgspec import Struct

_HEAD_MAX: Final = 16 * 1024
_BODY_MAX: Final = 16 * 1024
# Chunk frames and trailers included.
_RESPONSE_MAX: Final = 64 * 1024
_START_MAX: Final = 1024
_RETRY_AFTER_MAX: Final = 64
_INTERIM_MAX: Final = 10

# RFC 9110, section 15: lower numbers are interim responses, higher numbers are not assigned.
_STATUS_INTERIM: Final = 100
_STATUS_SWITCHING: Final = 101
_STATUS_FINAL: Final = 200
_STATUS_MAX: Final = 599
_SUCCESS: Final = range(200, 300)

CLOSED_EARLY: Final = "The connection was closed before an answer came."
_NOT_HTTP: Final = "The answer is not valid HTTP/1.1."
_HEAD_TOO_LARGE: Final = "The headers of the answer are too large."


class HttpResponse(Struct, frozen=True):
    """`start` is the beginning of the body."""

    status: int
    retry_after: str | None
    start: bytes


def is_success(status: int | None) -> bool:
    return status is not None and status in _SUCCESS


class ResponseReader:
    """Reads the responses of one connection; a string in place of a response says why there is none.

    `can_reuse` tells, once there is a response, whether the connection may carry another request. If so,
    `restart` comes before the next response.
    """

    def __init__(self) -> None:
        self.restart()
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def restart(self) -> None:
        self.received = 0
        self.can_reuse = False
        self._head_size = 0
        self._interim = 0
        # 0 until the headers of the final response are read.
        self._status = 0
        self._retry_after: str | None = None
        self._ends_with_connection = True
        self._body_size = 0
        self._start = b""
        self._is_complete = False
        self._problem: str | None = None

    def feed(self, data: bytes) -> HttpResponse | str | None:
        """Read more bytes; returns None while the response is incomplete."""
        assert self._parser is not None
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._note_not_http()
        return self._result()

    def finish(self) -> HttpResponse | str:
        """Return the result when the connection has ended."""
        self.can_reuse = False
        self.stop()
        if self._status and self._ends_with_connection:
            return self._response()
        if self.received:
            return "The connection was closed before the answer was complete."
        return CLOSED_EARLY

    def stop(self) -> None:
        """Drop the parser: it and the reader refer to each other, and would wait for garbage collection."""
        self._parser = None

    def _note_not_http(self) -> None:
        """Note bytes that are not HTTP; after a complete response they only end the connection."""
        self.can_reuse = False
        if not self._is_complete and self._problem is None:
            self._problem = _NOT_HTTP

    def _result(self) -> HttpResponse | str | None:
        if self._problem is not None:
            return self._problem
        if self._is_complete:
            return self._response()
        if not self._status:
            return _HEAD_TOO_LARGE if self.received > _HEAD_MAX else None
        if self._body_size > _BODY_MAX or self.received > _RESPONSE_MAX:
            # Only the status matters, so a long body is not read to its end.
            self.can_reuse = False
            return self._response()
        return None

    def _response(self) -> HttpResponse:
        return HttpResponse(self._status, self._retry_after, self._start)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Note bytes after the response, which no request asked for."""
        if self._is_complete:
            self.can_reuse = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Use the headers that matter; trailers are ignored."""
        if self._status:
            return
        self._head_size += len(name) + len(value)
        if self._head_size > _HEAD_MAX:
            self._problem = _HEAD_TOO_LARGE
        key = name.lower()
        if key == b"retry-after":
            self._retry_after = value[:_RETRY_AFTER_MAX].decode("latin-1")
        elif key == b"content-length" or (key == b"transfer-encoding" and b"chunked" in value.lower()):
            self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        """Check the status; an interim one is not the response yet."""
        if self._is_complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if _STATUS_FINAL <= status <= _STATUS_MAX:
            self._status = status
            self.can_reuse = self._parser.should_keep_alive()
            return
        self._interim += 1
        self._retry_after = None
        self._ends_with_connection = True
        if not _STATUS_INTERIM <= status < _STATUS_FINAL or status == _STATUS_SWITCHING:
            self._problem = _NOT_HTTP
        elif self._interim > _INTERIM_MAX:
            self._problem = "The server sent too many interim answers."

    def on_body(self, body: bytes) -> None:
        if self._is_complete:
            return
        if self._body_size < _START_MAX:
            self._start += body[: _START_MAX - self._body_size]
        self._body_size += len(body)

    def on_message_complete(self) -> None:
        """Note the end of the response; the end of an interim one does not count."""
        if self._status:
            self._is_complete = True
