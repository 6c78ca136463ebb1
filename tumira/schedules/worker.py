"""Background loop that begins scheduled sends.

A send begins at least five minutes after it was scheduled or changed. So a worker that looks every half
minute, and sleeps until the next one is due, misses none.
"""

from typing import Final

from tumira.core.ids import ScheduleId
from tumira.core.loops import forever
from tumira.postgres.pool import Database
from tumira.schedules import store
from tumira.schedules.start import start

LOOK_S: Final = 30.0
# While another worker begins it, or after a failure.
RETRY_S: Final = 0.5


async def run_scheduler(database: Database) -> None:
    """Begin scheduled sends when they are due, until cancelled."""
    # A send that fails must not hold up those behind it.
    failed: set[ScheduleId] = set()

    async def step() -> float:
        async with database.connection() as connection:
            found = await store.find_next(connection, failed)
        if found is None or found.wait_s > 0:
            failed.clear()
            return LOOK_S if found is None else min(found.wait_s, LOOK_S)
        try:
            has_begun = await start(database, found)
        except Exception:
            failed.add(found.id)
            raise
        return 0 if has_begun else RETRY_S

    await forever("begin a scheduled send", step, RETRY_S)
