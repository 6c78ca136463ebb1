"""A worker that dies at any step around the start of a scheduled send: it is sent and paid exactly once."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.support.chaos.mortal import KILLED, Mortal, fork_and_die
from tests.support.chaos.node import WorkerProcess, until
from tests.support.delivery.engine import numbers
from tests.support.postgres.databases import execute
from tests.support.processes.service import new_caller, run_on
from tests.support.schedules.sends import (
    balance_of,
    check_and_schedule,
    make_due,
    schedule,
    send_files,
    start_due,
)
from tests.support.sending.batchers import broken_promises
from tumira.core.ids import AccountId
from tumira.postgres.pool import Database
from tumira.schedules.manage import Scheduled

STEPS_MAX: Final = 400
PRICE: Final = Decimal("0.04")
BALANCE: Final = Decimal(1000)
TO: Final = 3
WAIT_S: Final = 60.0


async def add(url: str, account_id: AccountId, to: Sequence[str], *, is_file: bool) -> None:
    database = Database(url, connections_max=2)
    try:
        if is_file:
            rows = [f"{number},Tariro" for number in to]
            _upload_id, made = await check_and_schedule(database, account_id, rows)
            assert isinstance(made, Scheduled), made
            schedule_id = made.id
        else:
            schedule_id = await schedule(database, account_id, to)
        await make_due(database, schedule_id)
    finally:
        await database.close()


async def work(url: str, mortal: Mortal | None = None) -> None:
    """Do what a worker does for all that is due."""
    database = Database(url, connections_max=2)
    if mortal is not None:
        mortal.is_counting = True
    await start_due(database)
    await send_files(database)
    if mortal is not None:
        mortal.is_counting = False
    await database.close()


@pytest.mark.parametrize(
    ("is_file", "stride"),
    [
        pytest.param(False, 13, id="message"),
        pytest.param(False, 1, id="message, each step", marks=pytest.mark.long),
        pytest.param(True, 1, id="file, each step", marks=pytest.mark.long),
    ],
)
def test_a_send_is_made_once_whenever_its_worker_dies(
    database_url: str, stride: int, *, is_file: bool
) -> None:
    caller = asyncio.run(new_caller(database_url, str(BALANCE), 600))
    died = 0
    for turn, step in enumerate(range(1, STEPS_MAX, stride), start=1):
        to = numbers(TO, start=TO * turn)
        asyncio.run(add(database_url, caller.id, to, is_file=is_file))
        code = fork_and_die(step, partial(work, database_url))
        assert code in {0, KILLED}
        died += code != 0
        # Another worker finds what the dead one left.
        asyncio.run(work(database_url))
        found = execute(
            database_url,
            "SELECT recipient FROM messages WHERE account_id = $1 ORDER BY id DESC LIMIT 3",
            caller.id,
        )
        assert {row["recipient"] for row in found} == set(to)
        (count,) = execute(database_url, "SELECT count(*) FROM messages WHERE account_id = $1", caller.id)
        assert count[0] == TO * turn
        assert run_on(database_url, balance_of, caller.id) == BALANCE - TO * turn * PRICE
        if code == 0:
            break
    else:
        raise AssertionError("no run completed")
    assert died >= 20 // stride
    assert run_on(database_url, broken_promises) == []


async def add_some(url: str, account_id: AccountId, to: Sequence[str]) -> None:
    """Schedule sends that begin one after the other, around the kills."""
    database = Database(url, connections_max=2)
    try:
        for place in range(0, len(to), TO):
            made = await schedule(database, account_id, to[place : place + TO])
            async with database.connection() as connection:
                await connection.execute(
                    "UPDATE schedules SET start_at = clock_timestamp() + $2 * interval '0.1 seconds'"
                    " WHERE id = $1",
                    made,
                    place,
                )
    finally:
        await database.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_nodes_that_are_killed_send_each_once(database_url: str, tmp_path: Path) -> None:
    """The worker of one node or of the other dies while sends begin."""
    caller = asyncio.run(new_caller(database_url, str(BALANCE), 600))
    to = numbers(40 * TO)
    asyncio.run(add_some(database_url, caller.id, to))
    waiting = "SELECT count(*) FROM schedules WHERE state = 'waiting'"

    def are_left(most: int) -> bool:
        return int(execute(database_url, waiting)[0][0]) <= most

    settings = {"database_url": database_url, "webhooks": "off"}
    with ExitStack() as stack:
        workers = [WorkerProcess(tmp_path / f"{name}.log", **settings) for name in ("one", "two")]
        for worker in workers:
            stack.callback(worker.end)
        for goal, worker in zip(range(36, 4, -4), itertools.cycle(workers), strict=False):
            until(partial(are_left, goal), "nothing begins", WAIT_S)
            worker.kill()
            worker.start()
        until(partial(are_left, 0), "not all begin", WAIT_S)
    found = execute(database_url, "SELECT recipient FROM messages WHERE account_id = $1", caller.id)
    assert Counter(row["recipient"] for row in found) == Counter(to)
    (debits,) = execute(
        database_url,
        "SELECT sum(amount), count(*) FROM transfers WHERE account_id = $1 AND to_book = 'revenue'",
        caller.id,
    )
    assert tuple(debits) == (len(to) * PRICE, 40)
    assert run_on(database_url, broken_promises) == []
