"""A database that a test gets after another test is as good as new, or is dropped."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import asyncpg
import pytest

from tests.support.delivery.settling import open_world
from tests.support.postgres.databases import TEMPLATE, Pool, open_pool, sibling
from tests.support.postgres.renewal import SQL_FILLED, SQL_SEQUENCES, SQL_SHAPE, shape_of

SQL_NUMBER: Final = "SELECT oid FROM pg_database WHERE datname = current_database()"
SQL_NAMED: Final = "SELECT count(*) FROM pg_database WHERE datname = $1"

# What a test may do to what the migrations brought, and to what is not undone with a transaction.
USES: Final = """
UPDATE prices SET price_usd = price_usd * 2;
DELETE FROM prices WHERE country = 'ZA';
INSERT INTO destinations (country, calling_code, name, national_lengths)
VALUES ('ZM', '260', 'Zambia', '{9}');
UPDATE accounts SET balance = balance + 1;
UPDATE schema_migrations SET name = 'another';
SELECT nextval('unmatched_receipts_id_seq');
ALTER TABLE transfers DISABLE TRIGGER USER;
"""

CHANGES: Final = [
    "CREATE TABLE notes ()",
    "DROP TABLE queue",
    "ALTER TABLE queue RENAME TO line",
    "ALTER TABLE queue ADD COLUMN note text",
    "ALTER TABLE accounts ALTER COLUMN business DROP NOT NULL",
    "ALTER TABLE accounts ALTER COLUMN balance SET DEFAULT 5",
    "ALTER TABLE accounts ALTER COLUMN phone SET STATISTICS 7",
    "ALTER TABLE accounts DROP CONSTRAINT accounts_balance_check",
    "ALTER TABLE changes ADD CHECK (actor <> 'nobody')",
    "ALTER TABLE queue SET (fillfactor = 50)",
    "ALTER TABLE queue SET UNLOGGED",
    "ALTER SEQUENCE transfers_id_seq INCREMENT 5",
    "ALTER TABLE transfers DISABLE TRIGGER USER",
    "DROP TRIGGER transfers_are_final ON transfers",
    "CREATE OR REPLACE FUNCTION transfers_are_final() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'",
    "CREATE INDEX somewhere ON accounts (name)",
    "DROP INDEX transfers_of_account",
    "CREATE VIEW richest AS SELECT max(balance) FROM accounts",
    "CREATE TYPE mood AS ENUM ('good', 'bad')",
    "CREATE SCHEMA another",
    "CREATE RULE silent AS ON DELETE TO queue DO INSTEAD NOTHING",
    "GRANT SELECT ON accounts TO PUBLIC",
    "ANALYZE prices",
    "SELECT lo_create(0)",
]


@pytest.fixture
def pool(server_url: str) -> Iterator[Pool]:
    with open_pool(server_url) as opened:
        yield opened


@pytest.fixture(scope="module")
async def connection(server_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    with open_pool(server_url) as pool:
        name = pool.take()
        line = await asyncpg.connect(sibling(server_url, name))
        yield line
        await line.close()
        pool.throw_away(name)
        pool.settle()


async def ask(url: str, statement: str, *arguments: Any) -> Any:
    line = await asyncpg.connect(url)
    try:
        return await line.fetchval(statement, *arguments)
    finally:
        await line.close()


async def everything(url: str) -> dict[str, Any]:
    """Return all rows of all tables, where the sequences stand, and all that describes the schema."""
    line = await asyncpg.connect(url)
    try:
        return {
            "rows": {
                table: [tuple(row) for row in await line.fetch(f"SELECT * FROM {table}")]
                for (table,) in await line.fetch(SQL_FILLED)
            },
            "sequences": {tuple(row) for row in await line.fetch(SQL_SEQUENCES)},
            "shape": {tuple(row) for row in await line.fetch(SQL_SHAPE)},
        }
    finally:
        await line.close()


async def use(url: str) -> None:
    """Do what tests do: messages in all stages, and other rows than the migrations brought."""
    async with open_world(url) as world:
        await world.send(3)
        claimed = await world.claim(2)
        await world.settle(world.taken(claimed[0]), world.doubtful(claimed[1]))
        await world.settle(world.reported(claimed[0]))
    line = await asyncpg.connect(url)
    await line.execute(USES)
    await line.close()


async def test_a_used_database_comes_back_like_a_fresh_one(server_url: str, pool: Pool) -> None:
    fresh = await everything(sibling(server_url, TEMPLATE))
    name = pool.take()
    number = await ask(sibling(server_url, name), SQL_NUMBER)
    await use(sibling(server_url, name))
    used = await everything(sibling(server_url, name))
    assert len(used["rows"]) > len(fresh["rows"]) + 10
    assert [used[part] == fresh[part] for part in fresh] == [False, False, False]

    pool.give_back(name)
    pool.settle()

    again = sibling(server_url, pool.take())
    assert await ask(again, SQL_NUMBER) == number
    assert await everything(again) == fresh


@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_schema_is_noticed(
    connection: "asyncpg.Connection[asyncpg.Record]", change: str
) -> None:
    before = await shape_of(connection)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(change)
    assert await shape_of(connection) != before
    await transaction.rollback()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE accounts DROP CONSTRAINT accounts_balance_check",
        "DROP TABLE prices",
        "ALTER DATABASE {name} SET lock_timeout = '1s'",
    ],
)
async def test_a_database_whose_schema_or_settings_were_changed_does_not_come_back(
    server_url: str, pool: Pool, change: str
) -> None:
    name = pool.take()
    number = await ask(sibling(server_url, name), SQL_NUMBER)
    await ask(sibling(server_url, name), change.format(name=name))

    pool.give_back(name)
    pool.settle()

    assert await ask(server_url, "SELECT count(*) FROM pg_database WHERE oid = $1", number) == 0
    assert await ask(sibling(server_url, pool.take()), SQL_NUMBER) != number


async def test_nobody_who_stayed_behind_reaches_a_database_that_was_given_back(
    server_url: str, pool: Pool
) -> None:
    name = pool.take()
    left = await asyncpg.connect(sibling(server_url, name))
    await left.execute("BEGIN; LOCK TABLE accounts")

    pool.give_back(name)
    pool.settle()

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await left.execute("COMMIT")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(sibling(server_url, name))
    assert await ask(server_url, SQL_NAMED, pool.take()) == 1
