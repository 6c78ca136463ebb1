"""What has to be done now and then, whoever is calling? Each chore runs on one node at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from tumira.store import calls, partitions
from tumira.store.database import Database, is_unavailable
from tumira.store.sql import Connection, Statement

KEYS_PER_TURN_MAX: Final = 5_000

_log: Final = structlog.get_logger()

SQL_TRY_LOCK: Final = Statement(
    "SELECT pg_try_advisory_xact_lock(hashtext('tumira chore'), hashtext(%(name)s))"
)


@dataclass(frozen=True, slots=True)
class Chore:
    """Something done every so often, and again at once when it says that it did `more_at` or more."""

    name: str
    every_s: float
    do: Callable[[Connection], Awaitable[int]]
    more_at: int | None = None


async def _create_partitions(connection: Connection) -> int:
    return len(await partitions.create_ahead(connection))


async def _forget_idempotency_keys(connection: Connection) -> int:
    return await calls.delete_old_idempotency_keys(connection, KEYS_PER_TURN_MAX)


CHORES: Final = (
    Chore("create partitions", 3600, _create_partitions),
    Chore("forget idempotency keys", 60, _forget_idempotency_keys, more_at=KEYS_PER_TURN_MAX),
)


async def run_chore(database: Database, chore: Chore) -> int:
    """Do a chore once, in one transaction, unless another node is at it."""
    async with database.transaction() as connection:
        if not await SQL_TRY_LOCK.value(connection, name=chore.name):
            return 0
        return await chore.do(connection)


async def run_chores(database: Database) -> None:
    """Do all chores at their times until cancelled."""
    async with asyncio.TaskGroup() as group:
        for chore in CHORES:
            group.create_task(_repeat(database, chore))


async def _repeat(database: Database, chore: Chore) -> None:
    while True:
        done = 0
        try:
            done = await run_chore(database, chore)
            if done:
                _log.info("chore done", chore=chore.name, count=done)
        except Exception as error:  # noqa: BLE001 - a chore that fails is tried again at its next time
            if is_unavailable(error):
                _log.warning("database unavailable", chore=chore.name, error=repr(error))
            else:
                _log.error("chore failed", chore=chore.name, exc_info=error)
        if chore.more_at is None or done < chore.more_at:
            await asyncio.sleep(chore.every_s)
