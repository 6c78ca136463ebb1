"""Database side of backups and restores: what is counted, required, locked and cleared.

While a database is being restored its `schema_migrations` exists and is empty: a node that starts on it then
fails to migrate it, and the next restore knows that it may clear it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tumira.core.errors import OperatorError
from tumira.operations.backup.files import AppliedMigration
from tumira.postgres.connection import Connection
from tumira.postgres.migrate import MIGRATION_LOCK
from tumira.postgres.statement import Statement

LONG_S: Final = 24 * 3600
DROPPED_AT_ONCE: Final = 50

# For a connection on which a transaction may be idle while a program works. Its name keeps it from being
# counted as a node.
PATIENT: Final = {"application_name": "tumira backup", "idle_in_transaction_session_timeout": "0"}


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot of a database that other connections can use as long as ours is open."""

    snapshot: str
    at: datetime
    database_schema: str
    postgresql: str
    version: int
    accounts: int
    messages: int
    steps: Sequence[AppliedMigration]


SQL_IS_OURS: Final = Statement("SELECT to_regclass('schema_migrations') IS NOT NULL")

SQL_MOMENT: Final = Statement("""
SELECT pg_export_snapshot() AS snapshot, now() AS at, current_schema() AS database_schema,
       current_setting('server_version') AS postgresql,
       current_setting('server_version_num')::integer / 10000 AS version
""")

SQL_STEPS: Final = Statement(
    "SELECT number, name, checksum, applied_at FROM schema_migrations ORDER BY number"
)

SQL_COUNT: Final = Statement("""
SELECT (SELECT count(*) FROM accounts) AS accounts, (SELECT count(*) FROM messages) AS messages
""")


SQL_IS_UNFINISHED: Final = Statement("SELECT NOT EXISTS (SELECT FROM schema_migrations)")


async def check_whole(connection: Connection) -> None:
    """Refuse a database that is not Tumira's, or not completely restored."""
    if not await SQL_IS_OURS.value(connection):
        raise OperatorError(
            "The database has no tables of Tumira: check TUMIRA_DATA_DIR or TUMIRA_DATABASE_URL."
        )
    if await SQL_IS_UNFINISHED.value(connection):
        raise OperatorError(
            "The database is the rest of a restore that was not finished: run `tumira restore` again."
        )


async def read_moment(connection: Connection) -> Moment:
    """Export a snapshot; the caller has begun a repeatable-read transaction."""
    await check_whole(connection)
    found = await SQL_MOMENT.row(connection)
    assert found is not None
    steps = [AppliedMigration(*row) for row in await SQL_STEPS.rows(connection)]
    accounts, messages = await count(connection)
    return Moment(**dict(found), accounts=accounts, messages=messages, steps=steps)


async def count(connection: Connection) -> tuple[int, int]:
    (counted,) = await connection.fetch(SQL_COUNT.text, timeout=LONG_S)
    return counted["accounts"], counted["messages"]


# What PostgreSQL replayed last, if it was brought back since it started.
SQL_REPLAYED: Final = Statement("SELECT coalesce(pg_last_xact_replay_timestamp(), now())")


SQL_VERSION: Final = Statement("SELECT current_setting('server_version_num')::integer / 10000")


SQL_SCHEMA: Final = Statement("SELECT current_schema()")


SQL_LOCK: Final = Statement("SELECT pg_try_advisory_lock(%(lock)s)")

# A connection of ours bears this name; whoever runs as another user is seen without it.
SQL_NODES: Final = Statement("""
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND application_name LIKE 'tumira%'
   AND application_name <> 'tumira backup'
   AND pid <> pg_backend_pid()
""")


async def close_to_others(connection: Connection) -> None:
    """Keep nodes from starting on the database until this connection ends; refuse while one runs."""
    if not await SQL_LOCK.value(connection, lock=MIGRATION_LOCK):
        raise OperatorError(
            "Another process migrates or restores the database: wait for that, then try again."
        )
    if await SQL_NODES.value(connection):
        raise OperatorError("Tumira runs on this database: stop every web and worker first, then try again.")


SQL_TABLES: Final = Statement("""
SELECT pg_class.relname AS name, quote_ident(nspname) || '.' || quote_ident(pg_class.relname) AS quoted
  FROM pg_class
  JOIN pg_namespace ON pg_namespace.oid = relnamespace
 WHERE nspname = current_schema()
   AND relkind IN ('r', 'p')
   AND NOT EXISTS (SELECT FROM pg_depend
                    WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')
 ORDER BY relispartition DESC, pg_class.relname
""")

SQL_ROUTINES: Final = Statement("""
SELECT pg_proc.oid::regprocedure::text AS quoted
  FROM pg_proc
  JOIN pg_namespace ON pg_namespace.oid = pronamespace
 WHERE nspname = current_schema()
   AND prokind = 'f'
   AND NOT EXISTS (SELECT FROM pg_depend
                    WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e')
""")

# What an operator or a customer made; prices and the simulator come with every new database.
SQL_HOLDINGS: Final = Statement("""
SELECT (SELECT count(*) FROM accounts WHERE phone <> 'system') AS accounts,
       (SELECT count(*) FROM messages) AS messages,
       EXISTS (SELECT FROM transfers) OR EXISTS (SELECT FROM operators)
           OR EXISTS (SELECT FROM carriers WHERE name <> 'simulator') AS others
""")


@dataclass(frozen=True, slots=True)
class Holdings:
    """What would be lost if the database were cleared."""

    accounts: int
    messages: int
    others: bool

    @property
    def nothing(self) -> bool:
        return not (self.accounts or self.messages or self.others)


async def read_holdings(connection: Connection) -> Holdings:
    """Count the content of the database; refuse tables that are not ours."""
    tables = await SQL_TABLES.rows(connection)
    if not tables:
        return Holdings(0, 0, others=False)
    if not any(row["name"] == "schema_migrations" for row in tables):
        raise OperatorError("The database holds tables that are not Tumira's: restore into an empty one.")
    if await SQL_IS_UNFINISHED.value(connection):
        return Holdings(0, 0, others=False)
    (found,) = await connection.fetch(SQL_HOLDINGS.text, timeout=LONG_S)
    return Holdings(found["accounts"], found["messages"], found["others"])


SQL_BEGIN: Final = Statement("DELETE FROM schema_migrations")


async def clear(connection: Connection) -> None:
    tables = await SQL_TABLES.rows(connection)
    if any(row["name"] == "schema_migrations" for row in tables):
        await SQL_BEGIN.rows(connection)
    # The table that says how far it is goes last, and few go at a time: each takes locks for all its indexes.
    names = [row["quoted"] for row in tables if row["name"] != "schema_migrations"]
    names += [row["quoted"] for row in tables if row["name"] == "schema_migrations"]
    for first in range(0, len(names), DROPPED_AT_ONCE):
        some = ", ".join(names[first : first + DROPPED_AT_ONCE])
        await connection.execute(f"DROP TABLE {some} CASCADE", timeout=LONG_S)
    for row in await SQL_ROUTINES.rows(connection):
        await connection.execute(f"DROP FUNCTION {row['quoted']} CASCADE")


SQL_STEP: Final = Statement("""
INSERT INTO schema_migrations (number, name, checksum, applied_at)
VALUES (%(number)s, %(name)s, %(checksum)s, %(applied_at)s)
""")


async def open_history(connection: Connection, steps: Sequence[AppliedMigration]) -> None:
    """Write the migrations of the restored database: from the commit on, nodes can use it."""
    await SQL_STEP.each(
        connection,
        [
            {
                "number": one.number,
                "name": one.name,
                "checksum": one.checksum,
                "applied_at": one.applied_at,
            }
            for one in steps
        ],
    )
