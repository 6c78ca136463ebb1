"""What the checks read from the database, and the token that proves a request to be the doctor's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Settings of the database server, and how full it is."""

    version: str
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    has_standby_names: bool
    connections_max: int
    connections: int
    bytes: int
    # None where our user may not see it, or the server is on another machine.
    data_directory: str | None


# The connections that only superusers and a few roles may use are none for us.
SQL_SERVER: Final = Statement("""
SELECT current_setting('server_version'),
       current_setting('fsync') = 'on',
       current_setting('full_page_writes') = 'on',
       current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names') <> '',
       current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true), '0')::int,
       (SELECT sum(numbackends)::int FROM pg_stat_database),
       pg_database_size(current_database()),
       CASE WHEN inet_server_addr() IS NULL
            THEN (SELECT setting FROM pg_settings WHERE name = 'data_directory') END
""")


async def get_server(connection: Connection) -> ServerFacts:
    row = await SQL_SERVER.row(connection)
    assert row is not None
    return ServerFacts(*row)


@dataclass(frozen=True, slots=True)
class BackupAge:
    """How long ago a backup was made, if any is on record, and the database."""

    backup: timedelta | None
    database: timedelta


SQL_BACKUP_AGE: Final = Statement("""
SELECT clock_timestamp() - (SELECT at
                              FROM operator_changes
                             WHERE what = 'backup made'
                             ORDER BY id DESC
                             LIMIT 1),
       clock_timestamp() - (SELECT min(applied_at) FROM schema_migrations)
""")


async def get_backup_age(connection: Connection) -> BackupAge:
    row = await SQL_BACKUP_AGE.row(connection)
    assert row is not None
    return BackupAge(*row)


# An advisory lock on a random number needs no table, and is gone with the session that holds it.
SQL_HOLD: Final = Statement("SELECT pg_advisory_lock(%(token)s::bigint)")


@asynccontextmanager
async def holding(database: Database, token: int) -> AsyncIterator[None]:
    """Let a token be genuine for as long as the block lasts."""
    async with database.own_connection() as connection:
        await SQL_HOLD.rows(connection, token=token)
        yield


# The two halves of the number are how PostgreSQL shows such a lock.
SQL_IS_HELD: Final = Statement("""
SELECT EXISTS (
       SELECT
         FROM pg_locks
        WHERE locktype = 'advisory'
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND classid = (%(token)s::bigint >> 32)::oid
          AND objid = (%(token)s::bigint & 4294967295)::oid
          AND objsubid = 1
          AND granted)
""")


async def is_held(connection: Connection, token: int) -> bool:
    return bool(await SQL_IS_HELD.value(connection, token=token))
