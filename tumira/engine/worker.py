"""What does a worker do? It keeps house; handing messages to carriers comes with the first carrier."""

from tumira.engine.chores import run_chores
from tumira.store.database import Database


async def run_worker(database: Database) -> None:
    """Work until cancelled."""
    await run_chores(database)
