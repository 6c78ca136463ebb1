"""How is an audit asked for, run beside the traffic, and written down? By one worker at a time."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import asyncpg

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.database_errors import is_unavailable
from tumira.core.days import LOCAL_TIME
from tumira.identity.store import verifications
from tumira.operations import audit_checks, audit_runs
from tumira.operations.audit_checks import Finding
from tumira.operations.audit_runs import Broken
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

NIGHTLY: Final = "every night"
# Hours of local time in which the least is sent. A night without a worker is left out, not caught up by day.
NIGHT: Final = range(2, 6)
RUN_S: Final = 4 * 3600


async def ask_audit(database: Database, actor: Actor) -> bool:
    """Have a worker run an audit; False when one is waiting or under way."""
    async with database.transaction() as connection:
        asked = await audit_runs.ask(connection, actor.name)
        if asked:
            await audit_log.record_by_operator(connection, actor, "audit asked for")
    return asked


async def ask_nightly(connection: Connection, night: range = NIGHT) -> int:
    """Ask for the audit of this night, unless it is day or somebody has; return how many were asked for."""
    now = await verifications.now(connection)
    local = now + LOCAL_TIME
    if local.hour not in night:
        return 0
    began = now - timedelta(hours=local.hour, minutes=local.minute, seconds=local.second)
    if await audit_runs.was_asked(connection, NIGHTLY, began):
        return 0
    return int(await audit_runs.ask(connection, NIGHTLY))


async def run_next(database: Database, run_s: float = RUN_S) -> bool:
    """Run the audit that waits, if one does and nobody else is at it; tell whether we did."""
    async with database.connection() as connection:
        if not await audit_runs.is_waiting(connection):
            return False
    async with audit_runs.alone(database) as line:
        if line is None:
            return False
        async with database.connection() as connection:
            audit_id = await audit_runs.mark_started(connection)
        if audit_id is None:
            return False
        broken, problem = await _run(line, run_s)
        async with database.connection() as connection:
            await audit_runs.mark_finished(connection, audit_id, broken, problem)
    return True


async def _run(line: Connection, run_s: float) -> tuple[Broken | None, str | None]:
    try:
        async with asyncio.timeout(run_s), audit_checks.one_moment(line):
            return broken_of([await audit_checks.run(line, check) for check in audit_checks.CHECKS]), None
    except TimeoutError:
        return None, f"It took longer than {run_s / 3600:g} hours and was stopped."
    except asyncpg.PostgresError as error:
        if is_unavailable(error):
            # Not its end: another worker begins it again.
            raise
        return None, f"PostgreSQL ended it: {error}"


async def record(database: Database, actor: str, started_at: datetime, findings: Iterable[Finding]) -> None:
    """Write down an audit that somebody ran at the command line."""
    async with database.connection() as connection:
        await audit_runs.insert_finished(connection, actor, started_at, broken_of(findings))


def broken_of(findings: Iterable[Finding]) -> Broken:
    """Return what is broken, by the name of the check."""
    return {one.check.name: [printable(row) for row in one.rows] for one in findings if one.rows}


def printable(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a row that breaks a promise as JSON can hold it."""
    return {
        name: item if item is None or isinstance(item, str | int) else _written(item)
        for name, item in row.items()
    }


def _written(item: Any) -> str:
    if isinstance(item, datetime):
        return item.isoformat()
    return str(item) if isinstance(item, UUID | Decimal) else repr(item)
