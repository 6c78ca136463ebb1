"""Notifications that wake workers when messages wait, sent outside the transaction that stored them.

Inside, all commits would queue for the notification one by one. A lost notification costs a quarter of a
second: workers poll that often.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import asyncpg

from tumira.core.database_errors import UNAVAILABLE
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

PAUSE_S: Final = 0.005
RECONNECT_S: Final = 1.0

_CHANNEL: Final = "tumira_queue"

# A word that a crash of the server loses is not worth waiting for the disk.
NOT_ON_DISK: Final = {"synchronous_commit": "off"}

SQL_WAKE: Final = Statement("SELECT pg_notify('tumira_queue', '')")


class Waker:
    """Wakes the workers, at once and then at most every few milliseconds, on a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Notify the workers soon, without waiting for it."""
        self._wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.terminate()

    async def _run(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._database.connect(NOT_ON_DISK)
                await SQL_WAKE.value(self._connection)
            except (*UNAVAILABLE, asyncpg.PostgresError):
                if self._connection is not None:
                    self._connection.terminate()
                    self._connection = None
                return
            await asyncio.sleep(PAUSE_S)


async def listen(database: Database, woken: Callable[[], None]) -> None:
    """Call back for every notification, until cancelled; a broken connection is opened again."""

    def hear(*_arguments: Any) -> None:
        woken()

    while True:
        try:
            connection = await database.connect()
        except (*UNAVAILABLE, asyncpg.PostgresError):
            await asyncio.sleep(RECONNECT_S)
            continue
        lost = asyncio.Event()
        connection.add_termination_listener(lambda *_, lost=lost: lost.set())
        try:
            with suppress(*UNAVAILABLE, asyncpg.PostgresError):
                await connection.add_listener(_CHANNEL, hear)
                # What was said while nobody listened.
                woken()
                await lost.wait()
        finally:
            connection.terminate()
        await asyncio.sleep(RECONNECT_S)
