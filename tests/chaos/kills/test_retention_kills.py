"""A worker that dies while an old week is dropped leaves it for the next worker."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.chaos.mortal import KILLED, Mortal, Nursery
from tests.support.delivery.settling import BLOCKED
from tests.support.postgres.old_weeks import MESSAGE_TABLES, add_batch, make_weeks, name_of
from tests.support.processes.service import new_caller
from tests.support.sending.batchers import broken_promises
from tumira.operations import retention
from tumira.operations.retention import RetentionKind, drop_old
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.partitions import State
from tumira.postgres.pool import Database
from tumira.runtime import configure_logging

# In each round the oldest week goes; there are more rounds than a run has steps.
STEPS_MAX: Final = 16
WAIT_S: Final = 30.0
WORKER: Final = (
    "import asyncio, sys; from tests.chaos.kills.test_retention_kills import _work; "
    "asyncio.run(_work(sys.argv[1], 1, 0))"
)
ATTACHED: Final = {State.ATTACHED}
GONE: Final = {State.GONE}


async def _work(url: str, weeks_kept: int, step: int) -> None:
    """Drop old weeks until we have died before or after a statement that changes something, or are done."""
    mortal = Mortal(step)
    mortal.watch(asyncpg.Connection, "execute")
    mortal.is_counting = True
    await drop_old(Database(url), RetentionKind.MESSAGES, weeks_kept)


def main() -> None:
    """Fork a worker for each line, which says at which step it dies, and print how it ended."""
    configure_logging("error")
    for line in sys.stdin:
        step = int(line)
        child = os.fork()
        if child == 0:
            asyncio.run(_work(sys.argv[1], _kept(step, int(sys.argv[2])), step))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _kept(step: int, stride: int) -> int:
    """Return how many weeks are kept in the round of a step: one fewer than there are."""
    return STEPS_MAX // stride + 1 - step // stride


@contextmanager
def workers(url: str, stride: int) -> Iterator[Nursery]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.kills.test_retention_kills", url, str(stride)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Nursery(process)


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


async def states(connection: Connection, weeks_ago: int) -> set[State]:
    return {
        State(await partitions.SQL_STATE.value(connection, name=await name_of(connection, table, weeks_ago)))
        for table in MESSAGE_TABLES
    }


async def finish(database: Database, weeks_kept: int) -> None:
    deadline = time.monotonic() + WAIT_S
    async with database.connection() as connection:
        while await states(connection, weeks_kept + 1) != GONE:
            assert time.monotonic() < deadline, await states(connection, weeks_kept + 1)
            await drop_old(database, RetentionKind.MESSAGES, weeks_kept)
        assert await states(connection, weeks_kept) == ATTACHED
        assert await retention.list_leaving(connection, RetentionKind.MESSAGES) == []


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
async def test_whoever_dies_at_any_step_leaves_a_week_that_the_next_one_drops(
    database: Database, stride: int
) -> None:
    caller = await new_caller(database.url)
    async with database.connection() as connection:
        oldest = _kept(0, stride)
        await make_weeks(connection, oldest, [*MESSAGE_TABLES, "events"])
        for weeks in range(1, oldest + 1):
            await add_batch(connection, caller.id, weeks)
    seen = []
    with workers(database.url, stride) as nursery:
        for step in range(stride, STEPS_MAX + stride, stride):
            code = await asyncio.to_thread(nursery.die_at, step)
            assert code in {0, KILLED}
            async with database.connection() as connection:
                seen.append(await states(connection, _kept(step, stride) + 1))
            assert await broken_promises(database) == []
            if code == 0:
                break
            await finish(database, _kept(step, stride))
        else:
            raise AssertionError("no run completed")
    assert seen[-1] == GONE
    assert {State.ATTACHED, State.DETACHED} in seen
    if stride == 1:
        assert seen[0] == ATTACHED
        assert {State.DETACHED} in seen


@pytest.mark.long
async def test_whoever_dies_while_a_week_is_detached_leaves_one_that_the_next_one_drops(
    database: Database,
) -> None:
    caller = await new_caller(database.url)
    reader = await asyncpg.connect(database.url)
    async with database.connection() as connection:
        await make_weeks(connection, 2, [*MESSAGE_TABLES, "events"])
        await add_batch(connection, caller.id, 2)
        async with reader.transaction(isolation="repeatable_read", readonly=True):
            await reader.fetchval("SELECT count(*) FROM parts")
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, database.url)
            deadline = time.monotonic() + WAIT_S
            while not await connection.fetch(BLOCKED):
                assert time.monotonic() < deadline, "nobody waits"
                await asyncio.sleep(0.02)
            child.kill()
            await child.wait()
            while await connection.fetch(BLOCKED):
                assert time.monotonic() < deadline, "the server did not notice"
                await asyncio.sleep(0.02)
            assert await states(connection, 2) == {State.DETACHED, State.PENDING, State.ATTACHED}
    await reader.close()
    assert await broken_promises(database) == []

    await finish(database, 1)

    assert await broken_promises(database) == []


if __name__ == "__main__":
    main()
