"""Tasks of the worker, one at a time."""

from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import Database


async def run_named(database: Database, name: str) -> int:
    """Run one of the worker's tasks once, and return how much it did."""
    (task,) = [one for one in MAINTENANCE_TASKS if one.name == name]
    return await run_task(database, task)
