"""Are the chores done, by one node at a time, and do they leave alone what is still needed?"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.gates import open_gates, send_call
from tests.support.service import new_caller
from tumira.actions.calls import Answered
from tumira.engine import chores
from tumira.engine.chores import CHORES, Chore, run_chore
from tumira.store import partitions
from tumira.store.database import Database
from tumira.store.sql import Connection

PARTITIONS, KEYS = CHORES


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Give an open database."""
    database = Database(database_url)
    yield database
    await database.close()


async def test_missing_weeks_are_made(database: Database) -> None:
    async with database.connection() as connection:
        last = (await partitions.names(connection, "batches"))[-1]
        await connection.execute(f"DROP TABLE {last}")
    assert await run_chore(database, PARTITIONS) == 1
    assert await run_chore(database, PARTITIONS) == 0


async def test_answers_are_forgotten_after_72_hours_and_not_before(
    database_url: str, database: Database
) -> None:
    caller = await new_caller(database_url)
    async with open_gates(database_url, 1) as gates:
        for key in ("old-key", "new-key"):
            assert isinstance(await gates.gates[0].ask(send_call(caller, idempotency_key=key)), Answered)
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE idempotency_keys SET created_at = now() - interval '73 hours' WHERE key = 'old-key'"
        )
        await connection.execute(
            "UPDATE idempotency_keys SET created_at = now() - interval '71 hours' WHERE key = 'new-key'"
        )
    assert await run_chore(database, KEYS) == 1
    async with database.connection() as connection:
        assert [row["key"] for row in await connection.fetch("SELECT key FROM idempotency_keys")] == [
            "new-key"
        ]


async def test_a_chore_runs_on_one_node_at_a_time(database: Database) -> None:
    running = asyncio.Event()
    finish = asyncio.Event()

    async def slow(_connection: Connection) -> int:
        running.set()
        await finish.wait()
        return 1

    chore = Chore("slow", 1, slow)
    first = asyncio.create_task(run_chore(database, chore))
    await running.wait()
    assert await run_chore(database, chore) == 0
    finish.set()
    assert await first == 1


async def test_a_chore_that_fails_is_tried_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    done = asyncio.Event()

    async def fails_once(_connection: Connection) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("first")
        done.set()
        return 0

    monkeypatch.setattr(chores, "CHORES", (Chore("fails once", 0.01, fails_once),))
    work = asyncio.create_task(chores.run_chores(database))
    await asyncio.wait_for(done.wait(), 10)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
