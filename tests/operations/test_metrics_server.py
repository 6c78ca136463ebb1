"""The metrics port of a worker, and clients that misuse it."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.processes.ports import free_port
from tumira.core.errors import OperatorError
from tumira.operations import metrics_server
from tumira.operations.metrics_server import show_metrics


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    port = free_port()
    async with show_metrics("127.0.0.1", port):
        yield port


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_metrics_and_life_are_shown(port: int) -> None:
    head, _, body = (await ask(port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
    assert f"Content-Length: {len(body)}\r\n".encode() in head
    assert b"# TYPE tumira_worker_beat_timestamp_seconds gauge" in body
    assert (await ask(port, b"GET /healthz HTTP/1.0\r\n\r\n")).endswith(b'\r\n\r\n{"status":"alive"}')
    assert (await ask(port, b"HEAD /healthz HTTP/1.0\r\n\r\n")).endswith(b"Connection: close\r\n\r\n")


@pytest.mark.parametrize(
    "request_",
    [b"GET / HTTP/1.1\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", b"\r\n\r\n"],
)
async def test_anything_else_is_not_found(port: int, request_: bytes) -> None:
    assert (await ask(port, request_)).startswith(b"HTTP/1.1 404 Not Found\r\n")


async def test_who_says_too_much_or_goes_away_is_let_go(port: int) -> None:
    assert await ask(port, b"GET /" + b"a" * metrics_server.HEAD_OCTETS_MAX * 2) == b""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    assert (await ask(port, b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_who_says_nothing_is_let_go(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "ANSWER_S", 0.05)
    assert await ask(port, b"GET /metr") == b""


async def test_connections_are_bounded(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "ANSWER_S", 300.0)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(metrics_server.CONNECTIONS_MAX)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    for _, one in (*silent, (reader, writer)):
        one.close()
        await one.wait_closed()
    assert (await ask(port, b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_port_that_is_taken_is_told_in_one_line() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OperatorError, match="TUMIRA_WORKER_METRICS_PORT") as told,
    ):
        async with show_metrics("127.0.0.1", taken.getsockname()[1]):
            pass
    assert "\n" not in str(told.value)
