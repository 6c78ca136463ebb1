"""Migrations: applied once, whichever node starts first."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support import WEEKS_AHEAD
from tests.support.postgres.databases import drop, execute
from tumira import VERSION
from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.delivery.store import binds
from tumira.postgres import migrate, nodes, partitions
from tumira.postgres.migrate import Migration, Patience, known
from tumira.postgres.pool import Database, check
from tumira.runtime import is_ready

HURRIED: Final = Patience(lock_ms=50, pause_s=0.05, tries_max=3, others_s=0.5)
OLD: Final = "9001_old_pre.sql"
NEW: Final = "9002_new_pre.sql"
CLEARED: Final = "9003_cleared_post.sql"
AGAIN: Final = "9004_again_pre.sql"
FILES: Final = {
    OLD: "CREATE TABLE cups (old text);\n",
    NEW: "ALTER TABLE cups ADD COLUMN new text;\n",
    CLEARED: "ALTER TABLE cups DROP COLUMN old;\n",
    AGAIN: "-- after 9003\nALTER TABLE cups ADD COLUMN old integer;\n",
}


@pytest.fixture
def empty_url(server_url: str) -> str:
    drop(server_url, "tumira_empty")
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
    with pytest.raises(OperatorError, match="0001_schema_pre was changed"):
        await migrate.migrate(database)
    await database.close()


def test_every_migration_has_a_number_of_its_own_and_they_rise() -> None:
    numbers = [migration.number for migration in known()]
    assert numbers == sorted(set(numbers))
    assert all(migration.name.endswith(("_pre", "_post")) for migration in known())


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url)
    yield opened
    await opened.close()


def release(directory: Path, *names: str) -> Sequence[Migration]:
    """Return the migrations of a release that has some more files than ours."""
    return later(directory, {name: FILES[name] for name in names})


def later(directory: Path, files: Mapping[str, str]) -> Sequence[Migration]:
    made = directory / "-".join(files)
    made.mkdir()
    for name, text in files.items():
        (made / name).write_text(text)
    return [*known(), *known(made)]


async def columns(database: Database) -> set[str]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'cups'"
        )
    return {row[0] for row in rows}


async def test_what_old_code_needs_is_taken_away_by_an_operator_and_not_by_a_start(
    database: Database, tmp_path: Path
) -> None:
    steps = release(tmp_path, OLD, NEW, CLEARED)
    assert await migrate.migrate(database, steps) == ["9001_old_pre", "9002_new_pre"]
    assert await columns(database) == {"old", "new"}
    async with database.connection() as connection:
        assert await migrate.is_current(connection, steps)
        assert await migrate.list_waiting(connection, steps) == ["9003_cleared_post"]

    finished = await migrate.finish(database, steps)

    assert (finished.applied, finished.problem) == (["9003_cleared_post"], None)
    assert await columns(database) == {"new"}
    assert await migrate.migrate(database, steps) == []
    async with database.connection() as connection:
        assert await migrate.list_waiting(connection, steps) == []


async def test_nothing_is_taken_away_while_a_node_of_an_older_version_runs(
    database: Database, tmp_path: Path
) -> None:
    steps = release(tmp_path, OLD, CLEARED)
    await migrate.migrate(database, steps)
    async with database.connection() as connection:
        await nodes.beat(connection, "new web", VERSION, 9003)
        await nodes.beat(connection, "old web", "0.0.9", 9002)
        await binds.heartbeat(connection, "old worker", 10)
        # Those that were killed are not waited for, and those of long ago said nothing of themselves.
        await nodes.beat(connection, "killed web", "0.0.9", 9002)
        await connection.execute(
            "UPDATE nodes SET seen_at = seen_at - interval '2 minutes' WHERE id = 'killed web'"
        )
        await connection.execute("INSERT INTO workers (id) VALUES ('silent worker')")

    finished = await migrate.finish(database, steps)
    assert finished.applied == []
    assert finished.problem == (
        "9003_cleared_post has to wait: older nodes run, old web (0.0.9), "
        f"old worker ({VERSION}), silent worker (no version). "
        "Stop them or start this version there, then try again."
    )
    assert await columns(database) == {"old"}

    async with database.connection() as connection:
        await nodes.forget(connection, "old web")
        await connection.execute("DELETE FROM workers")
    assert (await migrate.finish(database, steps)).problem is None
    assert await columns(database) == set()


async def test_what_may_be_added_is_added_though_something_cannot_be_taken_away_yet(
    database: Database, tmp_path: Path
) -> None:
    await migrate.migrate(database, release(tmp_path, OLD))
    async with database.connection() as connection:
        await nodes.beat(connection, "old web", "0.0.9", 9001)
    files = {CLEARED: FILES[CLEARED], AGAIN: FILES[AGAIN], "9005_more_pre.sql": FILES[NEW]}
    steps = later(tmp_path, {OLD: FILES[OLD]} | files)

    finished = await migrate.finish(database, steps)

    assert finished.applied == ["9005_more_pre"]
    assert finished.left == ["9003_cleared_post", "9004_again_pre"]
    assert await columns(database) == {"old", "new"}


async def test_a_step_that_needs_one_which_was_forgotten_says_so(database: Database, tmp_path: Path) -> None:
    await migrate.migrate(database, release(tmp_path, OLD, CLEARED))
    steps = release(tmp_path, OLD, CLEARED, AGAIN)

    with pytest.raises(
        OperatorError, match=r"9004_again_pre comes after 9003_cleared_post: run `tumira migrate --finish`"
    ):
        await migrate.migrate(database, steps)

    assert (await migrate.finish(database, steps)).applied == ["9003_cleared_post", "9004_again_pre"]


async def test_old_code_runs_on_a_schema_that_grew_and_refuses_one_that_lacks_what_it_needs(
    database: Database, tmp_path: Path
) -> None:
    steps = release(tmp_path, OLD, NEW, CLEARED)
    await migrate.migrate(database, steps)
    assert await migrate.migrate(database) == []
    assert await is_ready(database) is None

    await migrate.finish(database, steps)

    with pytest.raises(
        OperatorError, match=rf"^Tumira {VERSION} is older than the database, from which 9003_clea"
    ) as told:
        await migrate.migrate(database)
    assert "\n" not in str(told.value)
    assert await is_ready(database) == str(told.value)


@pytest.mark.long
async def test_an_empty_database_gets_all_of_it_at_once(empty_url: str, tmp_path: Path) -> None:
    database = Database(empty_url)
    steps = release(tmp_path, OLD, NEW, CLEARED, AGAIN)
    assert await migrate.migrate(database, steps) == [step.name for step in steps]
    assert await columns(database) == {"old", "new"}
    await database.close()


async def test_a_step_gives_way_to_those_who_hold_its_table_and_comes_again(
    database: Database, tmp_path: Path
) -> None:
    await migrate.migrate(database, release(tmp_path, OLD))
    holder = await asyncpg.connect(database.url)
    held = holder.transaction()
    await held.start()
    await holder.execute("LOCK TABLE cups IN ACCESS SHARE MODE")
    patience = Patience(lock_ms=50, pause_s=0.1, tries_max=1000)
    migrating = asyncio.create_task(migrate.migrate(database, release(tmp_path, OLD, NEW), patience))

    # Who comes while it wants the table waits for a moment, not until the holder is done.
    async with database.connection() as connection, asyncio.timeout(10):
        for _ in range(20):
            await connection.execute("INSERT INTO cups VALUES ('tea')")
            await asyncio.sleep(0.02)
    assert not migrating.done()
    await held.rollback()

    assert await migrating == ["9002_new_pre"]
    await holder.close()


async def test_a_table_that_is_never_free_is_said_in_one_line(database: Database, tmp_path: Path) -> None:
    await migrate.migrate(database, release(tmp_path, OLD))
    holder = await asyncpg.connect(database.url)
    async with holder.transaction():
        await holder.execute("LOCK TABLE cups IN ACCESS SHARE MODE")
        with pytest.raises(OperatorError, match="Migration 9002_new_pre does not get its locks"):
            await migrate.migrate(database, release(tmp_path, OLD, NEW), HURRIED)
    await holder.close()


async def test_who_waits_for_a_node_that_migrates_says_so_at_last(database: Database) -> None:
    other = await asyncpg.connect(database.url)
    assert await other.fetchval(f"SELECT pg_try_advisory_lock({migrate.MIGRATION_LOCK})")
    with pytest.raises(OperatorError, match=r"Another node has migrated for 0\.5 s"):
        await migrate.migrate(database, patience=HURRIED)
    await other.close()


INDEX_FILE: Final = """\
-- An index on every week, built beside those who write.
-- outside a transaction
CREATE INDEX IF NOT EXISTS messages_by_cost ON ONLY messages (cost);
-- for each week of messages without messages_by_cost
DROP INDEX CONCURRENTLY IF EXISTS {week}_by_cost;
CREATE INDEX CONCURRENTLY {week}_by_cost ON {week} (cost);
ALTER INDEX messages_by_cost ATTACH PARTITION {week}_by_cost;
"""

SQL_INDEXED: Final = """
SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid
 WHERE relname LIKE 'messages%by_cost' OR relname LIKE 'messages%cost_idx'
   AND indisvalid
 ORDER BY relname
"""


async def test_an_index_is_built_week_by_week_beside_those_who_write(
    database: Database, tmp_path: Path
) -> None:
    steps = later(tmp_path, {"9001_cost_pre.sql": INDEX_FILE})
    async with database.connection() as connection:
        weeks = await partitions.names(connection, "messages")
        # As a crash leaves it: the first week done, the second one half.
        await connection.execute(
            "CREATE INDEX messages_by_cost ON ONLY messages (cost);"
            f"CREATE INDEX {weeks[0]}_by_cost ON {weeks[0]} (cost);"
            f"ALTER INDEX messages_by_cost ATTACH PARTITION {weeks[0]}_by_cost;"
            f"CREATE INDEX {weeks[1]}_by_cost ON {weeks[1]} (cost);"
        )
    # A write that is under way holds the table, and is not waited for by others who write.
    writer = await asyncpg.connect(database.url)
    writing = writer.transaction()
    await writing.start()
    await writer.execute("LOCK TABLE messages IN ROW EXCLUSIVE MODE")
    migrating = asyncio.create_task(migrate.migrate(database, steps, Patience(lock_ms=50, pause_s=0.05)))
    async with database.connection() as connection, asyncio.timeout(20):
        for _ in range(20):
            async with connection.transaction():
                await connection.execute("LOCK TABLE messages IN ROW EXCLUSIVE MODE")
            await asyncio.sleep(0.01)
    await writing.rollback()
    await writer.close()

    assert await migrating == ["9001_cost_pre"]

    async with database.connection() as connection:
        indexed = [row[0] for row in await connection.fetch(SQL_INDEXED)]
        assert indexed == sorted(["messages_by_cost", *(f"{week}_by_cost" for week in weeks)])
        # The weeks to come have it too.
        await connection.execute(f"DROP TABLE {weeks[-1]}")
        await partitions.create_ahead(connection)
        assert len(await connection.fetch(SQL_INDEXED)) == len(indexed)
    assert await migrate.migrate(database, steps) == []


@pytest.mark.parametrize(
    ("url", "said", "may_pass"),
    [
        ("postgresql://nobody@127.0.0.1:9/none", "cannot be reached; check TUMIRA_DATABASE_URL", True),
        ("mysql://somewhere", "TUMIRA_DATABASE_URL", False),
    ],
)
async def test_a_database_that_cannot_be_used_is_said_in_one_line(
    url: str, said: str, *, may_pass: bool
) -> None:
    with pytest.raises(OperatorError, match=said) as error:
        await check(url)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, TemporaryOperatorError) == may_pass


async def test_a_database_that_does_not_exist_is_said_in_one_line(server_url: str) -> None:
    with pytest.raises(OperatorError, match="names a database that does not exist") as error:
        await check(server_url.replace("/tumira?", "/no_such_database?"))
    assert not isinstance(error.value, TemporaryOperatorError)


async def test_eight_weeks_are_ready_and_the_missing_ones_are_made(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "WEEKS_AHEAD", WEEKS_AHEAD)
    connection = await asyncpg.connect(database_url)
    assert len(await partitions.create_ahead(connection)) == 5 * len(partitions.TABLES)
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
