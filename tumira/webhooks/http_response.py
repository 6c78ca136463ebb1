"""What did a server answer to one request, however it was cut into pieces and whatever else it sent?"""

from typing import Final

import httptools
from msgspec import Struct

_HEAD_MAX: Final = 16 * 1024
_BODY_MAX: Final = 16 * 1024
# With the frames of chunks and their trailers.
_ANSWER_MAX: Final = 64 * 1024
_START_MAX: Final = 1024
_RETRY_AFTER_MAX: Final = 64
_INTERIM_MAX: Final = 10

# RFC 9110, section 15.2 and 15.6: below are interim answers, above is nothing.
_STATUS_INTERIM: Final = 100
_STATUS_SWITCHING: Final = 101
_STATUS_FINAL: Final = 200
_STATUS_MAX: Final = 599

_NOT_HTTP: Final = "The answer is not valid HTTP/1.1."
_HEAD_TOO_LARGE: Final = "The headers of the answer are too large."


class Answer(Struct, frozen=True):
    """What the customer's server said; `start` is the beginning of its body."""

    status: int
    retry_after: str | None
    start: bytes


class AnswerReader:
    """Reads the answer to one request; a string in its place says in words why there is none.

    `can_go_on` tells, once there is an answer, whether the connection may carry another request.
    """

    __slots__ = (
        "_body_size",
        "_ends_with_connection",
        "_head_size",
        "_interim",
        "_is_complete",
        "_parser",
        "_problem",
        "_retry_after",
        "_start",
        "_status",
        "can_go_on",
        "received",
    )

    def __init__(self) -> None:
        self.received = 0
        self.can_go_on = False
        self._head_size = 0
        self._interim = 0
        # 0 until the headers of the answer proper are read.
        self._status = 0
        self._retry_after: str | None = None
        self._ends_with_connection = True
        self._body_size = 0
        self._start = b""
        self._is_complete = False
        self._problem: str | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> Answer | str | None:
        """Take what came; returns None while there must come more."""
        assert self._parser is not None
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._spoil()
        outcome = self._judge()
        if outcome is not None:
            self.stop()
        return outcome

    def finish(self) -> Answer | str:
        """Say what it comes to when the connection has ended."""
        self.can_go_on = False
        self.stop()
        if self._status and self._ends_with_connection:
            return self._answer()
        if self.received:
            return "The connection was closed before the answer was complete."
        return "The connection was closed before an answer came."

    def stop(self) -> None:
        """Let go of the parser: the two refer to each other, and would wait for the garbage collector."""
        self._parser = None

    def _spoil(self) -> None:
        """Note that what came is not HTTP; behind a complete answer it only ends the connection."""
        self.can_go_on = False
        if not self._is_complete and self._problem is None:
            self._problem = _NOT_HTTP

    def _judge(self) -> Answer | str | None:
        if self._problem is not None:
            return self._problem
        if self._is_complete:
            return self._answer()
        if not self._status:
            return _HEAD_TOO_LARGE if self.received > _HEAD_MAX else None
        if self._body_size > _BODY_MAX or self.received > _ANSWER_MAX:
            # The status is all that matters, so a long body is not waited for.
            self.can_go_on = False
            return self._answer()
        return None

    def _answer(self) -> Answer:
        return Answer(self._status, self._retry_after, self._start)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Note octets behind the answer, for which nobody asked."""
        if self._is_complete:
            self.can_go_on = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take what is of use of a header; those that trail a body are not."""
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
        """Judge the status; an interim one is not the answer yet."""
        if self._is_complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if _STATUS_FINAL <= status <= _STATUS_MAX:
            self._status = status
            self.can_go_on = self._parser.should_keep_alive()
            return
        self._interim += 1
        self._retry_after = None
        self._ends_with_connection = True
        if not _STATUS_INTERIM <= status < _STATUS_FINAL or status == _STATUS_SWITCHING:
            self._problem = _NOT_HTTP
        elif self._interim > _INTERIM_MAX:
            self._problem = "The server sent too many interim answers."

    def on_body(self, body: bytes) -> None:
        """Keep the beginning of the body and count the rest."""
        if self._is_complete:
            return
        if self._body_size < _START_MAX:
            self._start += body[: _START_MAX - self._body_size]
        self._body_size += len(body)

    def on_message_complete(self) -> None:
        """Note that the answer is whole, unless it is an interim one."""
        if self._status:
            self._is_complete = True
