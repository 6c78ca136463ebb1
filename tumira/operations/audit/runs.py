"""Runs of the audit: requested, carried out on one snapshot by one worker at a time, and recorded."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import asyncpg

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.database_errors import is_unavailable
from tumira.core.days import LOCAL_TIME
from tumira.core.translation import _
from tumira.operations.audit.checks import CHECKS
from tumira.operations.audit.money_checks import Check
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

ROWS_SHOWN_MAX: Final = 20
AUDIT_TIMEOUT_S: Final = 6 * 3600


@dataclass(frozen=True, slots=True)
class Finding:
    check: Check
    rows: Sequence[Mapping[str, Any]]


# Held for as long as the connection lives, because one moment of the database is not one moment of its weeks:
# of a week that is dropped meanwhile, an older snapshot would see the batches and miss the messages.
SQL_HOLD_WEEKS: Final = Statement("""
SELECT pg_advisory_lock_shared(hashtext('tumira retention'), hashtext(kind)) FROM kept_from ORDER BY kind
""")


@asynccontextmanager
async def one_moment(connection: Connection) -> AsyncIterator[None]:
    """Give a connection one snapshot of the database, however long the checks take."""
    # Not in the transaction, which would see the moment before the wait.
    await connection.fetch(SQL_HOLD_WEEKS.text, timeout=AUDIT_TIMEOUT_S)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        yield


@asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[Connection]:
    """Yield a connection that sees one snapshot of the database, and close it afterwards."""
    async with database.own_connection() as connection, one_moment(connection):
        yield connection


async def run_check(connection: Connection, check: Check) -> Finding:
    """Run one check; the first few rows that break it are enough."""
    first = f"SELECT * FROM ({check.statement.text}) AS broken LIMIT {ROWS_SHOWN_MAX}"  # noqa: S608 - our own text
    rows = await connection.fetch(first, timeout=AUDIT_TIMEOUT_S)
    return Finding(check, [dict(row) for row in rows])


KEPT: Final = timedelta(days=400)
# A worker's statements are kept from reading whole tables; an audit has to.
PLANNED_FREELY: Final = {
    "plan_cache_mode": "auto",
    "enable_seqscan": "on",
    "enable_nestloop": "on",
    "enable_mergejoin": "on",
}

# The first rows that break a promise, by the name of the check that found them.
Broken = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit: requested, under way, or ended with what is broken or with the problem that ended it."""

    id: int
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    broken: Broken | None
    problem: str | None


# Held until the commit, so that of two who ask at once one finds the other's.
SQL_HOLD: Final = Statement("SELECT pg_advisory_xact_lock(hashtext('tumira audit'), 1)")

SQL_ASK: Final = Statement("""
INSERT INTO audits (asked_by)
SELECT %(asked_by)s
 WHERE NOT EXISTS (SELECT FROM audits WHERE finished_at IS NULL)
RETURNING id
""")


async def ask(connection: Connection, asked_by: str) -> bool:
    """Request an audit; False when one is waiting or under way."""
    await SQL_HOLD.rows(connection)
    return await SQL_ASK.value(connection, asked_by=asked_by) is not None


SQL_WAS_ASKED: Final = Statement("""
SELECT EXISTS (
    SELECT FROM audits
     WHERE asked_by = %(asked_by)s
       AND asked_at >= %(since)s
)
""")


SQL_IS_WAITING: Final = Statement("SELECT EXISTS (SELECT FROM audits WHERE finished_at IS NULL)")


# Also one that was started before, whose worker died.
SQL_MARK_STARTED: Final = Statement("""
UPDATE audits
   SET started_at = clock_timestamp()
 WHERE id = (SELECT min(id) FROM audits WHERE finished_at IS NULL)
RETURNING id
""")


SQL_MARK_FINISHED: Final = Statement("""
UPDATE audits
   SET finished_at = clock_timestamp(), broken = %(broken)s::text::jsonb, problem = %(problem)s
 WHERE id = %(audit_id)s
   AND finished_at IS NULL
""")


SQL_INSERT: Final = Statement("""
INSERT INTO audits (asked_by, asked_at, started_at, finished_at, broken)
VALUES (%(asked_by)s, %(started_at)s, %(started_at)s, clock_timestamp(), %(broken)s::text::jsonb)
""")


SQL_LIST: Final = Statement("""
SELECT id, asked_by, asked_at, started_at, finished_at, broken, problem
  FROM audits
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_latest(connection: Connection, count_max: int) -> Sequence[Audit]:
    rows = await SQL_LIST.rows(connection, count_max=count_max)
    return [Audit(**{**row, "broken": row["broken"] and json.loads(row["broken"])}) for row in rows]


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
    return int(await SQL_DELETE_OLD.value(connection, kept=KEPT, count_max=count_max))


SQL_TRY_LOCK: Final = Statement("SELECT pg_try_advisory_lock(hashtext('tumira audit'), 0)")


@asynccontextmanager
async def alone(database: Database) -> "AsyncIterator[Connection | None]":
    """Yield a connection that holds the audit lock; None while another process holds it.

    The lock ends with the connection: that of a worker that died is free at once.
    """
    async with database.own_connection(PLANNED_FREELY) as connection:
        yield connection if await SQL_TRY_LOCK.value(connection) else None


NIGHTLY: Final = "every night"
# Hours of local time in which the least is sent. A night without a worker is left out, not caught up by day.
NIGHT: Final = range(2, 6)
RUN_S: Final = 4 * 3600


async def ask_audit(database: Database, actor: Actor) -> bool:
    """Request an audit by an operator; False when one is waiting or under way."""
    async with database.transaction() as connection:
        asked = await ask(connection, actor.name)
        if asked:
            await audit_log.record_by_operator(connection, actor, "audit asked for")
    return asked


async def ask_nightly(connection: Connection, night: range = NIGHT) -> int:
    """Request the audit of this night, unless it is day or it was requested; return how many were."""
    now = await clock.read_now(connection)
    local = now + LOCAL_TIME
    if local.hour not in night:
        return 0
    began = now - timedelta(hours=local.hour, minutes=local.minute, seconds=local.second)
    if await SQL_WAS_ASKED.value(connection, asked_by=NIGHTLY, since=began):
        return 0
    return int(await ask(connection, NIGHTLY))


async def run_next(database: Database, run_s: float = RUN_S) -> bool:
    """Run the waiting audit, if there is one and no other worker runs it; tell whether we did."""
    async with database.connection() as connection:
        if not await SQL_IS_WAITING.value(connection):
            return False
    async with alone(database) as line:
        if line is None:
            return False
        async with database.connection() as connection:
            audit_id = await SQL_MARK_STARTED.value(connection)
        if audit_id is None:
            return False
        broken, problem = await _run(line, run_s)
        async with database.connection() as connection:
            written = None if broken is None else json.dumps(broken)
            await SQL_MARK_FINISHED.rows(connection, audit_id=audit_id, broken=written, problem=problem)
    return True


async def _run(line: Connection, run_s: float) -> tuple[Broken | None, str | None]:
    try:
        async with asyncio.timeout(run_s), one_moment(line):
            return broken_of([await run_check(line, check) for check in CHECKS]), None
    except TimeoutError:
        return None, _("Stopped after {hours} hours.").format(hours=f"{run_s / 3600:g}")
    except asyncpg.PostgresError as error:
        if is_unavailable(error):
            # Not its end: another worker begins it again.
            raise
        return None, _("PostgreSQL stopped it: {error}").format(error=error)


async def record(database: Database, actor: str, started_at: datetime, findings: Iterable[Finding]) -> None:
    """Record an audit that an operator ran at the command line."""
    async with database.connection() as connection:
        broken = json.dumps(broken_of(findings))
        await SQL_INSERT.rows(connection, asked_by=actor, started_at=started_at, broken=broken)


def broken_of(findings: Iterable[Finding]) -> Broken:
    """Return the rows that break a promise, by the name of the check."""
    return {one.check.name: [printable(row) for row in one.rows] for one in findings if one.rows}


def printable(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row in a form that JSON can hold."""
    return {
        name: item if item is None or isinstance(item, str | int) else _written(item)
        for name, item in row.items()
    }


def _written(item: Any) -> str:
    if isinstance(item, datetime):
        return item.isoformat()
    return str(item) if isinstance(item, UUID | Decimal) else repr(item)
