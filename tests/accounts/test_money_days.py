"""Money by day is the ledger's, whenever it is read and however transactions overlap."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

import asyncpg
import pytest

from tests.support.maintenance import run_named
from tests.support.processes.service import Caller
from tumira.accounts import money_days
from tumira.core.days import local_day
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

ADD_UP: Final = "add up money by day"
COUNT: Final = 2_000
TURNS_MAX: Final = 500
TODAY: Final = local_day(datetime.now(UTC))
FIRST: Final = TODAY - timedelta(days=2)

# One every five minutes over seven days, the last one now; also on both sides of each local midnight.
FILL: Final = f"""
WITH made AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id, top_up_id, note,
                           actor, created_at)
    SELECT $1,
           CASE n % 10 WHEN 0 THEN 'topup:paynow' WHEN 1 THEN 'topup:usdt' WHEN 2 THEN 'adjustment'
                       WHEN 3 THEN 'revenue' ELSE 'customer' END,
           CASE WHEN n % 10 < 4 THEN 'customer' WHEN n % 10 = 4 THEN 'adjustment'
                WHEN n % 10 = 5 THEN 'topup:paynow' ELSE 'revenue' END,
           CASE WHEN n % 10 < 4 THEN 10 ELSE 0.0001 * (n % 7 + 1) END,
           CASE WHEN n % 10 = 3 OR n % 10 > 5 THEN gen_random_uuid() END,
           CASE WHEN n % 10 = 3 THEN gen_random_uuid() END,
           CASE WHEN n % 10 IN (0, 1, 5) THEN gen_random_uuid() END,
           'a note', 'test', now() - ({COUNT} - n) * interval '5 minutes'
      FROM generate_series(1, {COUNT}) AS n
    RETURNING CASE WHEN to_book = 'customer' THEN amount ELSE -amount END AS amount
)
UPDATE accounts SET balance = balance + (SELECT sum(amount) FROM made) WHERE id = $1
"""
LEDGER: Final = """
SELECT CASE WHEN day >= $1 THEN day END AS day, from_book, to_book, count(*), sum(amount)
  FROM (SELECT (created_at AT TIME ZONE 'Africa/Harare')::date AS day, * FROM transfers) AS dated
 GROUP BY 1, 2, 3 ORDER BY 1 NULLS FIRST, 2, 3
"""
ONE: Final = """
INSERT INTO transfers (account_id, from_book, to_book, amount, note, actor)
VALUES ($1, 'adjustment', 'customer', 1, 'a note', 'test')
"""


async def differs(connection: Connection, first_day: date = FIRST) -> bool:
    """Tell whether the totals are not those of the ledger."""
    read = await money_days.read(connection, first_day, TODAY)
    assert read.is_complete
    rows = await connection.fetch(LEDGER, first_day)
    return [tuple(row) for row in rows] != [
        (one.day, one.from_book, one.to_book, one.transfers, one.amount) for one in read.totals
    ]


async def rest(connection: Connection) -> int:
    """Return how many transfers are not added up yet."""
    count = await connection.fetchval(
        "SELECT count(*) FROM transfers WHERE id > (SELECT transfer_id FROM money_cursor)"
    )
    assert isinstance(count, int)
    return count


async def add_all(database: Database) -> None:
    """Add up all transfers. Transactions of other databases on this server may delay it."""
    async with database.connection() as connection:
        for _ in range(TURNS_MAX):
            await run_named(database, ADD_UP)
            if not await rest(connection):
                return
            await asyncio.sleep(0.02)
    raise AssertionError("some transfers are never added up")


async def test_the_totals_are_those_of_the_ledger_at_every_step(database: Database, caller: Caller) -> None:
    async with database.connection() as connection:
        await connection.execute(FILL, caller.id)
        for _ in range(TURNS_MAX):
            assert not await differs(connection)
            if not await rest(connection):
                break
            async with database.transaction() as task:
                if not await money_days.add_up(task, transfers_max=300):
                    await asyncio.sleep(0.02)
        assert await rest(connection) == 0
        # What is owed is the sum of all balances.
        totals = (await money_days.read(connection, FIRST, TODAY)).totals
        owed = sum(one.amount if one.to_book == "customer" else -one.amount for one in totals)
        assert owed == await connection.fetchval("SELECT sum(balance) FROM accounts")
        await connection.execute(FILL, caller.id)
        assert not await differs(connection, TODAY)
        # While many are not added up yet, this is said.
        assert not (await money_days.read(connection, FIRST, TODAY, tail_max=100)).is_complete
    await add_all(database)
    async with database.connection() as connection:
        assert not await differs(connection)


@pytest.mark.parametrize("is_careless", [False, True])
async def test_a_transfer_that_is_committed_late_is_counted(
    database: Database, database_url: str, caller: Caller, *, is_careless: bool
) -> None:
    late = await asyncpg.connect(database_url)
    async with database.connection() as connection:
        begun = late.transaction()
        await begun.start()
        await late.execute("SELECT FROM accounts WHERE phone = 'system' FOR UPDATE")
        await late.execute(ONE, caller.id)
        # This one has a higher id.
        await connection.execute(ONE, caller.id)
        for _ in range(4):
            await run_named(database, ADD_UP)
            if is_careless:
                await connection.execute("UPDATE money_cursor SET ready_xid = 0")
            assert is_careless or not await differs(connection)
        await begun.commit()
        await add_all(database)
        # Without waiting for older transactions it is lost.
        assert await differs(connection) is is_careless
    await late.close()


async def test_totals_go_on_after_a_restore_into_another_server(database: Database, caller: Caller) -> None:
    async with database.connection() as connection:
        await connection.execute(ONE, caller.id)
        await connection.execute("UPDATE money_cursor SET ready_xid = $1", 1 << 60)
        await add_all(database)
        assert not await differs(connection)
        assert Decimal(1) <= sum(
            one.amount for one in (await money_days.read(connection, FIRST, TODAY)).totals
        )
