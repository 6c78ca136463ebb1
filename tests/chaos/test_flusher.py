"""A send is answered only when its commit is on disk, although the commit did not wait for the disk."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.postgres.databases import complete, execute, open_directory
from tests.support.postgres.embedded import kill_processes, quick_directory
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import (
    PATIENCE_S,
    broken_promises,
    open_batchers,
    read_call,
    send_call,
    warm_up,
)
from tumira.core.errors import ServiceUnavailable
from tumira.core.ids import BATCH, read_id
from tumira.postgres.embedded.server import Server, hold
from tumira.postgres.flusher import AHEAD_MAX, Done, Flusher
from tumira.postgres.migrate import migrate
from tumira.postgres.pool import Database
from tumira.sending import batcher
from tumira.sending.batcher import Batcher
from tumira.sending.types import Admitted, Answered, Decision, Refused

CALLERS: Final = 12

# They would write the log to disk behind a commit that does not wait for it.
SQL_WRITERS: Final = """
SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'checkpointer', 'background writer')
"""


class HastyFlusher(Flusher):
    """Answers at the commit, as if that had waited for the disk."""

    def call_when_durable(self, ticket: int, done: Done) -> None:
        assert ticket == self._lost
        done(None)


class ForgetfulFlusher(Flusher):
    """Takes a flush on a new connection for a proof of what an earlier one was to prove."""

    def _lose(self, error: Exception) -> None:
        lost = self._lost
        waiting, self._waiting = self._waiting, []
        super()._lose(error)
        self._lost, self._waiting = lost, waiting
        asyncio.get_running_loop().call_later(0.05, self._start)


@dataclass(frozen=True, slots=True)
class Crashable:
    """A server that can lose its memory."""

    server: Server
    cluster: Path

    @property
    def url(self) -> str:
        return self.server.url

    def crash(self) -> None:
        """Kill every process and start again: what was in memory and not in the files is lost."""
        kill_processes(self.cluster)
        self.server.start()


@pytest.fixture(scope="module")
def server() -> Iterator[Crashable]:
    with (
        open_directory("tumira-flusher-", quick_directory()) as directory,
        hold(directory / "data", lambda _line: None) as held,
    ):
        held.start()
        complete(_migrate(held.url))
        yield Crashable(held, directory / "data" / "postgres")


async def _migrate(url: str) -> None:
    database = Database(url, connections_max=1)
    await migrate(database)
    await database.close()


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def nobody_else_flushes(url: str) -> Iterator[None]:
    with stopped(*(row["pid"] for row in execute(url, SQL_WRITERS))):
        yield


@dataclass(slots=True)
class Load:
    """Callers of one batcher that send one message after the other, and note what was accepted."""

    batcher: Batcher
    callers: list[Caller]
    answered: list[str] = field(default_factory=list)
    refused: int = 0
    stopping: bool = False

    async def run(self, place: int) -> None:
        while not self.stopping:
            decision = await self.batcher.ask(send_call(self.callers[place % len(self.callers)]))
            if isinstance(decision, Answered):
                self.answered.append(json.loads(decision.response)["batch_id"])
            else:
                assert is_503(decision), decision
                self.refused += 1
                await asyncio.sleep(0.01)

    async def wait_for_more(self, count: int) -> None:
        wanted = len(self.answered) + count
        await until(lambda: len(self.answered) >= wanted)


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.001)


def is_503(decision: Decision) -> bool:
    return isinstance(decision, Refused) and isinstance(decision.refusal, ServiceUnavailable)


def backend_of(flusher: Flusher) -> int:
    connection = flusher._line._connection
    assert connection is not None
    return connection.get_server_pid()


async def lost_in_a_crash(
    server: Crashable, kind: type[Flusher], *, answers: int = 40, accounts: int = 1, stall: bool = False
) -> list[str]:
    """Return the sends that were accepted and are not there after a crash in the middle of a load.

    With `stall` some transactions certainly wait for a flush when the server crashes.
    """
    callers = [await new_caller(server.url, balance="10000", rate=1_000_000) for _ in range(accounts)]
    async with open_batchers(server.url, 1) as batchers:
        tried = batchers.batchers[0]
        tried._flusher = kind(batchers.database, batcher.GIVE_UP_S)
        await warm_up(tried, callers[0])
        load = Load(tried, callers)
        tasks = [asyncio.create_task(load.run(place)) for place in range(CALLERS)]
        with nobody_else_flushes(server.url):
            await load.wait_for_more(answers)
            if stall:
                os.kill(backend_of(tried._flusher), signal.SIGSTOP)
                await until(lambda: tried._flusher._waiting)
            server.crash()
        await load.wait_for_more(answers)
        load.stopping = True
        await asyncio.gather(*tasks)
        async with batchers.database.connection() as connection:
            kept = {row["id"] for row in await connection.fetch("SELECT id FROM batches")}
        assert await broken_promises(batchers.database) == []
    return [one for one in load.answered if read_id(BATCH, one) not in kept]


@pytest.mark.parametrize(
    ("answers", "accounts"),
    [(40, 1), *(pytest.param(count, 4, marks=pytest.mark.long) for count in (1, 20, 100, 200))],
)
async def test_no_answered_send_is_lost_with_the_memory_of_the_server(
    server: Crashable, answers: int, accounts: int
) -> None:
    assert await lost_in_a_crash(server, Flusher, answers=answers, accounts=accounts) == []


async def test_a_flush_after_a_crash_proves_nothing_of_before(server: Crashable) -> None:
    assert await lost_in_a_crash(server, Flusher, stall=True) == []


async def test_twin_sends_answered_at_the_commit_are_lost(server: Crashable) -> None:
    assert await lost_in_a_crash(server, HastyFlusher) != []


async def test_twin_sends_proven_by_a_new_connection_are_lost(server: Crashable) -> None:
    assert await lost_in_a_crash(server, ForgetfulFlusher, stall=True) != []


async def test_a_flusher_that_stalls_is_a_503_in_time_and_another_takes_its_place(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "GIVE_UP_S", 0.5)
    caller, other = await new_caller(database_url), await new_caller(database_url, rate=100_000)
    async with open_batchers(database_url, 1) as batchers:
        tried = batchers.batchers[0]
        await warm_up(tried, other)
        call = send_call(caller, idempotency_key="stalled")
        with stopped(backend_of(tried._flusher)):
            asked = asyncio.create_task(tried.ask(call))
            await until(lambda: len(tried._flusher._waiting) or not tried._flusher._is_idle)
            # Who reads does not wait for the disk, nor behind those who do.
            assert isinstance(await tried.ask(read_call(other)), Admitted)
            assert not asked.done()
            assert is_503(await asked)
            # The next one waits for the disk itself.
            assert isinstance(await tried.ask(send_call(other)), Answered)
            await warm_up(tried, other)
        repeated = await tried.ask(call)
        assert isinstance(repeated, Answered)
        assert repeated.replayed
        assert await broken_promises(batchers.database) == []
        async with batchers.database.connection() as connection:
            found = await connection.fetchval("SELECT count(*) FROM batches WHERE account_id = $1", caller.id)
        assert found == 1


async def test_while_the_flusher_stalls_only_a_few_groups_get_ahead_of_it(database_url: str) -> None:
    caller = await new_caller(database_url, rate=100_000)
    async with open_batchers(database_url, 1) as batchers:
        tried = batchers.batchers[0]
        await warm_up(tried, caller)
        with stopped(backend_of(tried._flusher)):
            asked: list[asyncio.Task[Decision]] = []
            # One group is in the flush that stalls, and the others wait for the next flush.
            while len(asked) <= AHEAD_MAX:
                asked.append(asyncio.create_task(tried.ask(send_call(caller))))
                await until(lambda: not tried._flusher._is_idle)
                await until(lambda: len(tried._flusher._waiting) == len(asked) - 1)
            assert isinstance(await tried.ask(send_call(caller)), Answered)
            assert not any(task.done() for task in asked)
        assert all(isinstance(decision, Answered) for decision in await asyncio.gather(*asked))


async def test_a_flusher_whose_connection_is_cut_is_a_503_or_replaced_unseen(database_url: str) -> None:
    caller = await new_caller(database_url, rate=100_000)
    async with open_batchers(database_url, 1) as batchers:
        tried = batchers.batchers[0]
        await warm_up(tried, caller)
        # While it is idle nobody notices.
        execute(database_url, "SELECT pg_terminate_backend($1, 5000)", backend_of(tried._flusher))
        await until(lambda: not tried._flusher._line.is_open)
        assert isinstance(await tried.ask(send_call(caller)), Answered)
        await warm_up(tried, caller)
        pid = backend_of(tried._flusher)
        with stopped(pid):
            asked = asyncio.create_task(tried.ask(send_call(caller)))
            await until(lambda: not tried._flusher._is_idle)
            execute(database_url, "SELECT pg_terminate_backend($1)", pid)
        assert is_503(await asked)
        assert isinstance(await tried.ask(send_call(caller)), Answered)
        assert await broken_promises(batchers.database) == []
