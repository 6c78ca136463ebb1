"""A load generator that costs little beside the service that it measures.

Keep-alive connections that each send one prepared request after the other and read no more of an answer
than its status and length. Run as a program, `python -m tests.load.generator HOST PORT CONNECTIONS COUNT`,
it reads the requests as JSON strings, a line each, from standard input and prints one JSON object.
"""

import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

import uvloop


class _Connection(asyncio.Protocol):
    def __init__(self, requests: Iterator[bytes], load: "_Load") -> None:
        self._requests = requests
        self._load = load
        self._received = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but ancestry.
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def _next(self) -> None:
        if self._load.take():
            self._sent_at = time.perf_counter()
            self._transport.write(next(self._requests))
        else:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._received[:head_end].lower()
        length_at = head.index(b"content-length:") + 15
        length = int(head[length_at:].split(b"\r\n", 1)[0])
        if len(self._received) < head_end + 4 + length:
            return
        self._load.answered(int(head[9:12]), time.perf_counter() - self._sent_at)
        self._received = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.closed(exc)


class _Load:
    def __init__(self, connections: int, count: int) -> None:
        self._left = count
        self._open = connections
        self.statuses: Counter[int] = Counter()
        self.times_s: list[float] = []
        self.answered_at = 0.0
        self.finished = asyncio.Event()

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def answered(self, status: int, time_s: float) -> None:
        self.statuses[status] += 1
        self.times_s.append(time_s)
        self.answered_at = time.perf_counter()

    def closed(self, _error: Exception | None) -> None:
        self._open -= 1
        if self._open == 0:
            self.finished.set()


async def generate(
    host: str, port: int, connections: int, count: int, requests: Sequence[bytes]
) -> dict[str, Any]:
    """Send `count` requests over `connections` connections and tell how it went."""
    load = _Load(connections, count)
    supply = itertools.cycle(requests)
    began_at, began, began_cpu = time.time(), time.perf_counter(), time.process_time()
    for _ in range(connections):
        await asyncio.get_running_loop().create_connection(lambda: _Connection(supply, load), host, port)
    await asyncio.wait_for(load.finished.wait(), 300)
    # Closing the connections does not count.
    took_s = load.answered_at - began
    times = sorted(load.times_s)
    return {
        "began_at": began_at,
        "seconds": took_s,
        "answered": len(times),
        "per_second": len(times) / took_s,
        "statuses": dict(load.statuses),
        "p50_ms": times[len(times) // 2] * 1000,
        "p99_ms": times[int(len(times) * 0.99)] * 1000,
        "own_cpu_s": time.process_time() - began_cpu,
    }


def request(path: str, key: str, body: Any) -> str:
    text = json.dumps(body)
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
    )


def main() -> None:
    host, port, connections, count = sys.argv[1:]
    requests = [json.loads(line).encode() for line in sys.stdin]
    print(json.dumps(uvloop.run(generate(host, int(port), int(connections), int(count), requests))))


if __name__ == "__main__":
    main()
