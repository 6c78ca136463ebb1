"""Database checks on a real server: durability, schema, clock, connections and backups."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import asyncpg
import pytest

from tests.support.chaos.shifted_clock import shift_clock
from tests.support.postgres.databases import clone
from tumira import audit_log
from tumira.operations.doctor import database as checks
from tumira.operations.doctor.diagnosis import Level
from tumira.operations.doctor.store import BackupAge, ServerFacts
from tumira.postgres.pool import Database

FACTS: Final = ServerFacts("18.0", True, True, "on", False, 100, 10, 1, None)  # noqa: FBT003 - as a row has them
DAY: Final = timedelta(days=1)


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (FACTS, Level.OK, "on disk"),
        (replace(FACTS, fsync=False), Level.PROBLEM, "fsync"),
        (replace(FACTS, full_page_writes=False), Level.PROBLEM, "full_page_writes"),
        (replace(FACTS, synchronous_commit="off"), Level.PROBLEM, "synchronous_commit"),
        (replace(FACTS, synchronous_commit="local", has_standby_names=True), Level.WARNING, "standby"),
        (replace(FACTS, synchronous_commit="local"), Level.OK, "on disk"),
    ],
)
def test_durability_is_judged_by_the_settings(facts: ServerFacts, level: Level, words: str) -> None:
    (found,) = checks.judge_durability(facts)
    assert (found.level, words in found.found) == (level, True)


def test_connections_have_to_be_enough() -> None:
    levels = [
        checks.judge_connections(replace(FACTS, connections=used), wanted).level
        for used, wanted in ((10, 60), (10, 101), (90, 60))
    ]
    assert levels == [Level.OK, Level.WARNING, Level.PROBLEM]


def test_a_backup_is_due_each_day() -> None:
    ages = [
        BackupAge(DAY, 9 * DAY),
        BackupAge(2 * DAY, 9 * DAY),
        BackupAge(None, 9 * DAY),
        BackupAge(None, DAY),
    ]
    found = [checks.judge_backup(age).level for age in ages]
    assert found == [Level.OK, Level.WARNING, Level.WARNING, Level.OK]


async def test_a_server_that_answers_before_it_writes_is_a_problem(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    await connection.close()
    database = Database(database_url, connections_max=1)
    async with database.connection() as again:
        found = await checks.check_server(again, with_disk=True)
        await again.execute(f'ALTER DATABASE "{name}" RESET synchronous_commit')
    await database.close()
    assert "answers; the database has" in found[0].found
    assert any("synchronous_commit is off" in one.found for one in found)
    # It runs on this machine, so its disk can be seen.
    assert "disk" in {one.subject for one in found}


async def test_a_database_is_current_after_its_migrations_only(server_url: str, database_url: str) -> None:
    with clone(server_url, "template1") as empty:
        for url, level in ((empty, Level.PROBLEM), (database_url, Level.OK)):
            database = Database(url, connections_max=1)
            async with database.connection() as connection:
                assert (await checks.check_schema(connection))[0].level is level
            await database.close()


async def test_a_backup_is_found_by_its_record(database_url: str) -> None:
    database = Database(database_url, connections_max=1)
    async with database.connection() as connection:
        await connection.execute("UPDATE schema_migrations SET applied_at = now() - interval '9 days'")
        (none,) = await checks.check_backup(connection)
        await audit_log.record_by_operator(connection, audit_log.OPERATOR, "backup made", "nightly")
        (made,) = await checks.check_backup(connection)
        await connection.execute("UPDATE operator_changes SET at = now() - interval '3 days'")
        (old,) = await checks.check_backup(connection)
    await database.close()
    assert (none.level, made.level, old.level) == (Level.WARNING, Level.OK, Level.WARNING)
    assert old.found == "The last backup is 3 days old."


async def test_a_clock_that_is_wrong_is_a_problem(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(database_url, connections_max=1)
    async with database.connection() as connection:
        (right,) = await checks.check_clock(connection)
        shift_clock(monkeypatch, timedelta(minutes=5))
        (wrong,) = await checks.check_clock(connection)
    await database.close()
    assert (right.level, wrong.level) == (Level.OK, Level.PROBLEM)
    assert "300 s ahead of the database's clock" in wrong.found
