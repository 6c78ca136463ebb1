"""Peers of a gateway under load: a carrier that counts, and a sink for callbacks.

Run as a program, `python -m tests.load.peers smsc` or `… sink`, each prints its port and then, for every line
on standard input, one JSON object of what it has counted; for the line `times`, when each passcode came.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, cast

import uvloop

from tumira.simulator.connection import SmscConnection
from tumira.simulator.handsets import ReceivedText
from tumira.simulator.smsc import run_smsc

PASSCODE: Final = "Passcode "


class _Counter:
    def __init__(self) -> None:
        self.count = 0
        self.last_at = 0.0
        self.times: dict[str, float] = {}

    def add(self, text: ReceivedText | None = None) -> None:
        self.count += 1
        self.last_at = time.time()
        if text is not None and text.text.startswith(PASSCODE):
            self.times[text.text] = self.last_at


class _Sink(asyncio.Protocol):
    """Answers every request that comes in one piece with 200."""

    def __init__(self, counter: _Counter) -> None:
        self._counter = counter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for _ in range(data.count(b"\r\n\r\n")):
            self._counter.add()
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


async def _tell(port: int, counter: _Counter) -> None:
    print(port, flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        told = counter.times if line == "times\n" else {"count": counter.count, "last_at": counter.last_at}
        print(json.dumps(told), flush=True)


def _acknowledge_at_once() -> None:
    """Have the kernel acknowledge what comes at once.

    A gateway that lets the kernel collect small packets (Nagle) would otherwise wait for it, 40 ms each time.
    """
    receive = SmscConnection.data_received

    def receive_and_acknowledge(self: SmscConnection, data: bytes) -> None:
        receive(self, data)
        if self._transport is not None:
            connection = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    SmscConnection.data_received = receive_and_acknowledge  # type: ignore[method-assign]


async def _smsc() -> None:
    counter = _Counter()
    _acknowledge_at_once()
    async with run_smsc(port=0, texts_max=1, arrived=counter.add) as smsc:
        await _tell(smsc.port, counter)


async def _sink() -> None:
    counter = _Counter()
    server = await asyncio.get_running_loop().create_server(lambda: _Sink(counter), "127.0.0.1", 0)
    async with server:
        await _tell(server.sockets[0].getsockname()[1], counter)


def main() -> None:
    roles: Mapping[str, Any] = {"smsc": _smsc, "sink": _sink}
    uvloop.run(roles[sys.argv[1]]())


if __name__ == "__main__":
    main()
