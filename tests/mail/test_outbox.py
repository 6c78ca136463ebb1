"""Are mails that wait claimed by one worker at a time, and forgotten when they are too old?"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest_asyncio

from tumira.core.ids import new_id
from tumira.mail import outbox
from tumira.operations.maintenance import CHORES, run_chore
from tumira.postgres.pool import KEY_LOOKUPS, Database

FORGET: Final = next(chore for chore in CHORES if chore.name == "forget old mails")
SOON: Final = timedelta(minutes=10)
LEASE_S: Final = 60.0


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Give an open database, with a worker's settings."""
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


async def test_a_mail_is_due_as_soon_as_it_was_written(database: Database) -> None:
    mail_id = await put(database)

    (mail,) = await claim(database)

    assert (mail.id, mail.recipient, mail.tries) == (mail_id, "anna@example.org", 1)
    assert (mail.subject, mail.body) == ("Your code", "493817 📨\n")
    assert 590 < mail.left_s < 601
    for secret in ("anna", "code", "493817"):
        assert secret not in repr(mail)


async def test_what_was_claimed_is_nobody_elses_until_the_lease_has_ended(database: Database) -> None:
    mail_id = await put(database)
    assert [mail.id for mail in await claim(database)] == [mail_id]
    assert await claim(database) == []
    assert LEASE_S - 10 < await due_in_s(database) <= LEASE_S

    await execute(database, "UPDATE mails SET due_at = due_at - interval '60 seconds'")

    assert [(mail.id, mail.tries) for mail in await claim(database)] == [(mail_id, 2)]


async def test_those_that_wait_longest_come_first(database: Database) -> None:
    ids = [await put(database) for _ in range(5)]
    await execute(database, "UPDATE mails SET due_at = now() - interval '1 hour' WHERE id = $1", ids[3])

    assert [mail.id for mail in await claim(database, 1)] == [ids[3]]
    assert {mail.id for mail in await claim(database, 2)} == set(ids[:2])


async def test_several_who_claim_at_once_get_different_mails(database: Database) -> None:
    ids = {await put(database) for _ in range(20)}

    claims = await asyncio.gather(*(claim(database, 4) for _ in range(5)))

    claimed = [mail.id for one in claims for mail in one]
    assert len(claimed) == len(set(claimed))
    assert set(claimed) | {mail.id for mail in await claim(database, 20)} == ids


async def test_a_mail_that_somebody_holds_is_passed_over(database: Database) -> None:
    held, free = await put(database), await put(database)
    async with database.transaction() as connection:
        await connection.execute("SELECT FROM mails WHERE id = $1 FOR UPDATE", held)
        assert [mail.id for mail in await claim(database)] == [free]


async def test_a_claim_that_is_undone_counts_for_nothing(database: Database) -> None:
    await put(database)
    async with database.connection() as connection:
        undone = connection.transaction()
        await undone.start()
        assert len(await outbox.claim_due(connection, 10, LEASE_S)) == 1
        await undone.rollback()

    assert [mail.tries for mail in await claim(database)] == [1]


async def test_a_mail_that_was_put_off_is_not_due_before_its_time(database: Database) -> None:
    mail_id = await put(database)
    await claim(database)
    async with database.connection() as connection:
        await outbox.put_off(connection, mail_id, 15)
    assert 5 < await due_in_s(database) <= 15
    assert await claim(database) == []

    async with database.connection() as connection:
        await outbox.put_off(connection, mail_id, 0)
    assert [mail.tries for mail in await claim(database)] == [2]


async def test_a_mail_that_was_sent_is_gone(database: Database) -> None:
    sent, other = await put(database), await put(database)
    async with database.connection() as connection:
        await outbox.delete(connection, sent)
        await outbox.delete(connection, sent)
    assert [mail.id for mail in await claim(database)] == [other]


async def test_a_mail_that_is_too_old_is_not_claimed(database: Database) -> None:
    await put(database, expires_in=timedelta(seconds=-1))
    assert await claim(database) == []


async def test_mails_that_are_too_old_are_forgotten_and_others_are_not(database: Database) -> None:
    await put(database, "old@example.org", timedelta(seconds=-1))
    await put(database, "new@example.org")

    assert await run_chore(database, FORGET) == 1
    assert await run_chore(database, FORGET) == 0

    rows = await execute(database, "SELECT recipient FROM mails")
    assert [row["recipient"] for row in rows] == ["new@example.org"]


async def test_no_more_are_forgotten_at_once_than_is_asked_for(database: Database) -> None:
    for _ in range(5):
        await put(database, expires_in=timedelta(seconds=-1))
    async with database.connection() as connection:
        assert [await outbox.delete_expired(connection, 2) for _ in range(4)] == [2, 2, 1, 0]


async def test_looking_for_mails_reads_only_what_is_due(database: Database) -> None:
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
