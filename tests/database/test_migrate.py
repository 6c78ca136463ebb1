"""Does the schema come to be once, whoever starts and however often?"""

import asyncio

import asyncpg
import pytest

from tests.support.postgres import execute
from tumira.errors import Trouble
from tumira.store import migrate, partitions
from tumira.store.database import Database, check
from tumira.store.migrate import known


@pytest.fixture
def empty_url(server_url: str) -> str:
    """Give a database without any table."""
    execute(server_url, "DROP DATABASE IF EXISTS tumira_empty WITH (FORCE)")
    execute(server_url, "CREATE DATABASE tumira_empty TEMPLATE template0")
    return server_url.replace("/tumira?", "/tumira_empty?")


async def test_ten_nodes_that_start_at_once_migrate_once(empty_url: str) -> None:
    databases = [Database(empty_url, connections_max=1) for _ in range(10)]
    applied = await asyncio.gather(*(migrate.migrate(database) for database in databases))
    assert max(applied, key=len) == [migration.name for migration in known()]
    assert sum(bool(names) for names in applied) == 1
    async with databases[0].connection() as connection:
        assert await migrate.is_current(connection)
        assert await connection.fetchval("SELECT count(*) FROM destinations") == 2
    for database in databases:
        await database.close()


async def test_a_database_without_tables_is_not_current(empty_url: str) -> None:
    connection = await asyncpg.connect(empty_url)
    assert not await migrate.is_current(connection)
    await connection.close()


async def test_a_migration_that_was_edited_after_it_ran_is_refused(database_url: str) -> None:
    database = Database(database_url, connections_max=1)
    async with database.connection() as connection:
        await connection.execute("UPDATE schema_migrations SET checksum = 'x' WHERE number = 1")
    with pytest.raises(Trouble, match="0001_spine_pre was changed"):
        await migrate.migrate(database)
    await database.close()


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    assert [migration.number for migration in known()] == list(range(1, len(known()) + 1))
    assert all(migration.name.endswith(("_pre", "_post")) for migration in known())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://nobody@127.0.0.1:9/none", "cannot be reached; check TUMIRA_DATABASE_URL"),
        ("mysql://somewhere", "check TUMIRA_DATABASE_URL"),
    ],
)
async def test_a_database_that_cannot_be_used_is_said_in_one_line(url: str, said: str) -> None:
    with pytest.raises(Trouble, match=said) as trouble:
        await check(url)
    assert "\n" not in str(trouble.value)


async def test_a_database_that_does_not_exist_is_said_in_one_line(server_url: str) -> None:
    with pytest.raises(Trouble, match="names a database that does not exist"):
        await check(server_url.replace("/tumira?", "/no_such_database?"))


async def test_eight_weeks_are_ready_and_the_missing_ones_are_made(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    assert await partitions.weeks_left(connection) == 8
    last = (await partitions.names(connection, "messages"))[-1]
    await connection.execute(f"DROP TABLE {last}")
    assert await partitions.weeks_left(connection) == 7
    assert await partitions.create_ahead(connection) == [last]
    assert await partitions.weeks_left(connection) == 8
    await connection.close()


async def test_a_new_week_is_attached_while_others_write(database_url: str) -> None:
    connection, other = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    last = (await partitions.names(connection, "messages"))[-1]
    await connection.execute(f"DROP TABLE {last}")
    async with other.transaction():
        await other.execute("LOCK TABLE messages IN ROW EXCLUSIVE MODE")
        async with asyncio.timeout(5):
            assert await partitions.create_ahead(connection) == [last]
    await connection.close()
    await other.close()
