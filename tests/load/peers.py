"""Peers of a gateway under load, each in a process of its own: a carrier, and a sink for callbacks.

Run as a program, `python -m tests.load.peers carrier`, `… http-carrier` or `… sink`, each prints its port and
then, for every line on standard input, one JSON object of what it has counted.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import msgspec
import uvloop

from tests.load.carrier import Manners, TimedCarrier, run_carrier
from tests.load.http_carrier import TimedHttpCarrier
from tests.load.processor import process_cpu_s

WAIT_S: Final = 300.0
LOOK_S: Final = 0.1


class Peer:
    """The other end of a peer's standard input and output."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._pid = process.pid
        self._stdin, self._stdout = process.stdin, process.stdout
        self.port = int(self._stdout.readline())

    def cpu_s(self) -> float:
        return process_cpu_s(self._pid)

    def counts(self) -> Mapping[str, Any]:
        counts: Mapping[str, Any] = self._ask("counts")
        return counts

    def wait_for(self, count: int, what: str = "count") -> float:
        """Wait until that number has arrived, and return when the last one did."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            counts = self.counts()
            if counts[what] >= count:
                return float(counts["last_at"])
            time.sleep(LOOK_S)
        raise AssertionError(f"not {count} in time: {self.counts()}")

    def _ask(self, word: str, value: Any = None) -> Any:
        self._stdin.write(json.dumps([word, value]) + "\n")
        self._stdin.flush()
        return json.loads(self._stdout.readline())


class CarrierPeer(Peer):
    def behave(self, manners: Manners) -> None:
        self._ask("behave", msgspec.to_builtins(manners))

    def passcodes(self) -> Mapping[str, float]:
        passcodes: Mapping[str, float] = self._ask("passcodes")
        return passcodes

    def pace(self, count: int) -> float:
        return float(self._ask("pace", count))


@contextmanager
def run_carrier_peer(role: str = "carrier") -> Iterator[CarrierPeer]:
    with _run(role) as process:
        yield CarrierPeer(process)


@contextmanager
def run_sink() -> Iterator[Peer]:
    with _run("sink") as process:
        yield Peer(process)


@contextmanager
def _run(role: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.load.peers", role],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()


class _Sink(asyncio.Protocol):
    """Answers every request that comes in one piece with 200."""

    count = 0
    last_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        requests = data.count(b"\r\n\r\n")
        _Sink.count += requests
        _Sink.last_at = time.time()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * requests)


async def _run_sink() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Sink, "127.0.0.1", 0)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps({"count": _Sink.count, "last_at": _Sink.last_at}), flush=True)


def main() -> None:
    if sys.argv[1] == "carrier":
        run_carrier(TimedCarrier())
    elif sys.argv[1] == "http-carrier":
        run_carrier(TimedHttpCarrier())
    else:
        uvloop.run(_run_sink())


if __name__ == "__main__":
    main()
