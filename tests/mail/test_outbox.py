"""Claims of due mails, and the deletion of expired ones."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest_asyncio

from tumira.core.ids import new_id
from tumira.mail import outbox
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import KEY_LOOKUPS, Database

FORGET: Final = next(task for task in MAINTENANCE_TASKS if task.name == "forget old mails")
SOON: Final = timedelta(minutes=10)
LEASE_S: Final = 60.0


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, settings=KEY_LOOKUPS)
    yield database
    await database.close()


async def put(database: Database, recipient: str = "anna@example.org", expires_in: timedelta = SOON) -> UUID:
    now = datetime.now(UTC)
    mail_id = new_id(int(now.timestamp() * 1000))
    async with database.transaction() as connection:
        await outbox.insert(connection, mail_id, recipient, "Your code", "493817 📨\n", now + expires_in)
    return mail_id


async def claim(database: Database, count_max: int = 10) -> list[outbox.Mail]:
    async with database.transaction() as connection:
        return list(await outbox.claim_due(connection, count_max, LEASE_S))


async def execute(database: Database, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    async with database.connection() as connection:
        return await connection.fetch(statement, *arguments)


async def due_in_s(database: Database) -> float:
    rows = await execute(
        database, "SELECT extract(epoch FROM due_at - clock_timestamp())::float8 AS wait_s FROM mails"
    )
    return float(rows[0]["wait_s"])


async def test_a_mail_is_due_as_soon_as_it_was_written_and_leased_when_it_is_claimed(
    database: Database,
) -> None:
    mail_id = await put(database)

    (mail,) = await claim(database)

    assert (mail.id, mail.recipient, mail.tries) == (mail_id, "anna@example.org", 1)
    assert (mail.subject, mail.body) == ("Your code", "493817 📨\n")
    assert 590 < mail.left_s < 601
    for secret in ("anna", "code", "493817"):
        assert secret not in repr(mail)
    assert await claim(database) == []
    assert LEASE_S - 10 < await due_in_s(database) <= LEASE_S
    await execute(database, "UPDATE mails SET due_at = due_at - interval '60 seconds'")
    assert [(mail.id, mail.tries) for mail in await claim(database)] == [(mail_id, 2)]


async def test_longest_waiting_mails_are_claimed_first_and_locked_ones_skipped(database: Database) -> None:
    ids = [await put(database) for _ in range(5)]
    await execute(database, "UPDATE mails SET due_at = now() - interval '1 hour' WHERE id = $1", ids[3])

    assert [mail.id for mail in await claim(database, 1)] == [ids[3]]
    async with database.transaction() as connection:
        await connection.execute("SELECT FROM mails WHERE id = $1 FOR UPDATE", ids[0])
        assert {mail.id for mail in await claim(database, 2)} == set(ids[1:3])


async def test_expired_mails_are_not_claimed_but_deleted(database: Database) -> None:
    await put(database, "old@example.org", timedelta(seconds=-1))
    assert await claim(database) == []
    await put(database, "new@example.org")

    assert [await run_task(database, FORGET) for _ in range(2)] == [1, 0]

    rows = await execute(database, "SELECT recipient FROM mails")
    assert [row["recipient"] for row in rows] == ["new@example.org"]


async def test_a_claim_reads_due_mails_only(database: Database) -> None:
    await execute(
        database,
        "INSERT INTO mails (id, recipient, subject, body, expires_at, due_at)"
        " SELECT gen_random_uuid(), 'a@example.org', 's', 'b', now() + interval '1 day',"
        "        now() + interval '1 hour'"
        "   FROM generate_series(1, 2000)",
    )
    async with database.transaction() as connection:
        await connection.execute(f"PREPARE looking AS {outbox.SQL_CLAIM_DUE.text}")
        plan = await connection.fetch(
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE looking (4, interval '60 seconds')"
        )
        lines = "\n".join(row[0] for row in plan)
        await connection.execute("DEALLOCATE looking")
    assert "Index Cond: (due_at <= statement_timestamp())" in lines
    assert "Seq Scan" not in lines
