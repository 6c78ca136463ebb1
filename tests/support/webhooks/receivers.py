"""A customer's server for webhooks that notes what it is sent and answers as a test says.

    async with run_receiver(first(2, answer(503), ok)) as receiver:
        ...  # deliver to receiver.url
        await receiver.wait(requests=3)
        assert receiver.requests[0].headers["webhook-id"] == "evt_1"

What it answers may be changed at any time: `receiver.respond = hang`. It reads octets, not our code.
"""

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

WAIT_S = 20
_BODY_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came; names of headers are in lower case, `at` is in Unix seconds."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float
    connection: int


class Line:
    """The receiver's end of a connection."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self._reader = reader
        self._writer = writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def hear_end(self) -> None:
        """Wait until the other end has closed the connection, and say nothing meanwhile."""
        while await self._reader.read(65536):
            pass

    async def hear_request(self) -> Request | None:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, path, version = first.split(" ")
        assert version == "HTTP/1.1"
        pairs = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]
        headers = dict(pairs)
        assert len(headers) == len(pairs), "a header came twice"
        length = int(headers["content-length"])
        assert length <= _BODY_MAX
        body = await self._reader.readexactly(length)
        return Request(method, path, headers, body, time.time(), self.number)

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        self._writer.transport.abort()


Responder = Callable[[Request, Line], Awaitable[None]]


def write_answer(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def answer(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Responder:
    return say(write_answer(status, headers, body))


def say(data: bytes) -> Responder:
    async def respond(_: Request, line: Line) -> None:
        await line.say(data)

    return respond


ok = answer(200, body=b"thanks")


async def hang(_: Request, line: Line) -> None:
    await line.hear_end()


async def drip(_: Request, line: Line) -> None:
    pieces = write_answer(200, {"x-slow": "yes"}).removesuffix(b"\r\n")
    for value in pieces:
        await line.say(bytes((value,)))
    while True:
        await line.say(b"x")
        await asyncio.sleep(0.01)


async def drip_body(_: Request, line: Line) -> None:
    """Answer with a body that comes an octet at a time and never ends."""
    await line.say(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        await line.say(b"x")
        await asyncio.sleep(0.01)


garbage = say(b"\x16\x03\x01\x02\x00\x01\x00garbage\r\n\r\n")
continue_first = say(
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\nretry-after: 1\r\n\r\n"
    + write_answer(201)
)


async def huge(_: Request, line: Line) -> None:
    await line.say(write_answer(200, body=b"x" * 10_000_000))


async def close_before(_: Request, line: Line) -> None:
    line.close()


async def reset_before(_: Request, line: Line) -> None:
    line.reset()


async def close_within(_: Request, line: Line) -> None:
    await line.say(write_answer(200, body=b"thanks")[:-3])
    line.close()


async def close_after(_: Request, line: Line) -> None:
    await line.say(write_answer(200))
    line.close()


def first(count: int, failing: Responder, then: Responder) -> Responder:
    """Respond one way `count` times, over all connections, and then the other way."""
    left = count

    async def respond(request: Request, line: Line) -> None:
        nonlocal left
        left -= 1
        await (failing if left >= 0 else then)(request, line)

    return respond


class Receiver:
    """Listens on the loopback."""

    def __init__(self, respond: Responder) -> None:
        self.respond = respond
        self.requests: list[Request] = []
        # How many connections there ever were, and the names that TLS was asked for, in their order.
        self.connections = 0
        self.names: list[str | None] = []
        self.port = 0
        self.scheme = "http"
        self.faults: list[BaseException] = []
        self._lines: dict[Line, asyncio.Task[None]] = {}
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        return self.url_as("127.0.0.1")

    def url_as(self, host: str, path: str = "/hook") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    @property
    def open_lines(self) -> int:
        return len(self._lines)

    async def wait(self, *, requests: int) -> None:
        await self._wait_until(lambda: len(self.requests) >= requests)

    async def wait_open(self, count: int) -> None:
        await self._wait_until(lambda: len(self._lines) == count)

    async def close_lines(self) -> None:
        """Close all connections, as a server does that is restarted; returns when they are closed."""
        tasks = list(self._lines.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line = Line(self.connections, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._lines[line] = task
        try:
            while (request := await line.hear_request()) is not None:
                self.requests.append(request)
                await self._tell()
                await self.respond(request, line)
        except OSError:
            pass
        except (AssertionError, ValueError, KeyError, asyncio.LimitOverrunError) as error:
            # A request that is none; the end of the receiver says so.
            self.faults.append(error)
        except asyncio.CancelledError:
            # Only the receiver cancels; the server that runs this must not take it for its own end.
            pass
        finally:
            line.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            del self._lines[line]
            await self._tell()


@asynccontextmanager
async def run_receiver(
    respond: Responder = ok, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """Run a receiver, with TLS if a context is given; all that came to it must have been requests."""
    receiver = Receiver(respond)
    if tls is not None:
        receiver.scheme = "https"
        tls.sni_callback = lambda _, name, __: receiver.names.append(name)
    server = await asyncio.start_server(receiver.accept, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await receiver.close_lines()
        await server.wait_closed()
    assert receiver.faults == []


@contextmanager
def deaf_port() -> Iterator[int]:
    """Give a port where connections are made by the system and no program ever takes them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def closed_port() -> Iterator[int]:
    """Give a port that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Issues certificates that are trusted by those who ask `trust` to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._issued = 0
        found = shutil.which("openssl")
        if found is None:
            pytest.skip("openssl is not installed; it makes the certificates of this test")
        self._program = found
        # Python 3.13 asks certificates of authorities what their key may be used for.
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        is_authority = ("-addext", "basicConstraints=critical,CA:TRUE")
        self._sign("authority", "/CN=Authority of a test", *is_authority, *usage)

    def trust(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.load_verify_locations(self._folder / "authority.pem")
        return context

    def issue(self, name: str) -> ssl.SSLContext:
        alternative = f"IP:{name}" if name[-1].isdigit() else f"DNS:{name}"
        names = ("-addext", f"subjectAltName={alternative}", "-addext", "basicConstraints=critical,CA:FALSE")
        signer = ("-CA", "authority.pem", "-CAkey", "authority.key")
        return self._serve(self._sign(self._next(), "/CN=Receiver", *names, *signer))

    def issue_self_signed(self, name: str) -> ssl.SSLContext:
        return self._serve(self._sign(self._next(), "/CN=Receiver", "-addext", f"subjectAltName=DNS:{name}"))

    def _next(self) -> str:
        self._issued += 1
        return f"receiver-{self._issued}"

    def _sign(self, stem: str, subject: str, *options: str) -> str:
        files = ("-keyout", f"{stem}.key", "-out", f"{stem}.pem")
        self._run("req", "-x509", *_KEY, "-days", "2", "-subj", subject, *options, *files)
        return stem

    def _run(self, *words: str) -> None:
        command = [self._program, *words]
        subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=self._folder)

    def _serve(self, stem: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        return context
