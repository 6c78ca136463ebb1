"""Answers to sends that the server takes from a connection without going through ASGI.

uvicorn makes a task, a cycle, an event and four messages for every request. A small send needs none of them:
it is taken once it has come whole, and the batcher calls back when it is decided (docs/decisions/0048).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tumira.api.envelope import Header

CLOSE: Final = (b"connection", b"close")

# Takes the headers and the body of a send, and answers it later; False if it must go through ASGI.
TakeSend = Callable[[Sequence[Header], bytes, Callable[[int, Sequence[Header], bytes], None]], bool]


class DirectCycle:
    """A send under way, with what uvicorn's protocol asks of its own request cycle."""

    __slots__ = ("_protocol", "disconnected", "keep_alive", "response_complete")

    # Nobody waits for it: the request came whole.
    message_event: Final = asyncio.Event()

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        parser = protocol.parser
        self.keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        self.disconnected = False
        self.response_complete = False

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Write an answer that has a Content-Length."""
        if self.response_complete or self.disconnected:
            return
        self.response_complete = True
        protocol = self._protocol
        defaults = protocol.server_state.default_headers
        lines = [*defaults, *headers]
        closes = CLOSE in defaults
        if not closes and not self.keep_alive:
            closes = True
            lines.append(CLOSE)
        head = b"\r\n".join(map(b": ".join, lines))
        transport: Any = protocol.transport
        transport.write_whole(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], head, body))
        if closes:
            transport.close()
        protocol.on_response_complete()
