"""A message is claimed on disk before it is submitted, and a crash leaves a bounded number in doubt."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch
from uuid import UUID

import pytest

from tests.support import WEEKS_AHEAD
from tests.support.chaos.breakable import CarrierThread, DatabaseLine
from tests.support.chaos.node import WorkerProcess
from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.postgres.databases import open_directory
from tumira.delivery import sender
from tumira.delivery.dispatcher import Dispatcher
from tumira.delivery.link import References
from tumira.delivery.sender import UNRECORDED_MAX
from tumira.delivery.store.queue import ClaimedMessage, PastAttempts
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.simulator.smsc import Smsc, run_smsc

COUNT: Final = 1000
WINDOW: Final = 10
TURNS: Final = 20


@asynccontextmanager
async def claim_held(url: str) -> AsyncIterator[Smsc]:
    """Send five messages, and hold back the answer to the commit of their claim."""
    with open_directory("tumira-line-") as directory:
        async with (
            run_smsc() as smsc,
            DatabaseLine(directory, url).open() as line,
            open_engine(url) as engine,
            open_engine(line.url) as behind,
        ):
            await engine.add_carrier("main", smsc.port)
            line.hold_next_claim()
            behind.start_worker()
            await engine.send(await engine.open_account(), numbers(5))
            async with asyncio.timeout(20):
                await line.held.wait()
            # What was written to the carrier arrives meanwhile: it shares our event loop.
            for _ in range(TURNS):
                await engine.rows("SELECT")
            yield smsc
            line.release()
            await engine.until_all("delivered")
            assert await engine.audit() == []


async def test_nothing_is_submitted_before_its_claim_is_on_disk(database_url: str) -> None:
    async with claim_held(database_url) as smsc:
        assert smsc.submits.received == 0
    assert set(smsc.texts.counts.values()) == {1}


@pytest.mark.long
async def test_twin_a_submit_before_the_commit_of_its_claim_is_seen(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Dispatcher._submit
    early: list[UUID] = []

    async def commit(
        self: Dispatcher, connection: Connection, claimed: Sequence[ClaimedMessage] | None
    ) -> int:
        if claimed:
            early.extend(one.id for one in claimed)
            submit(self, claimed, {}, {})
        return await real(self, connection, claimed)

    def submit_once(
        self: Dispatcher,
        claimed: Sequence[ClaimedMessage],
        past: Mapping[UUID, PastAttempts],
        references: References,
    ) -> None:
        submit(self, [one for one in claimed if one.id not in early], past, references)

    real = Dispatcher._commit
    monkeypatch.setattr(Dispatcher, "_commit", commit)
    monkeypatch.setattr(Dispatcher, "_submit", submit_once)
    async with claim_held(database_url) as smsc:
        assert smsc.submits.received == 5


@asynccontextmanager
async def recording_blocked(engine: Engine) -> AsyncIterator[None]:
    """Let no answer be recorded; messages are claimed and submitted as before."""
    async with engine.database.connection() as connection:
        # For as long as a busy machine needs.
        await connection.execute(
            "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE parts IN EXCLUSIVE MODE"
        )
        yield
        await connection.execute("ROLLBACK")


async def submitted_at_most(engine: Engine, smsc: Smsc) -> int:
    """Return how many submits the carrier has when no more come."""
    seen = -1

    async def still() -> bool:
        nonlocal seen
        before, seen = seen, smsc.submits.received
        await asyncio.sleep(0.5)
        return before == seen > 0

    await engine.until(still, "submits go on")
    return seen


async def test_with_a_group_of_answers_unrecorded_nothing_more_is_submitted(engine: Engine) -> None:
    async with run_smsc() as smsc:
        await engine.add_carrier("main", smsc.port, window=WINDOW)
        await engine.send(await engine.open_account(), numbers(COUNT))
        async with recording_blocked(engine):
            engine.start_worker()
            count = await submitted_at_most(engine, smsc)
        # The slots that were free when the last answers came are filled.
        assert UNRECORDED_MAX <= count <= UNRECORDED_MAX + WINDOW
        await engine.until_all("delivered")
        assert set(smsc.texts.counts.values()) == {1}
        assert await engine.audit() == []


@pytest.mark.long
async def test_twin_without_the_bound_everything_is_submitted_unrecorded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "UNRECORDED_MAX", 10 * COUNT)
    async with run_smsc() as smsc:
        await engine.add_carrier("main", smsc.port, window=WINDOW)
        await engine.send(await engine.open_account(), numbers(COUNT))
        async with recording_blocked(engine):
            engine.start_worker()
            assert await submitted_at_most(engine, smsc) == COUNT
        await engine.until_all("delivered")


@pytest.mark.long
async def test_a_worker_killed_with_answers_unrecorded_repeats_no_more_than_the_bound(
    engine: Engine, tmp_path: Path
) -> None:
    # The worker is a program: it makes the weeks that databases of tests lack, and would wait for the lock.
    with patch.object(partitions, "WEEKS_AHEAD", WEEKS_AHEAD):
        async with engine.database.transaction() as connection:
            await partitions.create_ahead(connection)
    with CarrierThread() as carrier:
        await engine.add_carrier("main", carrier.port, window=WINDOW)
        await engine.send(await engine.open_account(), numbers(COUNT))
        worker = WorkerProcess(tmp_path / "worker.log", database_url=engine.url)

        def arrived() -> int:
            return sum(carrier.counts().values())

        async with recording_blocked(engine):

            async def bound_is_reached() -> bool:
                return arrived() >= UNRECORDED_MAX

            await engine.until(bound_is_reached, "nothing is submitted")
            await asyncio.to_thread(worker.kill)
        before = arrived()
        in_flight = len(await engine.rows("SELECT FROM in_flight"))
        assert before <= UNRECORDED_MAX + WINDOW
        await asyncio.to_thread(worker.start)
        await engine.until_all("delivered", wait_s=120)
        await asyncio.to_thread(worker.end)
        counts = carrier.counts()
        repeated = sum(count - 1 for count in counts.values())
        marked = await engine.rows("SELECT DISTINCT message_id FROM incidents WHERE kind = 'doubt'")
    assert len(counts) == COUNT
    assert repeated <= before
    assert repeated <= len(marked) <= in_flight
    assert await engine.audit() == []
