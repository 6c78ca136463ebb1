"""Connections of a node that can be cut, silenced or delayed."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import uvloop

from tests.support.chaos.node import PATIENCE_S
from tumira.simulator.connection import SmscConnection
from tumira.simulator.misbehaviours import DROPPED, Misbehaviour
from tumira.simulator.smsc import HOST, Smsc, run_smsc

LINE_OCTETS: Final = 1 << 16

Result = TypeVar("Result")


class Moody(Misbehaviour):
    silent = False

    def judge(self, line: SmscConnection) -> int:  # noqa: ARG002 - all lines alike
        return DROPPED if self.silent else 0


class _End(asyncio.Protocol):
    """One end of a pair of connections; what comes in here leaves at the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        # What the other end sent before this one was connected.
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.writelines(self.early)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        if self.other.transport is not None:
            self.other.transport.write(data)
        else:
            self.other.early.append(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()


class Proxy:
    """Passes connections on to a port, until it cuts them or lets nothing through."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._ends: list[_End] = []
        self._hushed = False
        self._openings: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Cut all connections; what was on its way is gone."""
        for end in self._ends:
            if end.transport is not None:
                end.transport.abort()
        self._ends.clear()

    def hush(self) -> None:
        self._hushed = True
        for end in self._ends:
            if end.transport is not None and not end.transport.is_closing():
                end.transport.pause_reading()

    def speak(self) -> None:
        self._hushed = False
        for end in self._ends:
            if end.transport is not None and not end.transport.is_closing():
                end.transport.resume_reading()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for opening in self._openings:
            opening.cancel()
        self.cut()

    def _accept(self) -> asyncio.Protocol:
        near, far = _Near(self), _End()
        near.other, far.other = far, near
        self._ends = [end for end in self._ends if end.transport is None or not end.transport.is_closing()]
        self._ends += [near, far]
        return near

    def opened(self, near: "_End") -> None:
        task = asyncio.create_task(self._open(near))
        self._openings.add(task)
        task.add_done_callback(self._openings.discard)

    async def _open(self, near: "_End") -> None:
        assert near.transport is not None
        assert near.other is not None
        far = near.other
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, HOST, self._target)
        except OSError:
            near.transport.abort()
            return
        assert far.transport is not None
        if near.transport.is_closing():
            far.transport.abort()
        elif self._hushed:
            near.transport.pause_reading()
            far.transport.pause_reading()


class _Near(_End):
    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy.opened(self)


class DatabaseLine:
    """Stands between a worker and PostgreSQL, and holds back the answer to the commit of a claim."""

    def __init__(self, directory: Path, url: str) -> None:
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        name = f".s.PGSQL.{options['port'][0]}"
        self._server_socket = f"{options['host'][0]}/{name}"
        self._own_socket = directory / name
        self.url = parts._replace(query=f"host={directory}&port={options['port'][0]}").geturl()
        # Set while the server has committed a claim and its answer is held back.
        self.held = asyncio.Event()
        self._armed = False
        self._released = asyncio.Event()
        self._held_line: asyncio.StreamWriter | None = None
        self._lines: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["DatabaseLine"]:
        """Listen until the end of the block."""
        server = await asyncio.start_unix_server(self._serve, self._own_socket)
        try:
            yield self
        finally:
            server.close()
            for line in self._lines:
                line.cancel()
            await asyncio.gather(*self._lines, return_exceptions=True)

    def hold_next_claim(self) -> None:
        self._armed = True

    def release(self) -> None:
        self._released.set()

    def cut(self) -> None:
        """Break the line instead: the claim is committed, and the worker never learns of it."""
        assert self._held_line is not None
        self._held_line.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        task.add_done_callback(self._lines.discard)
        far_reader, far_writer = await asyncio.open_unix_connection(self._server_socket)
        watch = _Watch()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask(reader, far_writer, watch))
                group.create_task(self._answer(far_reader, writer, watch))
        except* OSError:
            # One of the two has gone; so does the other.
            pass
        finally:
            far_writer.transport.abort()
            writer.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watch: "_Watch") -> None:
        while data := await reader.read(LINE_OCTETS):
            watch.claims = watch.claims or b"INSERT INTO in_flight" in data
            if self._armed and watch.claims and b"COMMIT" in data:
                self._armed = False
                watch.holds = True
            writer.write(data)
        raise ConnectionError

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watch: "_Watch"
    ) -> None:
        while data := await reader.read(LINE_OCTETS):
            if watch.holds:
                watch.holds = False
                self._held_line = writer
                self.held.set()
                await self._released.wait()
            writer.write(data)
        raise ConnectionError


@dataclass(slots=True)
class _Watch:
    """What a connection is used for, and whether its next answer is to be held back."""

    claims: bool = False
    holds: bool = False


class CarrierThread:
    """A real SMSC in a thread of the test, behind a line that can be cut or go silent."""

    def __init__(self, misbehaviours: Sequence[Misbehaviour] = ()) -> None:
        self.moody = Moody()
        self._misbehaviours = [self.moody, *misbehaviours]
        self._loop = uvloop.new_event_loop()
        self._ready = threading.Event()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._smsc: Smsc
        self._proxy: Proxy

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        async with run_smsc(0, self._misbehaviours) as self._smsc:
            self._proxy = Proxy(self._smsc.port)
            await self._proxy.start()
            self._ready.set()
            await self._stopped.wait()
            self._proxy.close()
            # One turn of the loop in which the cut connections are told.
            await asyncio.sleep(0)

    def ask(self, what: Callable[[], Result]) -> Result:
        """Do something in the carrier's own thread, and return what it returns."""

        async def asked() -> Result:
            return what()

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(PATIENCE_S)

    @property
    def port(self) -> int:
        return self._proxy.port

    @property
    def received(self) -> int:
        return self._smsc.submits.received

    def counts(self) -> "Counter[tuple[str, str]]":
        return self.ask(lambda: self._smsc.texts.counts)

    def cut(self) -> None:
        self.ask(self._proxy.cut)

    def hush(self, wait_s: float) -> None:
        self.ask(self._proxy.hush)
        time.sleep(wait_s)
        self.ask(self._proxy.speak)

    def die_silently(self, wait_s: float) -> None:
        self.ask(self._proxy.hush)
        time.sleep(wait_s)
        self.ask(self._proxy.cut)
        self.ask(self._proxy.speak)

    def ignore(self, wait_s: float) -> None:
        """Drop every submit for a while, without an answer, and cut the lines then."""
        self.moody.silent = True
        time.sleep(wait_s)
        self.moody.silent = False
        self.cut()
