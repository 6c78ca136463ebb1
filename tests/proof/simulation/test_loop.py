"""The simulated world without its database: time, processes and network."""

import asyncio
from random import Random
from typing import Final

import pytest

from tests.proof.simulation.carrier import Carrier, Mood
from tests.proof.simulation.checks import _excess
from tests.proof.simulation.loop import Process, SimulationStuckError, VirtualLoop
from tests.proof.simulation.network import SimulatedNetwork
from tests.proof.simulation.trace import Trace
from tests.support.delivery.smpp_peer import pdu

ADDRESS: Final = ("198.51.100.20", 2775)
BIND: Final = 9
SUBMIT: Final = 4
ROUNDS: Final = 20


def open_loop(seed: int = 1) -> tuple[VirtualLoop, SimulatedNetwork]:
    loop = VirtualLoop(Random(f"loop {seed}"), Trace(is_kept=True))
    network = SimulatedNetwork(loop, Random(f"network {seed}"))
    loop.network = network
    return loop, network


class Client(asyncio.Protocol):
    """Binds, submits a few messages, and counts the octets that come back."""

    def __init__(self) -> None:
        self.received = 0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(pdu(BIND, 1, b"tester\0"))
        body = b"\0\x05\x00Tumira\0\x01\x01263771200001\0" + bytes((0, 0, 0)) + b"\0\0"
        for sequence in range(2, ROUNDS):
            transport.write(pdu(SUBMIT, sequence, body + bytes((1, 0, 0, 0, 2)) + b"Hi"))

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_lost = True


def talk(seed: int) -> tuple[str, int]:
    """Let a client talk to a carrier in a mood, and return the digest and what it received."""
    loop, network = open_loop(seed)
    mood = Mood(refuses=0.3, silent=0.2, reports_twice=0.5)
    Carrier("carrier", ADDRESS, network, Random(seed), window=64, tps=0, mood=mood, response_s=5).open()
    client = Client()

    async def run() -> None:
        await loop.create_connection(lambda: client, *ADDRESS)
        await asyncio.sleep(60)

    loop.run_until_complete(run())
    loop.bury()
    return loop.trace.digest, client.received


def test_a_seed_decides_all_that_happens() -> None:
    first = talk(1)
    assert first[1] > 0
    assert talk(1) == first
    assert talk(2) != first


def test_time_jumps_to_the_next_timer() -> None:
    loop, _ = open_loop()
    loop.run_until_complete(asyncio.sleep(3600))
    assert 4600 <= loop.time() < 4601
    loop.bury()


def test_a_world_in_which_nothing_can_happen_is_found() -> None:
    loop, _ = open_loop()
    with pytest.raises(SimulationStuckError):
        loop.run_until_complete(loop.create_future())
    loop.bury()


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_process_that_is_killed_or_frozen_does_nothing(fault: str) -> None:
    loop, network = open_loop()
    process = Process("worker")
    client = Client()
    far = Client()
    network.listen(ADDRESS, lambda: far)
    done: list[float] = []

    async def work() -> None:
        try:
            await loop.create_connection(lambda: client, *ADDRESS)
            while True:
                done.append(loop.time())
                await asyncio.sleep(1)
        finally:
            done.append(-1)

    async def run() -> None:
        loop.spawn(process, work)
        await asyncio.sleep(3.5)
        before = len(done)
        loop.kill(process) if fault == "kill" else loop.freeze(process)
        await asyncio.sleep(10)
        assert len(done) == before
        # The other end learns only of a death.
        assert far.is_lost == (fault == "kill")
        if fault == "freeze":
            loop.thaw(process)
            await asyncio.sleep(2)
            assert len(done) > before
            loop.kill(process)
            await asyncio.sleep(1)
        assert -1 not in done

    loop.run_until_complete(run())
    assert loop.problems == []
    loop.bury()


def test_a_host_that_is_cut_off_gets_everything_later_and_in_order() -> None:
    loop, network = open_loop()
    received = bytearray()

    class Far(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.extend(data)

    network.listen(ADDRESS, Far)

    async def run() -> None:
        transport, _ = await loop.create_connection(asyncio.Protocol, *ADDRESS)
        network.cut_off(ADDRESS, 5)
        for number in range(ROUNDS):
            transport.write(f"{number:03}".encode())
            await asyncio.sleep(0.1)
        assert not received
        await asyncio.sleep(10)

    loop.run_until_complete(run())
    assert bytes(received) == b"".join(f"{number:03}".encode() for number in range(ROUNDS))
    loop.bury()


def test_a_rate_is_exceeded_by_what_comes_too_soon() -> None:
    steady = [place / 10 for place in range(50)]
    assert _excess(steady, 10) <= 1.01
    assert _excess([*steady, *(5 + place / 20 for place in range(20))], 10) > 10
