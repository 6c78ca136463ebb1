"""How do old weeks go while everybody else goes on? Looked at, detached, looked at once more, and dropped.

No step stands in anybody's way, and each can be the last one of a worker that dies: the next run finds the
week in `leaving_weeks`, sees how far it is, and goes on from there.
"""

from dataclasses import replace
from typing import Final

import asyncpg

from tumira.core.errors import OperatorError
from tumira.operations import retention_store
from tumira.operations.retention_store import Kind, Leaving
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.partitions import State
from tumira.postgres.pool import Database

WEEKS_PER_TURN_MAX: Final = 8
# For each of those who were using a table when a week of it was detached; else it is finished the next time.
WAIT_MS: Final = 10_000


async def drop_old(database: Database, kind: Kind, weeks_kept: int, wait_ms: int = WAIT_MS) -> int:
    """Drop the weeks of a kind that ended so many weeks ago, and return how many went.

    The oldest goes first and nothing overtakes it: whatever is above the border is whole.
    """
    dropped = 0
    async with retention_store.alone(database, kind, wait_ms) as line:
        if line is None:
            return 0
        for week in await retention_store.list_leaving(line, kind):
            await _let_go(line, week)
            dropped += 1
        for week in (await retention_store.list_old(line, kind, weeks_kept))[:WEEKS_PER_TURN_MAX]:
            problem = await retention_store.problem_of(line, week)
            if problem is not None:
                raise OperatorError(
                    f"The old week {week.name} is kept, because {problem}: run `tumira audit`."
                )
            await retention_store.mark_leaving(line, week)
            await _let_go(line, week)
            dropped += 1
    return dropped


async def _let_go(line: Connection, week: Leaving) -> None:
    for one in week.tables:
        try:
            await partitions.detach(line, one)
        except (asyncpg.LockNotAvailableError, TimeoutError) as error:
            raise OperatorError(
                f"The old week {one.name} cannot go, because a transaction that is older still uses "
                f"{one.parent}: it is tried again every hour; look for that one in pg_stat_activity."
            ) from error
    # Whatever was written there between the first look and the detaching is seen now, and nothing can follow.
    # Somebody may have dropped it by hand after such a look.
    left = [one for one in week.tables if await partitions.state_of(line, one) is not State.GONE]
    problem = await retention_store.problem_of(line, replace(week, tables=left)) if left else None
    if problem is not None:
        raise OperatorError(
            f"The old week {week.name} was detached and is not dropped, because {problem}: see what is in "
            "it; then drop it, or attach it again and delete it from leaving_weeks."
        )
    await retention_store.drop(line, week)
