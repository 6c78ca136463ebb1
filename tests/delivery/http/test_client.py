"""Calls to carriers: a call that may have arrived is a doubt, and tokens are renewed."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.support.processes.ports import free_port
from tumira.carriers.http.access import open_carrier
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.values import HttpRequest
from tumira.carriers.manage import new_access
from tumira.delivery.http import connections
from tumira.delivery.http.client import AccessDeniedError, CarrierClient, HttpTimeouts
from tumira.delivery.http.connections import AnswerLostError, CarrierConnections, RequestNotSentError

TIMING: Final = HttpTimeouts(connect_s=2, answer_s=0.3)
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-One: 1\r\n\r\nok"

Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Reads whole requests, and answers each as a test says."""

    def __init__(self, handle: Handler) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._handle = handle

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.lower().split(b"\r\n")
                        if b"content-length" in line
                    ),
                    0,
                )
                self.requests.append(head + await reader.readexactly(length))
                await self._handle(self.requests[-1], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def url(self, path: str = "/send?a=1") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[Server]:
    server = Server(handle)
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


def saying(*answers: bytes, then_close: bool = False) -> Handler:
    turns = itertools.cycle(answers)

    async def handle(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(next(turns))
        if then_close:
            writer.close()

    return handle


def post(url: str, body: bytes = b"{}") -> HttpRequest:
    return HttpRequest("POST", url, (("content-type", "application/json"),), body)


@asynccontextmanager
async def calling() -> AsyncIterator[CarrierConnections]:
    calls = CarrierConnections(TIMING.connect_s, TIMING.answer_s)
    try:
        yield calls
    finally:
        await calls.close()


async def test_a_connection_is_used_again_and_never_after_it_grew_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(saying(OK)) as server, calling() as calls:
        for _ in range(3):
            answer = await calls.send(post(server.url(), b"[1]"))
            assert (answer.status, answer.body, answer.headers["x-one"]) == (200, b"ok", "1")
        assert server.connections == 1
        assert server.requests[0].startswith(
            b"POST /send?a=1 HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % server.port
        )
        assert server.requests[0].endswith(b"content-length: 3\r\n\r\n[1]")
        monkeypatch.setattr(connections, "IDLE_S", -1.0)
        await calls.send(post(server.url()))
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
    ],
    ids=["chunked", "interim", "until the end"],
)
async def test_answers_are_read_in_each_of_their_forms(answer: bytes) -> None:
    async with serving(saying(answer, then_close=b"close" in answer)) as server, calling() as calls:
        read = await calls.send(post(server.url()))
        assert (read.status, read.body) == (200, b"ok")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed before"),
        (OK[:-1], "closed before"),
        (OK[:20], "closed before"),
        (b"SMTP ready\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000, "too long"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Long: %s\r\n" % (b"x" * 70_000) + b"\r\n", "too long"),
    ],
    ids=["nothing", "cut body", "cut head", "garbage", "long body", "long head"],
)
async def test_an_answer_that_cannot_be_used_leaves_a_doubt(answer: bytes, why: str) -> None:
    async with serving(saying(answer, then_close=True)) as server, calling() as calls:
        with pytest.raises(AnswerLostError, match=why):
            await calls.send(post(server.url()))


async def test_no_answer_in_time_leaves_a_doubt_and_no_connection_behind() -> None:
    async def wait(_: bytes, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) > 1:
            writer.write(OK)

    async with serving(wait) as server, calling() as calls:
        with pytest.raises(AnswerLostError, match="in time"):
            await calls.send(post(server.url()))
        # A late answer to the first call must not be read as the answer to the second.
        assert (await calls.send(post(server.url()))).body == b"ok"
        assert server.connections == 2


async def test_octets_that_nobody_asked_for_end_the_connection() -> None:
    async with serving(saying(OK + OK)) as server, calling() as calls:
        assert (await calls.send(post(server.url()))).status == 200
        assert (await calls.send(post(server.url()))).status == 200


async def test_what_was_not_written_did_not_arrive() -> None:
    async with calling() as calls:
        with pytest.raises(RequestNotSentError, match="refused"):
            await calls.send(post(f"http://127.0.0.1:{free_port()}/"))
        with pytest.raises(RequestNotSentError):
            await calls.send(post("http://nowhere.invalid/"))
        with pytest.raises(RequestNotSentError, match="line break"):
            await calls.send(HttpRequest("GET", "http://127.0.0.1/", (("a", "b\r\nc: d"),), b""))


async def test_a_server_without_tls_is_not_spoken_to() -> None:
    async with serving(saying(OK)) as server, calling() as calls:
        with pytest.raises(RequestNotSentError):
            await calls.send(post(server.url().replace("http:", "https:")))
        assert server.requests == []


async def test_a_proxy_gets_the_call() -> None:
    async with serving(saying(OK)) as proxy:
        carrier = _carrier("http://127.0.0.1:1", PLAIN_PROFILE)
        client = CarrierClient(carrier, 1, TIMING, f"http://127.0.0.1:{proxy.port}")
        try:
            answer = await client.call(lambda _: post("http://127.0.0.1:1/send"))
        finally:
            await client.close()
        assert answer.status == 200
        assert proxy.requests[0].startswith(b"POST http://127.0.0.1:1/send")


TOKEN_PROFILE: Final = """
name = "tokens"
title = "With tokens"

[settings]
password = { title = "Password", secret = true }

[headers]
Authorization = "Bearer {token}"

[token]
path = "/token"
body = { password = "{secret.password}" }
token = "token"
lifetime = "seconds"

[send]
path = "/send"
body = { to = "{to}", text = "{text}", ref = "{reference}" }

[send.answer]
id = "id"

[[send.rules]]
http = 200
verdict = "taken"
"""


PLAIN_PROFILE: Final = TOKEN_PROFILE.replace(
    TOKEN_PROFILE[TOKEN_PROFILE.index("[headers]") : TOKEN_PROFILE.index("[send]")], ""
)


def _carrier(url: str, profile: str = TOKEN_PROFILE) -> HttpCarrier:
    return open_carrier(new_access("tokens", url, {}, {"password": "hush"}, profile))


def _json(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status,
        len(body),
        body,
    )


async def test_a_token_is_kept_renewed_before_its_end_and_once_upon_401() -> None:
    valid = "t1"
    lifetime_s = 1000
    given = 0

    async def handle(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal given
        if b"POST /token" in request:
            assert b"hush" in request
            given += 1
            writer.write(_json(b'{"token": "%s", "seconds": %d}' % (valid.encode(), lifetime_s)))
        elif f"Bearer {valid}".encode() in request:
            writer.write(_json(b'{"id": "7"}'))
        else:
            writer.write(_json(b"{}", b"401 Unauthorized"))

    async with serving(handle) as server:
        client = CarrierClient(_carrier(server.url("")), 2, TIMING)

        def write(token: str) -> HttpRequest:
            headers = (("authorization", f"Bearer {token}"),)
            return HttpRequest("POST", server.url("/send"), headers, b"{}")

        try:
            for _ in range(3):
                assert (await client.call(write)).status == 200
            assert given == 1
            # Two calls at once renew it once.
            valid = "t2"
            answers = await asyncio.gather(client.call(write), client.call(write))
            assert [answer.status for answer in answers] == [200, 200]
            assert given == 2
            # At four fifths of its life it is replaced without being refused.
            client._token_until = 0.0
            before = len(server.requests)
            assert (await client.call(write)).status == 200
            assert (given, len(server.requests)) == (3, before + 2)
            # Refused again with a new one, it is the account.
            client._token_until = 0.0
            valid = "t3"
            lifetime_s = 1000
            assert (await client.call(lambda _: write("old"))).status == 401
        finally:
            await client.close()


async def test_without_a_token_access_is_denied() -> None:
    async with serving(saying(_json(b"{}", b"403 Forbidden"))) as server:
        client = CarrierClient(_carrier(server.url("")), 1, TIMING)
        try:
            with pytest.raises(AccessDeniedError, match="403"):
                await client.call(lambda _: post(server.url()))
        finally:
            await client.close()
