"""A server that receives callbacks as our hook does, and the calls of a carrier's requests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import httpx

from tests.support.processes.service import NO_TLS
from tests.support.topups.servers import listening
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.values import (
    CallbackContent,
    CallbackRefused,
    CallbackRequest,
    HttpAnswer,
    HttpRequest,
)

WAIT_S: Final = 20


class Receiver:
    """Reads callbacks with a carrier; the path is as unguessable as a test needs."""

    def __init__(self) -> None:
        self.port = 0
        self.carrier: HttpCarrier | None = None
        self.read: list[CallbackContent | CallbackRefused] = []
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/carriers/token"

    def take(self, request: CallbackRequest) -> int:
        assert self.carrier is not None
        content = self.carrier.read_callback(request)
        with self._changed:
            self.read.append(content)
            self._changed.notify_all()
        return content.status

    def wait_for(self, count: int) -> list[CallbackContent | CallbackRefused]:
        """Wait until `count` callbacks came, and return them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.read) >= count, WAIT_S)
            return list(self.read)


@contextmanager
def run_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            assert path == "/hooks/carriers/token"
            request = CallbackRequest(
                method=self.command,
                public_url=receiver.url,
                query=query,
                headers={name.lower(): value for name, value in self.headers.items()},
                body=self.rfile.read(int(self.headers.get("content-length", "0"))),
                address=self.client_address[0],
            )
            self.send_response(receiver.take(request))
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_arguments: Any) -> None: ...

    with listening(Handler) as receiver.port:
        yield receiver


def call(request: HttpRequest) -> HttpAnswer | None:
    """Make a call; None if no whole answer came."""
    try:
        answer = httpx.request(
            request.method,
            request.url,
            headers=list(request.headers),
            content=request.body or None,
            follow_redirects=False,
            trust_env=False,
            verify=NO_TLS,
            timeout=10,
        )
    except httpx.HTTPError:
        return None
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return HttpAnswer(answer.status_code, headers, answer.content)


def answered(request: HttpRequest) -> HttpAnswer:
    answer = call(request)
    assert answer is not None
    return answer
