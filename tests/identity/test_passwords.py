"""Hashing is bounded, and no address can keep the others from it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest
from structlog.testing import CapturingLogger

from tests.support.identity.people import PASSWORD, new_phone
from tumira.dashboard import app
from tumira.identity import passwords
from tumira.identity.passwords import HashingBusyError, HashingPool
from tumira.postgres.pool import Database
from tumira.web import Web

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


async def test_an_address_fills_its_own_share_of_the_queue_and_a_full_queue_takes_nothing_more() -> None:
    pool = HashingPool(workers=1, waiting_max=3, per_address_max=2)
    async with busy(pool):
        jobs = [await put(pool, "a", lambda: 1) for _ in range(2)]
        with pytest.raises(HashingBusyError, match="one address"):
            await pool.run("a", lambda: 1)
        jobs += [await put(pool, "b", lambda: 2)]
        with pytest.raises(HashingBusyError, match="too many"):
            await pool.run("c", lambda: 1)
    assert await asyncio.gather(*jobs) == [1, 1, 2]
    assert await pool.run("a", lambda: 3) == 3


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


async def test_a_full_queue_is_answered_503_and_the_log_names_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = HashingPool(workers=1, waiting_max=1)
    monkeypatch.setattr(passwords, "_POOL", pool)
    lines = CapturingLogger()
    monkeypatch.setattr(app, "_log", lines)
    database = Database(database_url, connections_max=2)
    transport = httpx.ASGITransport(Web(database))
    async with (
        busy(pool),
        httpx.AsyncClient(transport=transport, base_url="http://tumira.test") as browser,
    ):
        waiting = await put(pool, "198.18.0.2", lambda: 1)
        for path in ("dashboard", "operator"):
            form = {"phone": new_phone(), "password": PASSWORD}
            answer = await browser.post(f"/{path}/sign-in", data=form)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert "Too many people are signing in" in answer.text
    await waiting
    await database.close()
    assert [(call.method_name, call.args, call.kwargs["reason"]) for call in lines.calls] == [
        ("warning", ("password hashing queue full",), "too many passwords are waiting to be hashed")
    ] * 2
