"""A process that dies during an accept, at step one, then at step two, …, leaves all or nothing."""

import asyncio
from functools import partial
from typing import Final

import pytest

from tests.support.chaos.mortal import KILLED, Mortal, fork_and_die
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import broken_promises, open_batchers, send_call, warm_up
from tumira.accounts import store as accounts
from tumira.sending.types import Answered

STEPS_MAX: Final = 80


async def _send(url: str, caller: Caller, idle: Caller, recipients: int, mortal: Mortal) -> None:
    numbers = [f"+2637712{number:05}" for number in range(recipients)]
    async with open_batchers(url, 1) as batchers:
        await warm_up(batchers.batchers[0], idle)
        mortal.is_counting = True
        answer = await batchers.batchers[0].ask(send_call(caller, numbers, idempotency_key="crash-test"))
        assert isinstance(answer, Answered)


# Every third step meets the locks, the writes, COMMIT and the flush.
@pytest.mark.parametrize(
    ("recipients", "cost", "stride"),
    [
        (1, "0.04", 3),
        pytest.param(1, "0.04", 1, marks=pytest.mark.long),
        pytest.param(60, "2.40", 1, marks=pytest.mark.long),
    ],
)
def test_an_accept_that_dies_at_any_step_leaves_all_or_nothing(
    database_url: str, recipients: int, cost: str, stride: int
) -> None:
    died = 0
    idle = asyncio.run(new_caller(database_url, rate=100_000))
    for step in range(1, STEPS_MAX, stride):
        caller = asyncio.run(new_caller(database_url))
        code = fork_and_die(step, partial(_send, database_url, caller, idle, recipients))
        assert code in {0, KILLED}
        died += code != 0
        asyncio.run(_check_after(database_url, caller, recipients, cost))
        if code == 0:
            break
    else:
        raise AssertionError("no run completed")
    # Each with a death before and one after: the lock and read, the write, the key's use, COMMIT, the flush.
    assert died >= 10 // stride


async def _check_after(url: str, caller: Caller, recipients: int, cost: str) -> None:
    async with open_batchers(url, 1) as batchers:
        assert await broken_promises(batchers.database) == []
        # The caller retries with the same key, and is billed once in all.
        numbers = [f"+2637712{number:05}" for number in range(recipients)]
        answer = await batchers.batchers[0].ask(send_call(caller, numbers, idempotency_key="crash-test"))
        assert isinstance(answer, Answered)
        async with batchers.database.connection() as connection:
            account = await accounts.find(connection, caller.id)
            batches = await connection.fetchval(
                "SELECT count(*) FROM batches WHERE account_id = $1", caller.id
            )
    assert account is not None
    assert str(100 - account.balance).rstrip("0") == cost.rstrip("0")
    assert batches == 1
