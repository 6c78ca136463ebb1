"""A process that dies during an accept, at step one, then at step two, …, leaves all or nothing."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg
import pytest

from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import broken_promises, open_batchers, send_call
from tumira.accounts import store as accounts
from tumira.sending.types import Answered

STEPS_MAX: Final = 80


def _die_at(step: int) -> None:
    """Make this process kill itself before or after one of its database calls."""
    count = 0

    def mortal(
        method: Callable[..., Awaitable[Any]],
    ) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            result = await method(*args, **kwargs)
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for name in ("execute", "executemany", "fetch", "fetchval", "fetchrow"):
        setattr(asyncpg.Connection, name, mortal(getattr(asyncpg.Connection, name)))


async def _send(url: str, caller: Caller, recipients: int) -> None:
    numbers = [f"+2637712{number:05}" for number in range(recipients)]
    async with open_batchers(url, 1) as batchers:
        answer = await batchers.batchers[0].ask(send_call(caller, numbers, idempotency_key="crash-test"))
        assert isinstance(answer, Answered)


def _run_and_die(url: str, caller: Caller, recipients: int, step: int) -> int:
    """Send one keyed batch in a fork of this process that dies at a step; return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _die_at(step)
            asyncio.run(_send(url, caller, recipients))
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# Every third step meets BEGIN, the locks, the reads, the writes and COMMIT.
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
    for step in range(1, STEPS_MAX, stride):
        caller = asyncio.run(new_caller(database_url))
        code = _run_and_die(database_url, caller, recipients, step)
        assert code in {0, -signal.SIGKILL}
        died += code != 0
        asyncio.run(_check_after(database_url, caller, recipients, cost))
        if code == 0:
            break
    else:
        raise AssertionError("no run completed")
    # Each with a death before and one after.
    assert died >= 14 // stride


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
