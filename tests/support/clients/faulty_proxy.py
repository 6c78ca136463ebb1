"""A proxy between a client and a service that cuts, delays, refuses and garbles answers."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import httpx

from tests.support.processes.service import NO_TLS

# Ends the wait for a client that never gives up.
WAIT_S: Final = 30


class Fault(StrEnum):
    PASS = "pass"
    CUT_BEFORE = "the connection is cut before the call"
    CUT_AFTER = "the call is carried out, and the connection is cut before the answer"
    CUT_MIDDLE = "the call is carried out, and half of the answer arrives"
    LIMITED = "429 with Retry-After"
    UNAVAILABLE = "503 of the service"
    GATEWAY_AFTER = "the call is carried out, and a gateway answers 504"
    SLOW = "the call is carried out, and the answer comes after the client gave up"
    DRIP = "the call is carried out, and the answer comes in drips without an end"
    GARBAGE = "the call is carried out, and the answer is not HTTP"
    NOT_JSON = "the call is carried out, and the answer is not JSON"
    OTHER_JSON = "the call is carried out, and the answer lacks its fields"
    REDIRECT = "a redirect to another host"
    PACED = "the answer says that no calls are left for a second"


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that arrived, and what was done to it."""

    fault: Fault
    method: str
    key: str | None
    at_s: float


class FaultyProxy(ThreadingHTTPServer):
    """Passes requests on; each takes the next fault, and those after the last pass."""

    daemon_threads = True

    def __init__(self, target: str, faults: Sequence[Fault]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.faults = iter(faults)
        self.seen: list[Seen] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def faulty_proxy(target: str, faults: Sequence[Fault]) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(target, faults)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def do_GET(self) -> None:
        # A client that gave up or was killed reads nothing.
        with suppress(ConnectionError, TimeoutError):
            self._handle()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""

    def _handle(self) -> None:
        fault = next(self.server.faults, Fault.PASS)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self.headers.get("Idempotency-Key")
        self.server.seen.append(Seen(fault, self.command, key, time.monotonic()))
        if fault is Fault.CUT_BEFORE:
            self.close_connection = True
        elif fault is Fault.LIMITED:
            self._refuse(429, "RATE_LIMITED", retry_after="1")
        elif fault is Fault.UNAVAILABLE:
            self._refuse(503, "SERVICE_UNAVAILABLE")
        elif fault is Fault.REDIRECT:
            self._answer(307, [("Location", "http://127.0.0.1:1/")], b"")
        else:
            self._pass_on(fault, body)

    def _pass_on(self, fault: Fault, body: bytes) -> None:
        answer = httpx.request(
            self.command,
            self.server.target + self.path,
            content=body,
            headers={
                name: value
                for name, value in self.headers.items()
                if name.lower() not in {"host", "connection", "content-length"}
            },
            trust_env=False,
            verify=NO_TLS,
            timeout=WAIT_S,
        )
        headers = [
            (name, value)
            for name, value in answer.headers.items()
            if name not in {"content-length", "connection", "transfer-encoding"}
        ]
        self.close_connection |= fault is not Fault.PASS
        if fault is Fault.SLOW:
            self.connection.settimeout(WAIT_S)
            # Nothing more comes from a client that waits, and the end from one that gave up.
            self.rfile.read(1)
        elif fault is Fault.DRIP:
            self._drip()
        elif fault is Fault.GARBAGE:
            self.wfile.write(b"\x16\x03\x01 garbage\r\n\r\n")
        elif fault is Fault.GATEWAY_AFTER:
            self._answer(504, [("Content-Type", "text/html")], b"<h1>Gateway Time-out</h1>")
        elif fault is Fault.NOT_JSON:
            self._answer(answer.status_code, [], b"<html>")
        elif fault is Fault.OTHER_JSON:
            self._answer(answer.status_code, [], b'{"hello": 1}')
        elif fault is Fault.CUT_MIDDLE:
            self._answer(answer.status_code, headers, answer.content, cut=True)
        elif fault is Fault.PACED:
            kept = [(name, value) for name, value in headers if name != "ratelimit"]
            self._answer(answer.status_code, [*kept, ("RateLimit", '"account";r=0;t=1')], answer.content)
        elif fault is Fault.PASS:
            self._answer(answer.status_code, headers, answer.content)

    def _drip(self) -> None:
        """Send a byte at a time, until the client gives up."""
        self.wfile.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            self.wfile.write(b" ")
            time.sleep(0.05)

    def _refuse(self, status: int, code: str, retry_after: str | None = None) -> None:
        error = {"code": code, "message": "Later.", "retryable": True, "details": [], "request_id": "req_1"}
        wait = [] if retry_after is None else [("Retry-After", retry_after)]
        self._answer(status, wait, json.dumps({"error": error}).encode())

    def _answer(
        self, status: int, headers: Sequence[tuple[str, str]], content: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
