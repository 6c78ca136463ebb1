"""Which audits were asked for, who runs them, and what did they find?"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import asyncpg

from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

KEPT: Final = timedelta(days=400)
# A worker's statements are kept from reading whole tables; an audit has to.
PLANNED_FREELY: Final = {
    "plan_cache_mode": "auto",
    "enable_seqscan": "on",
    "enable_nestloop": "on",
    "enable_mergejoin": "on",
}
CLOSE_S: Final = 5

# The first rows that break a promise, by the name of the check that found them.
Broken = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit: asked for, under way, or ended with what is broken, or with the problem that ended it."""

    id: int
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    broken: Broken | None
    problem: str | None


def _audit(row: asyncpg.Record) -> Audit:
    return Audit(
        row["id"],
        row["asked_by"],
        row["asked_at"],
        row["started_at"],
        row["finished_at"],
        None if row["broken"] is None else json.loads(row["broken"]),
        row["problem"],
    )


# Held until the commit, so that of two who ask at once one finds the other's.
SQL_HOLD: Final = Statement("SELECT pg_advisory_xact_lock(hashtext('tumira audit'), 1)")

SQL_ASK: Final = Statement("""
INSERT INTO audits (asked_by)
SELECT %(asked_by)s
 WHERE NOT EXISTS (SELECT FROM audits WHERE finished_at IS NULL)
RETURNING id
""")


async def ask(connection: Connection, asked_by: str) -> bool:
    """Have an audit run; False when one is waiting or under way."""
    await SQL_HOLD.rows(connection)
    return await SQL_ASK.value(connection, asked_by=asked_by) is not None


SQL_WAS_ASKED: Final = Statement("""
SELECT EXISTS (
    SELECT FROM audits
     WHERE asked_by = %(asked_by)s
       AND asked_at >= %(since)s
)
""")


async def was_asked(connection: Connection, asked_by: str, since: datetime) -> bool:
    """Tell whether somebody has asked for one since a moment."""
    return bool(await SQL_WAS_ASKED.value(connection, asked_by=asked_by, since=since))


SQL_IS_WAITING: Final = Statement("SELECT EXISTS (SELECT FROM audits WHERE finished_at IS NULL)")


async def is_waiting(connection: Connection) -> bool:
    """Tell whether an audit waits to be run, or was not run to its end."""
    return bool(await SQL_IS_WAITING.value(connection))


SQL_MARK_STARTED: Final = Statement("""
UPDATE audits
   SET started_at = clock_timestamp()
 WHERE id = (SELECT min(id) FROM audits WHERE finished_at IS NULL)
RETURNING id
""")


async def mark_started(connection: Connection) -> int | None:
    """Begin the audit that waits, or begin it again where its worker died; None when none does."""
    found: int | None = await SQL_MARK_STARTED.value(connection)
    return found


SQL_MARK_FINISHED: Final = Statement("""
UPDATE audits
   SET finished_at = clock_timestamp(), broken = %(broken)s::text::jsonb, problem = %(problem)s
 WHERE id = %(audit_id)s
   AND finished_at IS NULL
""")


async def mark_finished(
    connection: Connection, audit_id: int, broken: Broken | None, problem: str | None = None
) -> None:
    """Write down how an audit ended."""
    written = None if broken is None else json.dumps(broken)
    await SQL_MARK_FINISHED.rows(connection, audit_id=audit_id, broken=written, problem=problem)


SQL_INSERT: Final = Statement("""
INSERT INTO audits (asked_by, asked_at, started_at, finished_at, broken)
VALUES (%(asked_by)s, %(started_at)s, %(started_at)s, clock_timestamp(), %(broken)s::text::jsonb)
""")


async def insert_finished(
    connection: Connection, asked_by: str, started_at: datetime, broken: Broken
) -> None:
    """Write down an audit that somebody ran themselves."""
    await SQL_INSERT.rows(connection, asked_by=asked_by, started_at=started_at, broken=json.dumps(broken))


SQL_LIST: Final = Statement("""
SELECT id, asked_by, asked_at, started_at, finished_at, broken, problem
  FROM audits
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_latest(connection: Connection, count_max: int) -> Sequence[Audit]:
    """Return the audits that were asked for last, the newest first."""
    return [_audit(row) for row in await SQL_LIST.rows(connection, count_max=count_max)]


SQL_DELETE_OLD: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id FROM audits
     WHERE asked_at < clock_timestamp() - %(kept)s::interval
       AND finished_at IS NOT NULL
     ORDER BY id
     LIMIT %(count_max)s
), deleted AS (
    DELETE FROM audits WHERE id = ANY(ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM old
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    """Forget audits of long ago, and return how many."""
    return int(await SQL_DELETE_OLD.value(connection, kept=KEPT, count_max=count_max))


SQL_TRY_LOCK: Final = Statement("SELECT pg_try_advisory_lock(hashtext('tumira audit'), 0)")


@asynccontextmanager
async def alone(database: Database) -> "AsyncIterator[Connection | None]":
    """Lend a connection to the one who runs an audit; None while somebody else does.

    The lock goes with the connection: that of a worker that died is free at once.
    """
    connection = await database.connect(PLANNED_FREELY)
    try:
        yield connection if await SQL_TRY_LOCK.value(connection) else None
        await connection.close(timeout=CLOSE_S)
    finally:
        # Also while it is still busy with a check that nobody waits for any more.
        connection.terminate()
