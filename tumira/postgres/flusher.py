"""Makes commits durable that did not wait for the disk, many of them with one wait.

The log of PostgreSQL is one sequence: a commit that waits for the disk, and for the standby if there is one,
proves every commit that the same server reported before it began.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from tumira.core.loops import log_failure
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import Database

# More than this many transactions do not get ahead of a slow disk or standby: what they stored is there
# although their callers may be refused.
AHEAD_MAX: Final = 4

# Called with None when the transaction is durable, and with the failure when that is not known.
Done = Callable[[Exception | None], None]


class FlushLostError(ConnectionError):
    """The connection that was to prove a commit was lost meanwhile."""


class Flusher:
    """Flushes the log on its own connection, one flush at a time.

    A transaction is covered before it commits. It is proven by a flush that begins after its commit, on the
    connection that was open when it was covered. No later connection can prove it, because the server may
    have crashed in between.
    """

    def __init__(self, database: Database, timeout_s: float) -> None:
        self._line = PinnedConnection(database, timeout_s)
        self._waiting: list[Done] = []
        self._task: asyncio.Task[None] | None = None
        # The number of connections lost so far.
        self._lost = 0
        self.is_ready = False
        # How long the disk and the standby took the last time that anybody here waited for them.
        self.wait_s = 0.0

    def cover(self, line: PinnedConnection) -> int | None:
        """Return a ticket for a transaction that is about to commit on this connection without waiting.

        Without one it has to wait for the disk itself: the flusher has no connection yet, or one to another
        server, or it is too far behind.
        """
        same = self._line.is_open and self._line.server_started == line.server_started
        if self.is_ready and same:
            return self._lost if len(self._waiting) < AHEAD_MAX else None
        if self._is_idle:
            self._lose(FlushLostError())
            self._start()
        return None

    def call_when_durable(self, ticket: int, done: Done) -> None:
        """Call back once the transaction with this ticket, which has just committed, is durable."""
        if ticket != self._lost:
            done(FlushLostError())
            return
        self._waiting.append(done)
        self._start()

    async def commit_durably(self, line: PinnedConnection) -> None:
        """Commit on another connection, and wait for the disk there."""
        await self._timed(line.commit())

    async def _timed(self, work: Awaitable[None]) -> None:
        began = time.perf_counter()
        await work
        self.wait_s = time.perf_counter() - began

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._line.terminate()

    @property
    def _is_idle(self) -> bool:
        return self._task is None or self._task.done()

    def _start(self) -> None:
        if self._is_idle:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        covered: list[Done] = []
        try:
            if not self.is_ready:
                # Nobody has a ticket for this connection before its first flush.
                await self._line.open()
            while self._waiting or not self.is_ready:
                covered, self._waiting = self._waiting, []
                await self._timed(self._line.flush())
                self.is_ready = True
                for done in covered:
                    done(None)
                covered = []
        except Exception as error:  # noqa: BLE001 - whoever waits is told, and the next one finds a new connection
            log_failure("could not flush the log", error)
            self._waiting = [*covered, *self._waiting]
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        """Give up the connection, and tell those whose transactions it was to prove."""
        self.is_ready = False
        self._lost += 1
        self._line.part()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)
