"""Maintenance tasks: one node at a time, and nothing deleted that is needed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.support.processes.service import new_caller
from tests.support.sending.batchers import open_batchers, send_call
from tumira.operations import maintenance
from tumira.operations.maintenance import MAINTENANCE_TASKS, MaintenanceTask, run_task
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.sending.types import Answered

BY_NAME: Final = {task.name: task for task in MAINTENANCE_TASKS}
PARTITIONS: Final = BY_NAME["create partitions"]
KEYS: Final = BY_NAME["forget idempotency keys"]
TEXTS: Final = BY_NAME["erase texts"]
UNMATCHED: Final = BY_NAME["forget unmatched receipts"]


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


async def test_missing_weeks_are_made(database: Database) -> None:
    async with database.connection() as connection:
        last = (await partitions.names(connection, "batches"))[-1]
        await connection.execute(f"DROP TABLE {last}")
    assert await run_task(database, PARTITIONS) == 1
    assert await run_task(database, PARTITIONS) == 0


async def test_answers_are_forgotten_after_72_hours_and_not_before(
    database_url: str, database: Database
) -> None:
    caller = await new_caller(database_url)
    async with open_batchers(database_url, 1) as batchers:
        for key in ("old-key", "new-key"):
            assert isinstance(
                await batchers.batchers[0].ask(send_call(caller, idempotency_key=key)), Answered
            )
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE idempotency_keys SET created_at = now() - interval '73 hours' WHERE key = 'old-key'"
        )
        await connection.execute(
            "UPDATE idempotency_keys SET created_at = now() - interval '71 hours' WHERE key = 'new-key'"
        )
    assert await run_task(database, KEYS) == 1
    async with database.connection() as connection:
        assert [row["key"] for row in await connection.fetch("SELECT key FROM idempotency_keys")] == [
            "new-key"
        ]


async def test_texts_are_erased_seven_days_after_their_batch_was_completed_and_not_before(
    database_url: str, database: Database
) -> None:
    caller = await new_caller(database_url)
    async with open_batchers(database_url, 1) as batchers:
        for body in ("Your code is 1.", "Your code is 2.", "Your code is 3."):
            assert isinstance(await batchers.batchers[0].ask(send_call(caller, body=body)), Answered)
    async with database.connection() as connection:
        for body, days in (("Your code is 1.", 8), ("Your code is 2.", 6)):
            await connection.execute(
                "UPDATE batches SET completed_at = now() - make_interval(days => $2) WHERE body = $1",
                body,
                days,
            )
    assert await run_task(database, TEXTS) == 1
    assert await run_task(database, TEXTS) == 0
    async with database.connection() as connection:
        bodies = [row["body"] for row in await connection.fetch("SELECT body FROM batches ORDER BY id")]
    assert bodies == [None, "Your code is 2.", "Your code is 3."]


async def test_receipts_that_match_nothing_are_forgotten_after_72_hours_and_not_before(
    database: Database,
) -> None:
    async with database.connection() as connection:
        await connection.execute("""
            INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, receipt, received_at,
                                            next_try_at)
            SELECT 1, 'after ' || hours, '263771200001', 'DELIVRD', '',
                   now() - make_interval(hours => hours), now()
              FROM unnest(ARRAY[71, 73]) AS hours
        """)
    assert await run_task(database, UNMATCHED) == 1
    async with database.connection() as connection:
        kept = await connection.fetch("SELECT carrier_ref FROM unmatched_receipts")
    assert [row["carrier_ref"] for row in kept] == ["after 71"]


def test_no_two_chores_have_the_same_name() -> None:
    assert len(BY_NAME) == len(MAINTENANCE_TASKS)


async def test_a_chore_runs_on_one_node_at_a_time(database: Database) -> None:
    running = asyncio.Event()
    finish = asyncio.Event()

    async def slow(_connection: Connection) -> int:
        running.set()
        await finish.wait()
        return 1

    task = MaintenanceTask("slow", 1, slow)
    first = asyncio.create_task(run_task(database, task))
    await running.wait()
    assert await run_task(database, task) == 0
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

    monkeypatch.setattr(maintenance, "MAINTENANCE_TASKS", (MaintenanceTask("fails once", 0.01, fails_once),))
    work = asyncio.create_task(maintenance.run_maintenance(database))
    await asyncio.wait_for(done.wait(), 10)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_tries_of_webhooks_are_dropped_after_five_weeks(database: Database) -> None:
    async with database.connection() as connection:
        before = await partitions.names(connection, "webhook_attempts")
        old = "webhook_attempts_2020w10"
        await connection.execute(
            f"CREATE TABLE {old} PARTITION OF webhook_attempts FOR VALUES"
            " FROM ('01700000-0000-0000-0000-000000000000') TO ('01701000-0000-0000-0000-000000000000')"
        )

    assert await run_task(database, BY_NAME["drop old tries of webhooks"]) == 1

    async with database.connection() as connection:
        assert await partitions.names(connection, "webhook_attempts") == before
