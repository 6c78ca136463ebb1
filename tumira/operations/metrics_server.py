"""The HTTP server for `/metrics` and `/healthz` of a worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tumira import VERSION
from tumira.core import metrics
from tumira.core.errors import port_error

HEAD_OCTETS_MAX: Final = 8_192
LINES_MAX: Final = 8
CONNECTIONS_MAX: Final = 64
ANSWER_S: Final = 5.0


@asynccontextmanager
async def show_metrics(host: str, port: int | None) -> AsyncIterator[None]:
    """Serve the metrics meanwhile, if a port is given."""
    if port is None:
        yield
        return
    metrics.BUILD.labels(VERSION).set(1)
    lines = asyncio.Semaphore(LINES_MAX)
    connected: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connected) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        connected.add(writer)
        # Whoever goes away, dawdles or says something else is not worth a line in the log.
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(ANSWER_S), lines:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        # What was not read until now is not waited for.
        writer.transport.abort()
        connected.discard(writer)

    try:
        server = await asyncio.start_server(answer, host, port, limit=HEAD_OCTETS_MAX)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise port_error(
            error,
            f"Port {port} on {host} cannot be used for metrics ({reason}): "
            "stop what uses it, or set TUMIRA_WORKER_METRICS_PORT or TUMIRA_HOST.",
        ) from error
    try:
        yield
    finally:
        server.close()


def _answer(head: bytes) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in {b"GET", b"HEAD"} or path not in {b"/metrics", b"/healthz"}:
        return _write(b"404 Not Found", "text/plain", b"Metrics are at /metrics.\n")
    if path == b"/healthz":
        body, kind = b'{"status":"alive"}', "application/json"
    else:
        body, kind = generate_latest(metrics.WORKER), CONTENT_TYPE_LATEST
    return _write(b"200 OK", kind, body, is_head=method == b"HEAD")


def _write(status: bytes, kind: str, body: bytes, *, is_head: bool = False) -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, kind.encode(), len(body)) + (b"" if is_head else body)
