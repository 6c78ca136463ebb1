"""Nodes that run, their heartbeats, and the state of replication."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Who may not see the replication of others sees its rows without their state; then nothing can be said.
SQL_LACKS_STANDBY: Final = Statement("""
SELECT current_setting('synchronous_standby_names') <> ''
   AND NOT EXISTS (
           SELECT
             FROM pg_stat_replication
            WHERE sync_state IS NULL
               OR sync_state IN ('sync', 'quorum') AND state = 'streaming'
       )
""")


async def lacks_standby(connection: Connection) -> bool:
    """Tell whether commits wait because no synchronous standby follows; reads still work."""
    return bool(await SQL_LACKS_STANDBY.value(connection))


OLDER_MAX: Final = 200

# A worker with carriers is none of these: its heartbeat also keeps its binds.
NodeRole = Literal["web", "webhooks"]


@dataclass(frozen=True, slots=True)
class Node:
    """A process and its last heartbeat."""

    id: str
    version: str | None
    started_at: datetime
    seen_at: datetime
    is_late: bool


_LIST: Final = """
SELECT id, version, started_at, seen_at, seen_at < clock_timestamp() - %(late)s::interval
  FROM {rows}
 ORDER BY id
 LIMIT %(count_max)s
"""
SQL_LIST_WORKERS: Final = Statement(_LIST.format(rows="workers"))
SQL_LIST_ROLE: Final = Statement(_LIST.format(rows="nodes WHERE role = %(role)s"))


async def list_workers(connection: Connection, late: timedelta, count_max: int) -> Sequence[Node]:
    return [Node(*row) for row in await SQL_LIST_WORKERS.rows(connection, late=late, count_max=count_max)]


async def list_role(
    connection: Connection, role: NodeRole, late: timedelta, count_max: int
) -> Sequence[Node]:
    """Return the processes of a role that were seen in the last day."""
    rows = await SQL_LIST_ROLE.rows(connection, role=role, late=late, count_max=count_max)
    return [Node(*row) for row in rows]


# Who was not heard of for three beats of a web process has ended.
SQL_LIST_OLDER: Final = Statement("""
SELECT id, version, started_at, seen_at, false
  FROM (SELECT id, version, last_step, started_at, seen_at FROM nodes
         UNION ALL
        SELECT id, version, last_step, started_at, seen_at FROM workers) node
 WHERE seen_at > clock_timestamp() - interval '90 seconds'
   AND (last_step IS NULL OR last_step < %(step)s)
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_older(connection: Connection, step: int, count_max: int = OLDER_MAX) -> Sequence[Node]:
    """Return the running processes whose code does not know a migration."""
    return [Node(*row) for row in await SQL_LIST_OLDER.rows(connection, step=step, count_max=count_max)]


# Whoever beats also clears away those that have long been gone: there is no list of them to be kept.
SQL_BEAT: Final = Statement("""
WITH gone AS (
    DELETE FROM nodes WHERE seen_at < clock_timestamp() - interval '1 day' AND id <> %(node)s
)
INSERT INTO nodes (id, role, version, last_step)
VALUES (%(node)s, %(role)s, %(version)s, %(last_step)s)
    ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp()
""")


async def beat(
    connection: Connection, node: str, version: str, last_step: int, role: NodeRole = "web"
) -> None:
    """Record the heartbeat of a process without carriers, and the last migration that it knows."""
    await SQL_BEAT.rows(connection, node=node, role=role, version=version, last_step=last_step)


SQL_FORGET: Final = Statement("DELETE FROM nodes WHERE id = %(node)s")


async def forget(connection: Connection, node: str) -> None:
    await SQL_FORGET.rows(connection, node=node)


@dataclass(frozen=True, slots=True)
class Step:
    """An applied migration."""

    number: int
    name: str
    applied_at: datetime


SQL_LIST_STEPS: Final = Statement("""
SELECT number, name, applied_at FROM schema_migrations ORDER BY number DESC LIMIT %(count_max)s
""")


async def list_steps(connection: Connection, count_max: int) -> Sequence[Step]:
    """Return the applied migrations, the latest first."""
    return [Step(*row) for row in await SQL_LIST_STEPS.rows(connection, count_max=count_max)]


@dataclass(frozen=True, slots=True)
class Ground:
    """The server and the database."""

    postgres: str
    bytes: int
    started_at: datetime


SQL_GROUND: Final = Statement("""
SELECT current_setting('server_version'), pg_database_size(current_database()), pg_postmaster_start_time()
""")


async def get_ground(connection: Connection) -> Ground:
    row = await SQL_GROUND.row(connection)
    assert row is not None
    return Ground(*row)


@dataclass(frozen=True, slots=True)
class BrokenLedger:
    """An account whose transfers did not add up to its balance."""

    account_id: AccountId
    broken_at: datetime


SQL_LIST_BROKEN: Final = Statement("""
SELECT account_id, broken_at
  FROM ledger_proofs
 WHERE broken_at IS NOT NULL
 ORDER BY broken_at
 LIMIT %(count_max)s
""")


async def list_broken_ledgers(connection: Connection, count_max: int) -> Sequence[BrokenLedger]:
    """Return the accounts whose ledgers do not add up, the longest broken first."""
    return [BrokenLedger(*row) for row in await SQL_LIST_BROKEN.rows(connection, count_max=count_max)]
