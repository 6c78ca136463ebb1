"""No call in a group fails or delays another."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from tests.support.processes.service import new_caller
from tests.support.sending.batchers import broken_promises, open_batchers, read_call, send_call
from tumira.core.errors import InternalError, ServiceUnavailable
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres import clock, partitions
from tumira.sending import batcher
from tumira.sending.types import Admitted, Answered, Refused

# Stands for any value that the database refuses and our checks do not know of.
POISON = """
CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'poison';
END $$;
CREATE TRIGGER poison BEFORE INSERT ON messages
    FOR EACH ROW WHEN (NEW.recipient = '+263771299999') EXECUTE FUNCTION poison();
"""

# Makes the commit itself take a second for one text, so that the line can be cut in the middle of it.
SLOW_COMMIT = """
CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(1);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON transfers DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION slow_commit();
"""

# Makes a large send's rows take a second to write.
SLOW_INSERT = """
CREATE FUNCTION slow_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(1);
    RETURN NULL;
END $$;
CREATE TRIGGER slow_insert AFTER INSERT ON batches
    FOR EACH ROW WHEN (NEW.recipients > 50) EXECUTE FUNCTION slow_insert();
"""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_five_poisoned_sends_fail_alone_among_160_others(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute(POISON)
    callers = [await new_caller(database_url, rate=100_000) for _ in range(10)]
    calls = [
        send_call(callers[turn % 10], ["+263771299999" if turn % 33 == 0 else "+263771200001"])
        for turn in range(165)
    ]
    async with open_batchers(database_url, 1) as batchers:
        decisions = await batchers.ask_all(calls)
        for turn, decision in enumerate(decisions):
            if turn % 33 == 0:
                assert isinstance(decision, Refused)
                assert isinstance(decision.refusal, InternalError)
            else:
                assert isinstance(decision, Answered)
        assert await broken_promises(batchers.database) == []
    async with connected(database_url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM batches") == 160


async def test_a_refused_row_is_not_quoted_in_the_log(
    database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with connected(database_url) as connection:
        await connection.execute("ALTER TABLE messages ADD CHECK (recipient <> '+263771299999')")
    caller = await new_caller(database_url)
    async with open_batchers(database_url, 1) as batchers:
        decision = await batchers.batchers[0].ask(
            send_call(caller, ["+263771299999"], "Your code is 493817.")
        )
        assert isinstance(decision, Refused)
    said = capfd.readouterr().err
    assert "CheckViolationError" in said
    assert "299999" not in said
    assert "493817" not in said


@pytest.mark.long
@pytest.mark.parametrize("table", ["batches", "messages"])
async def test_without_a_partition_for_this_week_only_sends_are_answered_503_until_a_worker_makes_it(
    database_url: str, capfd: pytest.CaptureFixture[str], table: str
) -> None:
    caller, reader = await new_caller(database_url), await new_caller(database_url)
    sends = [send_call(caller, [f"+2637712{n:05}" for n in range(count)]) for count in (1, 60)]
    async with connected(database_url) as connection:
        now = await clock.read_now(connection)
        await connection.execute(f"DROP TABLE {partitions._name(table, now)}")
    async with open_batchers(database_url, 1) as batchers:
        *refused, read = await batchers.ask_all([*sends, read_call(reader)])
        for decision in refused:
            assert isinstance(decision, Refused)
            assert isinstance(decision.refusal, ServiceUnavailable)
        assert isinstance(read, Admitted)
        said = capfd.readouterr().err
        assert "no partition for this week" in said
        assert "Traceback" not in said

        await run_task(
            batchers.database, next(one for one in MAINTENANCE_TASKS if one.name == "create partitions")
        )
        assert all(isinstance(decision, Answered) for decision in await batchers.ask_all(sends))
        assert await broken_promises(batchers.database) == []


@pytest.mark.long
async def test_a_locked_account_holds_up_nobody_else_and_is_served_when_free(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "PATIENCE_S", 0.2)
    locked, free = await new_caller(database_url), await new_caller(database_url)
    async with connected(database_url) as connection, open_batchers(database_url, 1) as batchers:
        await batchers.ask_all([read_call(free)])
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM accounts WHERE id = $1 FOR UPDATE", locked.id)
        waiting = asyncio.gather(*(batchers.batchers[0].ask(send_call(locked)) for _ in range(150)))
        # Past the moment from which some of them wait on connections of their own.
        begun = time.monotonic()
        while time.monotonic() < begun + 0.6:
            assert isinstance(await batchers.batchers[0].ask(send_call(free)), Answered)
            assert not waiting.done()
            await asyncio.sleep(0.1)
        await transaction.rollback()
        assert all(isinstance(answer, Answered) for answer in await waiting)


async def test_an_account_that_stays_locked_is_answered_503(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "PATIENCE_S", 0.1)
    monkeypatch.setattr(batcher, "LOCK_WAIT_MS", 500)
    locked = await new_caller(database_url)
    async with connected(database_url) as connection, open_batchers(database_url, 1) as batchers:
        async with connection.transaction():
            await connection.execute("SELECT FROM accounts WHERE id = $1 FOR UPDATE", locked.id)
            decision = await batchers.batchers[0].ask(send_call(locked))
        assert isinstance(decision, Refused)
        assert isinstance(decision.refusal, ServiceUnavailable)
        assert decision.refusal.retry_after_s == 1
        assert isinstance(await batchers.batchers[0].ask(send_call(locked)), Answered)


@pytest.mark.long
async def test_a_line_that_breaks_at_commit_is_answered_503_and_the_next_group_goes_through(
    database_url: str,
) -> None:
    callers = [await new_caller(database_url) for _ in range(8)]
    async with connected(database_url) as connection, open_batchers(database_url, 1) as batchers:
        await connection.execute(SLOW_COMMIT)
        group = asyncio.create_task(batchers.ask_all([send_call(caller) for caller in callers]))
        await cut_during_commit(connection)
        for decision in await group:
            assert isinstance(decision, Refused)
            assert isinstance(decision.refusal, ServiceUnavailable)
        await connection.execute("DROP TRIGGER slow_commit ON transfers")
        assert isinstance(await batchers.batchers[0].ask(read_call(callers[0])), Admitted)
        answers = await batchers.ask_all([send_call(caller) for caller in callers])
        assert all(isinstance(answer, Answered) for answer in answers)
        # What was answered 503 was cut before it was on disk: eight batches, not sixteen.
        assert await connection.fetchval("SELECT count(*) FROM batches") == 8
        assert await broken_promises(batchers.database) == []


async def cut_during_commit(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    for _ in range(200):
        cut = await connection.fetchval("""
            SELECT pg_terminate_backend(pid)
              FROM pg_stat_activity
             WHERE query LIKE 'COMMIT%' AND wait_event = 'PgSleep' AND datname = current_database()
        """)
        if cut:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("no commit was seen")


async def test_calls_that_arrive_together_share_few_transactions(database_url: str) -> None:
    callers = [await new_caller(database_url, rate=100_000) for _ in range(4)]
    async with connected(database_url) as connection, open_batchers(database_url, 1) as batchers:
        await batchers.ask_all([read_call(callers[0])])
        count = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        await connection.execute("SELECT pg_stat_force_next_flush()")
        before = await settled(connection, count)
        answers = await batchers.ask_all([send_call(callers[turn % 4]) for turn in range(256)])
        assert all(isinstance(answer, Answered) for answer in answers)
        # Four groups of 64; the rest of the difference are this test's own look-ups.
        assert await settled(connection, count) - before < 40


async def settled(connection: "asyncpg.Connection[asyncpg.Record]", query: str) -> int:
    """Return a statistic once it no longer changes by more than our own asking."""
    value = int(await connection.fetchval(query))
    for _ in range(5):
        await asyncio.sleep(0.15)
        value = int(await connection.fetchval(query))
    return value


@pytest.mark.long
async def test_a_passcode_is_answered_while_a_large_send_of_the_same_account_is_written(
    database_url: str,
) -> None:
    caller = await new_caller(database_url, balance="10000")
    numbers = [f"+2637712{number:05}" for number in range(1000)]
    async with connected(database_url) as connection, open_batchers(database_url, 1) as batchers:
        await connection.execute(SLOW_INSERT)
        bulk = asyncio.ensure_future(batchers.batchers[0].ask(send_call(caller, numbers)))
        while not await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        ):
            assert not bulk.done()
            await asyncio.sleep(0.01)
        assert isinstance(await batchers.batchers[0].ask(send_call(caller)), Answered)
        assert not bulk.done()
        assert isinstance(await bulk, Answered)
        assert await broken_promises(batchers.database) == []
