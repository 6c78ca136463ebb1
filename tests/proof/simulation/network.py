"""The network between processes, carriers and customers' servers, in memory.

A connection keeps the order of its bytes, as TCP does, and cuts them where it likes. Everything else may
happen: delays, connections that break with bytes on the way, hosts that are cut off for a while.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, Final, cast

from tests.proof.simulation.loop import CURRENT, Process, VirtualLoop

DELAY_MIN_S: Final = 0.0005
DELAY_MAX_S: Final = 0.02
CONNECT_TIMEOUT_S: Final = 20.0

Address = tuple[str, int]
Factory = Callable[[], asyncio.BaseProtocol]


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: "SimulatedNetwork", address: Address, process: Process | None) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self.address = address
        self.process = process
        self._context = Context()
        self._context.run(CURRENT.set, process)
        self.protocol: asyncio.Protocol
        self.other: End
        self.is_closed = False
        # Nothing arrives here any more, although nobody has noticed yet.
        self.is_deaf = False
        # Bytes that the other end has not got yet arrive no earlier than those before them.
        self._arrives_at = 0.0
        self._on_the_way = 0
        # When the bytes that arrive now were written.
        self.written_at = 0.0
        if process is not None:
            process.connections.append(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.address if name == "peername" else default

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return self._on_the_way if self._network.is_cut_off(self.address) else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: Any) -> None:
        if self.is_closed or not data:
            return
        data = bytes(data)
        chance = self._network.chance
        pieces = [data]
        if len(data) > 1 and chance.random() < 0.1:
            middle = chance.randrange(1, len(data))
            pieces = [data[:middle], data[middle:]]
        for piece in pieces:
            self._on_the_way += len(piece)
            self._loop.at(self._delay(), self._arrive, piece, self._loop.now_s)

    def _delay(self) -> float:
        now_s = self._loop.now_s
        self._arrives_at = max(self._arrives_at, now_s + self._network.delay_s(self.address)) + 1e-9
        return self._arrives_at - now_s

    def _arrive(self, data: bytes, written_at: float) -> None:
        """Give bytes to the other end, unless they have to wait, as all that follow them do."""
        held_s = self._network.held_s(self.address)
        if held_s > 0 and not self.other.is_closed:
            until_s = self._network.held_until_s(self.address)
            self._arrives_at = max(self._arrives_at, until_s)
            self._loop.at_time(until_s, self._arrive, data, written_at)
            return
        self._on_the_way -= len(data)
        if not self.other.is_closed and not self.other.is_deaf:
            self._loop.call_soon(self.other._receive, data, written_at, context=self.other._context)

    def _receive(self, data: bytes, written_at: float) -> None:
        if not self.is_closed:
            self.written_at = written_at
            self.protocol.data_received(data)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._forget()
            self._loop.call_soon(self.protocol.connection_lost, None, context=self._context)
            self._loop.at(self._delay(), self.other.lose, None)

    def abort(self) -> None:
        self.close()

    def died(self) -> None:
        self.is_closed = True
        self._forget()
        self._loop.at(self._delay(), self.other.lose, ConnectionResetError("reset by the peer"))

    def lose(self, error: Exception | None) -> None:
        """Learn that the connection is gone."""
        if self.is_closed:
            return
        held_s = self._network.held_s(self.address)
        if held_s > 0:
            self._loop.at_time(self._network.held_until_s(self.address), self.lose, error)
            return
        self.is_closed = True
        self._forget()
        self._loop.call_soon(self.protocol.connection_lost, error, context=self._context)

    def _forget(self) -> None:
        if self.process is not None and self in self.process.connections:
            self.process.connections.remove(self)
        self._network.forget(self)


class SimulatedNetwork:
    def __init__(self, loop: VirtualLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self._listeners: dict[Address, Factory] = {}
        # Until when nothing passes to and from a host.
        self._cut_until: dict[Address, float] = {}
        # How much slower a host is reached than others.
        self.slow_s: dict[Address, float] = {}
        self.ends: list[End] = []

    def listen(self, address: Address, factory: Factory) -> None:
        self._listeners[address] = factory

    def stop_listening(self, address: Address) -> None:
        self._listeners.pop(address, None)

    async def connect(
        self, factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        address = (host, port)
        await asyncio.sleep(self.delay_s(address))
        if self.is_cut_off(address):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise TimeoutError("no answer")
        accept = self._listeners.get(address)
        if accept is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        near, far = End(self, address, CURRENT.get()), End(self, address, None)
        near.other, far.other = far, near
        near.protocol = cast("asyncio.Protocol", factory())
        far.protocol = cast("asyncio.Protocol", accept())
        self.ends.append(near)
        near.protocol.connection_made(near)
        self.loop.call_soon(far.protocol.connection_made, far, context=far._context)
        await asyncio.sleep(self.delay_s(address))
        return near, near.protocol

    def delay_s(self, address: Address) -> float:
        quick_s = DELAY_MIN_S + DELAY_MAX_S * self.chance.random() ** 2
        return quick_s + self.slow_s.get(address, 0.0)

    def forget(self, end: End) -> None:
        if end in self.ends:
            self.ends.remove(end)

    # Faults.

    def cut_off(self, address: Address, for_s: float) -> None:
        """Let nothing pass to or from a host for a while; then all that waited arrives."""
        self._cut_until[address] = max(self._cut_until.get(address, 0.0), self.loop.now_s + for_s)

    def is_cut_off(self, address: Address) -> bool:
        return self.held_s(address) > 0

    def held_until_s(self, address: Address) -> float:
        return self._cut_until.get(address, 0.0)

    def held_s(self, address: Address) -> float:
        return max(0.0, self._cut_until.get(address, 0.0) - self.loop.now_s)

    def heal(self) -> None:
        self._cut_until.clear()
        self.slow_s.clear()

    def break_connection(self, end: End) -> None:
        """Break a connection: both ends learn of it in their time, and what is on the way is lost."""
        for one in (end, end.other):
            self.loop.at(self.delay_s(one.address), one.lose, ConnectionResetError("cut"))
            one.is_deaf = True
