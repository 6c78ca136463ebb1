"""A send is answered only when its commit is on disk, although the commit did not wait for the disk."""

import asyncio
import itertools
import json
import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.support.delivery.engine import Engine, open_engine
from tests.support.postgres.databases import complete, execute, open_directory, sibling
from tests.support.postgres.embedded import kill_processes, quick_directory, wait_for
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import (
    Batchers,
    broken_promises,
    is_503,
    open_batchers,
    read_call,
    send_call,
    until,
    warm_up,
)
from tumira.carriers.manage import remove_carrier
from tumira.core.database_errors import UNAVAILABLE
from tumira.core.ids import BATCH, read_id
from tumira.postgres.embedded.process import live_processes
from tumira.postgres.embedded.server import Server, hold
from tumira.postgres.flusher import AHEAD_MAX, Done, Flusher
from tumira.postgres.migrate import migrate
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import Database
from tumira.sending import batcher
from tumira.sending.batcher import Batcher
from tumira.sending.types import Admitted, Answered, Decision
from tumira.simulator.handsets import ReceivedText
from tumira.simulator.smsc import run_smsc

# Fewer than a full group, which would wait for the disk itself.
CALLERS: Final = batcher.FULL_GROUP - 1
TWIN_TURNS: Final = 6

_numbers: Final = itertools.count(1)

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
    """A database of a server that can lose its memory."""

    url: str
    _server: Server
    _cluster: Path

    def crash(self) -> None:
        """Kill every process and start again: what was in memory and not in the files is lost."""
        kill_processes(self._cluster)
        wait_for(lambda: not live_processes(self._cluster))
        self._server.start()


@pytest.fixture(scope="module")
def crashable_server() -> Iterator[tuple[Server, Path]]:
    with (
        open_directory("tumira-flusher-", quick_directory()) as directory,
        hold(directory / "data", lambda _line: None) as server,
    ):
        server.start()
        complete(_migrate(server.url))
        yield server, directory / "data" / "postgres"


@pytest.fixture
def crashable(crashable_server: tuple[Server, Path]) -> Crashable:
    server, cluster = crashable_server
    name = f"crashable_{next(_numbers)}"
    execute(sibling(server.url, "postgres"), f"CREATE DATABASE {name} TEMPLATE tumira")
    return Crashable(sibling(server.url, name), server, cluster)


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
    answered: list[object] = field(default_factory=list)
    stopping: bool = False

    async def run(self, place: int) -> None:
        while not self.stopping:
            decision = await self.batcher.ask(send_call(self.callers[place % len(self.callers)]))
            if isinstance(decision, Answered):
                self.answered.append(batch_of(decision))
            else:
                assert is_503(decision), decision
                await asyncio.sleep(0.01)

    async def wait_for_more(self, count: int) -> None:
        wanted = len(self.answered) + count
        await until(lambda: len(self.answered) >= wanted)


def backend_of(flusher: Flusher) -> int:
    connection = flusher._line._connection
    assert connection is not None
    return connection.get_server_pid()


async def wait_behind(tried: Batcher, caller: Caller, groups: int) -> list["asyncio.Task[Decision]"]:
    """Send until `groups` groups wait for a flusher that stalls: one in its flush, the others behind it."""
    asked: list[asyncio.Task[Decision]] = []
    while len(asked) < groups:
        asked.append(asyncio.create_task(tried.ask(send_call(caller))))
        await until(lambda: not tried._flusher._is_idle)
        await until(lambda: len(tried._flusher._waiting) == len(asked) - 1)
    return asked


def batch_of(decision: Answered) -> object:
    return read_id(BATCH, json.loads(decision.response)["batch_id"])


async def kept_batches(batchers: Batchers) -> set[object]:
    async with batchers.database.connection() as connection:
        return {row["id"] for row in await connection.fetch("SELECT id FROM batches")}


async def lost_under_load(
    crashable: Crashable, kind: type[Flusher], answers: int = 40, accounts: int = 1
) -> set[object]:
    """Return the sends that were answered and are not there after a crash in the middle of a load."""
    callers = [await new_caller(crashable.url, balance="10000", rate=1_000_000) for _ in range(accounts)]
    async with open_batchers(crashable.url, 1) as batchers:
        tried = batchers.batchers[0]
        tried._flusher = kind(batchers.database, batcher.GIVE_UP_S)
        await warm_up(tried, callers[0])
        load = Load(tried, callers)
        tasks = [asyncio.create_task(load.run(place)) for place in range(CALLERS)]
        with nobody_else_flushes(crashable.url):
            await load.wait_for_more(answers)
            crashable.crash()
        await load.wait_for_more(answers)
        load.stopping = True
        await asyncio.gather(*tasks)
        assert await broken_promises(batchers.database) == []
        return set(load.answered) - await kept_batches(batchers)


async def lost_while_waiting(crashable: Crashable, kind: type[Flusher]) -> tuple[int, int]:
    """Crash the server while three sends wait for the flusher; return how many were answered, and lost."""
    caller = await new_caller(crashable.url, rate=100_000)
    async with open_batchers(crashable.url, 1) as batchers:
        tried = batchers.batchers[0]
        tried._flusher = kind(batchers.database, batcher.GIVE_UP_S)
        await warm_up(tried, caller)
        with nobody_else_flushes(crashable.url):
            os.kill(backend_of(tried._flusher), signal.SIGSTOP)
            asked = await wait_behind(tried, caller, 3)
            crashable.crash()
        answered = {batch_of(one) for one in await asyncio.gather(*asked) if isinstance(one, Answered)}
        return len(answered), len(answered - await kept_batches(batchers))


@pytest.mark.parametrize(
    ("answers", "accounts"),
    [(40, 1), *(pytest.param(count, 4, marks=pytest.mark.long) for count in (1, 20, 100, 200))],
)
async def test_no_answered_send_is_lost_with_the_memory_of_the_server(
    crashable: Crashable, answers: int, accounts: int
) -> None:
    assert await lost_under_load(crashable, Flusher, answers, accounts) == set()


@pytest.mark.long
async def test_twin_sends_answered_at_the_commit_are_lost(crashable: Crashable) -> None:
    assert await lost_under_load(crashable, HastyFlusher) != set()


@pytest.mark.long
async def test_a_flush_after_a_crash_proves_nothing_of_before(crashable: Crashable) -> None:
    assert await lost_while_waiting(crashable, Flusher) == (0, 0)


@pytest.mark.long
async def test_twin_sends_proven_by_a_new_connection_are_lost(crashable: Crashable) -> None:
    assert await lost_while_waiting(crashable, ForgetfulFlusher) == (3, 3)


async def is_undone_after_it_was_submitted(crashable: Crashable, number: str) -> bool:
    """Crash the server when the carrier gets a message whose accept was not flushed; tell if it is gone."""
    arrived: list[str] = []

    def crash(text: ReceivedText) -> None:
        if text.to == number and number not in arrived:
            crashable.crash()
        arrived.append(text.to)

    async with run_smsc(arrived=crash) as smsc, open_engine(crashable.url) as engine:
        name = f"carrier-{smsc.port}"
        await engine.add_carrier(name, smsc.port)
        engine.start_worker()
        caller, other = await engine.open_account(), await engine.open_account()
        await warm_up(engine.batcher, other)
        await until(lambda: arrived)
        with nobody_else_flushes(crashable.url):
            os.kill(backend_of(engine.batcher._flusher), signal.SIGSTOP)
            assert is_503(await engine.batcher.ask(send_call(caller, [number])))
        assert number in arrived
        await engine.until(lambda: engine_is_back(engine), "the server does not come back")
        kept = await engine.rows("SELECT FROM messages WHERE recipient = $1", number)
        await remove_carrier(engine.database, name)
    return not kept


async def engine_is_back(engine: Engine) -> bool:
    with suppress(*UNAVAILABLE):
        return bool(await engine.rows("SELECT"))
    return False


@pytest.mark.long
async def test_nothing_is_submitted_that_a_crash_undoes(crashable: Crashable) -> None:
    assert not await is_undone_after_it_was_submitted(crashable, "+263771201000")


@pytest.mark.long
async def test_twin_with_claims_that_do_not_wait_for_the_disk_submits_what_a_crash_undoes(
    crashable: Crashable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PinnedConnection.commit

    async def hurry(self: PinnedConnection, *, durable: bool = True) -> None:  # noqa: ARG001 - that is the fault
        await commit(self, durable=False)

    monkeypatch.setattr(PinnedConnection, "commit", hurry)
    # A heartbeat of the worker may come in between, and make the claim durable.
    for turn in range(TWIN_TURNS):
        if await is_undone_after_it_was_submitted(crashable, f"+26377121000{turn}"):
            return
    raise AssertionError("the message was there every time")


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
            asked = await wait_behind(tried, caller, AHEAD_MAX + 1)
            assert isinstance(await tried.ask(send_call(caller)), Answered)
            assert not any(task.done() for task in asked)
        assert all(isinstance(decision, Answered) for decision in await asyncio.gather(*asked))


async def test_a_flusher_covers_no_commit_on_another_server(database_url: str) -> None:
    database = Database(database_url)
    flusher, line = Flusher(database, batcher.GIVE_UP_S), PinnedConnection(database)
    try:
        await line.open()
        assert flusher.cover(line) is None
        await until(lambda: flusher.is_ready)
        assert flusher.cover(line) is not None
        # As after a fail-over behind one address: the one connection is to the old server.
        assert line.server_started is not None
        line.server_started += timedelta(microseconds=1)
        assert flusher.cover(line) is None
        assert not flusher.is_ready
    finally:
        flusher.close()
        line.terminate()
        await database.close()


async def test_a_full_group_that_leaves_no_call_waiting_needs_no_flusher(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beside other tests the disk may count as slow.
    monkeypatch.setattr(batcher, "SLOW_DISK_S", math.inf)
    caller = await new_caller(database_url, rate=100_000)
    async with open_batchers(database_url, 1) as batchers:
        tried = batchers.batchers[0]
        await warm_up(tried, caller)
        with stopped(backend_of(tried._flusher)):
            decisions = await batchers.ask_all([send_call(caller)] * batcher.FULL_GROUP)
            assert all(isinstance(decision, Answered) for decision in decisions)
            assert tried._flusher._is_idle


@pytest.mark.long
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
