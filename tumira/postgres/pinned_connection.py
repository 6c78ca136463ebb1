"""A connection that one loop keeps for all of its transactions."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

import asyncpg

from tumira.core.database_errors import is_partition_missing, is_unavailable
from tumira.postgres.connect import SyncCommitWatcher
from tumira.postgres.connection import Connection
from tumira.postgres.pool import NO_SETTINGS, Database
from tumira.postgres.statement import Statement

# Each statement of such a loop takes milliseconds; one that takes this long waits for a server that froze, or
# for a standby that is away.
LINE_TIMEOUT_S: Final = 10.0
# How long a connection that is given up may take to cancel what it waits for.
PART_S: Final = 5.0


# Writes a record that nobody reads: a transaction that wrote nothing would not wait for the disk or standby.
SQL_WRITE_NOTHING: Final = Statement("SELECT pg_logical_emit_message(true, 'tumira', '')")

SQL_SERVER_STARTED: Final = Statement("SELECT pg_postmaster_start_time()")


async def write_nothing(connection: Connection) -> None:
    """Make the commit of this transaction wait for the disk and the standby, although nothing was written.

    All that it saw is then as safe as our own commits, because the log is one sequence. What it saw may be a
    commit that did not wait for the disk, or one whose wait for the standby was cancelled.
    """
    await SQL_WRITE_NOTHING.value(connection)


class PinnedConnection:
    """A connection that one loop keeps for its transactions, opened again when it broke."""

    def __init__(
        self,
        database: Database,
        timeout_s: float = LINE_TIMEOUT_S,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        self._database = database
        self._timeout_s = timeout_s
        self._settings = settings
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._watcher = SyncCommitWatcher()
        self._begun = False
        self._parting: set[asyncio.Task[None]] = set()
        # When the server of this connection was started; no two servers share it.
        self.server_started: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    async def open(self) -> Connection:
        """Connect, unless the connection is open."""
        if self._connection is None or self._connection.is_closed():
            self._begun = False
            self._connection = await self._database.connect(self._settings, timeout_s=self._timeout_s)
            self._watcher = SyncCommitWatcher()
            self._connection.add_log_listener(self._watcher.on_notice)
            self.server_started = await SQL_SERVER_STARTED.value(self._connection)
        return self._connection

    async def begin(self) -> Connection:
        """Begin a transaction; the caller commits it, or rolls it back."""
        connection = await self.open()
        if not self._begun:
            await connection.execute("BEGIN")
        self._begun = False
        return connection

    async def begin_ahead(self) -> None:
        """Begin a transaction now that is used in a moment; until then it holds nothing."""
        await self.begin()
        self._begun = True

    async def commit(self, *, durable: bool = True) -> None:
        """Commit, and begin the next transaction in the same round trip.

        A commit that is not `durable` does not wait for the disk.
        """
        assert self._connection is not None
        hurry = "" if durable else "SET LOCAL synchronous_commit TO off; "
        await self._connection.execute(f"{hurry}COMMIT; BEGIN")
        self._watcher.check()
        self._begun = True

    async def end(self) -> None:
        """Commit, and begin nothing."""
        assert self._connection is not None
        await self._connection.execute("COMMIT")
        self._watcher.check()

    async def end_sure(self) -> None:
        """End a transaction that only read, once all that it saw is as safe as our own commits."""
        assert self._connection is not None
        await write_nothing(self._connection)
        await self.end()

    async def flush(self) -> None:
        """Return when every commit that this server reported before is on disk, and on the standby.

        It commits a record of its own. The connection must be open since before those commits: a server that
        crashed and came back, or took over, may not have them.
        """
        assert self._connection is not None
        await write_nothing(self._connection)
        self._watcher.check()

    async def let_go(self) -> None:
        """Roll back a transaction that was begun ahead and is not needed soon."""
        if self._begun and self._connection is not None:
            self._begun = False
            await self._connection.execute("ROLLBACK")

    async def roll_back(self, error: BaseException) -> None:
        """Roll back, or give the connection up if the connection failed.

        Nothing is raised: the caller already handles a failure, and continues afterwards.
        """
        lost = is_unavailable(error) and not is_partition_missing(error)
        if lost or self._connection is None:
            self.part()
            return
        try:
            await self._connection.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 - a server that was just killed makes asyncpg raise its own faults too
            self.terminate()

    def terminate(self) -> None:
        """Close the connection without waiting for anything."""
        self._begun = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def part(self) -> None:
        """Give up the connection, after asking the server to cancel its statement.

        It would otherwise wait for its standby as long as that is away, one connection for every attempt.
        """
        self._begun = False
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            task = asyncio.create_task(_close(connection))
            self._parting.add(task)
            task.add_done_callback(self._parting.discard)


async def _close(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    with suppress(Exception):
        await connection.close(timeout=PART_S)
    connection.terminate()
