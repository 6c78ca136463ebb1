"""Hashing is bounded, and no address can keep the others from it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tumira.identity.passwords import HashingBusyError, HashingPool

WAIT_S: Final = 30


@asynccontextmanager
async def busy(pool: HashingPool) -> AsyncIterator[None]:
    """Keep the only worker of a pool at work, with a job that is nobody's."""
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert end.wait(WAIT_S)

    job = asyncio.create_task(pool.run("somebody else", work))
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    try:
        yield
    finally:
        end.set()
        await job


async def put(pool: HashingPool, address: str, work: Callable[[], object]) -> asyncio.Task[object]:
    job = asyncio.create_task(pool.run(address, work))
    # It is in the queue when the task has come to its first wait.
    await asyncio.sleep(0)
    return job


async def test_addresses_take_turns() -> None:
    pool, done = HashingPool(workers=1), list[str]()
    async with busy(pool):
        names = ["a1", "a2", "a3", "b1", "b2", "c1"]
        jobs = [await put(pool, name[0], lambda name=name: done.append(name)) for name in names]  # type: ignore[misc]
    await asyncio.gather(*jobs)
    assert done == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_an_address_fills_its_own_share_of_the_queue_and_no_more() -> None:
    pool = HashingPool(workers=1, waiting_max=10, per_address_max=2)
    async with busy(pool):
        jobs = [await put(pool, "a", lambda: 1) for _ in range(2)]
        with pytest.raises(HashingBusyError, match="one address"):
            await pool.run("a", lambda: 1)
        jobs += [await put(pool, "b", lambda: 2)]
    assert await asyncio.gather(*jobs) == [1, 1, 2]
    assert await pool.run("a", lambda: 3) == 3


async def test_a_full_queue_takes_nothing_more() -> None:
    pool = HashingPool(workers=1, waiting_max=3, per_address_max=2)
    async with busy(pool):
        jobs = [await put(pool, str(address), lambda: 1) for address in range(3)]
        with pytest.raises(HashingBusyError, match="too many"):
            await pool.run("last", lambda: 1)
    assert await asyncio.gather(*jobs) == [1, 1, 1]


async def test_who_hung_up_costs_nothing_and_a_failure_is_its_own() -> None:
    pool, done = HashingPool(workers=1), list[str]()

    def fail() -> None:
        raise ValueError("mine")

    async with busy(pool):
        gone = await put(pool, "a", lambda: done.append("gone"))
        failing = await put(pool, "a", fail)
        last = await put(pool, "a", lambda: done.append("last"))
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    with pytest.raises(ValueError, match="mine"):
        await failing
    await last
    assert done == ["last"]
