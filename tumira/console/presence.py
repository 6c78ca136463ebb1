"""Does this web process still run? It says so itself, twice a minute, for the page of the system."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
import structlog

from tumira import VERSION
from tumira.core.database_errors import UNAVAILABLE
from tumira.core.loops import forever
from tumira.postgres import migrate
from tumira.postgres import nodes as system
from tumira.postgres.pool import Database

BEAT_S: Final = 30
FORGET_S: Final = 2

_log: Final = structlog.get_logger()


@asynccontextmanager
async def present(database: Database, beat_s: float = BEAT_S) -> AsyncIterator[str]:
    """Be listed among the nodes for as long as this lasts; nothing depends on it, so nothing waits for it."""
    node = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    async def beat() -> None:
        async with database.connection() as connection:
            await system.beat(connection, node, VERSION, migrate.last_step())

    beating = asyncio.create_task(forever("send a heartbeat", beat, beat_s, node=node))
    try:
        yield node
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await _forget(database, node)


async def _forget(database: Database, node: str) -> None:
    try:
        async with asyncio.timeout(FORGET_S), database.connection() as connection:
            await system.forget(connection, node)
    except (*UNAVAILABLE, asyncpg.PostgresError) as error:
        _log.warning("still listed among the nodes", error=repr(error))
