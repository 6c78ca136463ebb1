"""What does a worker do? It hands messages to carriers, takes their receipts, and keeps house."""

import asyncio
import os
import secrets
import socket

from tumira.carriers.smpp.peer import DEFAULT_TIMING, Timing
from tumira.engine.chores import run_chores
from tumira.engine.supervisor import Supervisor
from tumira.store.database import Database


async def run_worker(database: Database, timing: Timing = DEFAULT_TIMING) -> None:
    """Work until cancelled; then part from the carriers in good order."""
    # A name that no other process ever has: what a dead one had claimed must not look like ours.
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    async with asyncio.TaskGroup() as group:
        group.create_task(run_chores(database))
        group.create_task(Supervisor(database, name, timing).run())
