"""The pool of connections to PostgreSQL, which follows the primary."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from weakref import WeakSet

import asyncpg
import structlog

from tumira.core.database_errors import UNAVAILABLE
from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.postgres.clock import Clock
from tumira.postgres.connect import (
    CONNECT_TIMEOUT_S,
    SESSION,
    Address,
    Host,
    ServerConnection,
    SyncCommitWatcher,
    UnreachedError,
    reach,
    read_address,
)
from tumira.postgres.connection import Connection
from tumira.postgres.nodes import lacks_standby
from tumira.postgres.statement import Statement

CONNECTIONS_MAX: Final = 10
# A little longer than it takes to find out that no host can be reached.
ACQUIRE_TIMEOUT_S: Final = CONNECT_TIMEOUT_S + 1
COMMAND_TIMEOUT_S: Final = 30.0
# A commit takes longer only where it waits for a standby that is away.
COMMIT_TIMEOUT_S: Final = 10.0
CLOSE_S: Final = 5.0
# With several hosts: how often we look whether ours answers and takes writes, and how long that may take.
LOOK_S: Final = 1.0
LOOK_TIMEOUT_S: Final = 2.0
VERSION_MIN: Final = 15
SESSION_NAME_MAX: Final = 56

_log: Final = structlog.get_logger()

NO_SETTINGS: Final[Mapping[str, str]] = {}

# For a process that runs the same few statements over and over: planning one took as long as carrying it out.
PLANNED_ONCE: Final = {"plan_cache_mode": "force_generic_plan"}

# For a process all of whose statements find a few hundred rows by their keys and join these with a list. They
# are planned once, and the plan is the right one however much or little PostgreSQL knows about the tables:
# without statistics it would read a whole week of messages, or compare every row with every other.
KEY_LOOKUPS: Final = {
    **PLANNED_ONCE,
    "enable_seqscan": "off",
    "enable_nestloop": "off",
    "enable_mergejoin": "off",
}

# With these too, rows that are found by a list of keys are found, and locked, in the order of the keys. A
# bitmap would find them in the order in which they lie in the table.
IN_KEY_ORDER: Final = {"enable_bitmapscan": "off"}

# Of these, the ones after which a connection to the same server is not worth trying.
LOST: Final = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,
)

# Somebody else holds what this statement needs, or two transactions stood in each other's way.
BUSY: Final = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.QueryCanceledError,
)


def session_name(process: str) -> str:
    """Return what the sessions of a process are called, within the 63 characters that the server keeps."""
    return f"tumira {process[-SESSION_NAME_MAX:]}"


class Database:
    """A pool of connections, opened when first needed so that a process starts while the server is away.

    Where the URL names several hosts, the host that takes writes is used. When that changes, every connection
    to the old host is closed, whatever it waits for.
    """

    def __init__(
        self, url: str, *, connections_max: int = CONNECTIONS_MAX, settings: Mapping[str, str] | None = None
    ) -> None:
        self.url = url
        self.clock = Clock()
        self._address = read_address(url)
        self._connections_max = connections_max
        self._settings = dict(settings or {})
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        # The host that was reached last, and all that is connected.
        self._host: Host | None = None
        self._wires: WeakSet[ServerConnection] = WeakSet()
        self._look_out: asyncio.Task[None] | None = None

    async def connect(
        self, settings: Mapping[str, str] = NO_SETTINGS, *, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> "asyncpg.Connection[asyncpg.Record]":
        """Open a connection outside the pool, for a caller that keeps it."""
        return await self._reach(**_options({**self._settings, **settings}, timeout_s))

    @asynccontextmanager
    async def own_connection(
        self, settings: Mapping[str, str] = NO_SETTINGS
    ) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
        """Yield a connection outside the pool, and close it afterwards with all the locks that it holds."""
        connection = await self.connect(settings)
        try:
            yield connection
            await connection.close(timeout=CLOSE_S)
        finally:
            # Also while it is still busy with a statement that nobody waits for any more.
            connection.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection; each statement on it commits on its own."""
        pool = await self._open()
        watcher = SyncCommitWatcher()
        try:
            async with pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
                connection.add_log_listener(watcher.on_notice)
                try:
                    yield connection
                except LOST:
                    # Those that lie idle are of the same age: one caller pays for it, not one for each.
                    await pool.expire_connections()
                    raise
                finally:
                    # One that was closed has forgotten its listeners, and does not want to be asked.
                    with suppress(asyncpg.InterfaceError):
                        connection.remove_log_listener(watcher.on_notice)
                watcher.check()
        except Exception:
            _heed_cancelling()
            raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection with one transaction, committed at the end and rolled back by an exception."""
        async with self.connection() as connection:
            transaction = connection.transaction()
            is_over = False
            try:
                await transaction.start()
                try:
                    yield connection
                except BaseException:
                    # One that broke cannot roll back; whoever asked hears what broke it.
                    with suppress(asyncpg.InterfaceError):
                        await transaction.rollback()
                        is_over = True
                    raise
                async with asyncio.timeout(COMMIT_TIMEOUT_S):
                    await transaction.commit()
                is_over = True
            finally:
                # Cancelled while it began or ended, or broken: nobody shall have this connection after us.
                if not is_over:
                    with suppress(asyncpg.InterfaceError):
                        connection.terminate()

    def name_sessions(self, name: str) -> None:
        """Have the sessions that are opened from now on tell the server whose they are."""
        self._settings["application_name"] = session_name(name)

    async def close(self) -> None:
        look_out, self._look_out = self._look_out, None
        if look_out is not None:
            look_out.cancel()
            await asyncio.gather(look_out, return_exceptions=True)
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _open(self) -> "asyncpg.Pool[asyncpg.Record]":
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    min_size=0,
                    max_size=self._connections_max,
                    connect=self._connect,
                    connection_class=ServerConnection,
                    reset=_reset,
                )
            return self._pool

    async def _connect(self, *_arguments: Any, **_options_of_pool: Any) -> ServerConnection:
        """Connect for the pool, whose own options are ignored."""
        return await self._reach(**_options(self._settings))

    async def _reach(self, **options: Any) -> ServerConnection:
        wire = await reach(self._address, self._host, **options)
        if wire.host != self._host:
            self._move(wire.host)
        self._wires.add(wire)
        await self._read_clock(wire)
        if self._look_out is None and len(self._address.hosts) > 1:
            self._look_out = asyncio.create_task(self._keep_looking())
        return wire

    async def _read_clock(self, wire: ServerConnection) -> None:
        try:
            await self.clock.follow(wire)
        except BaseException:
            wire.terminate()
            raise

    def _move(self, host: Host | None) -> None:
        """Close the connections to other hosts than this one, which is the primary now."""
        before, self._host = self._host, host
        if before is None:
            return
        left = [wire for wire in self._wires if wire.host != host and not wire.is_closed()]
        for wire in left:
            wire.terminate()
        _log.warning("another database server is used", before=str(before), now=str(host), closed=len(left))

    async def _keep_looking(self) -> None:
        """Check whether our server still answers, takes writes and commits; other connections may hang on it.

        A server that does not is left only when another one can be used.
        """
        wire: asyncpg.Connection[asyncpg.Record] | None = None
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                try:
                    if wire is None or wire.is_closed():
                        wire = await self.connect(timeout_s=LOOK_TIMEOUT_S)
                    takes_writes = await SQL_READ_ONLY.value(wire) == "off"
                    if takes_writes and await lacks_standby(wire):
                        await self._leave_former_primary(wire)
                except (*UNAVAILABLE, asyncpg.PostgresError):
                    takes_writes = False
                if wire is not None and not takes_writes:
                    wire.terminate()
        finally:
            if wire is not None:
                wire.terminate()

    async def _leave_former_primary(self, wire: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Move to the server that was promoted in place of ours, if there is one.

        A primary that nobody stopped goes on to take writes, which wait for a standby that follows another.
        """
        others = [host for host in self._address.hosts if host != self._host]
        with suppress(UnreachedError):
            other = await reach(Address(self.url, others, self._address.target), None, **_options())
            try:
                if await SQL_TIMELINE.value(other) > await SQL_TIMELINE.value(wire):
                    self._move(other.host)
            finally:
                other.terminate()


SQL_READ_ONLY: Final = Statement("SELECT current_setting('transaction_read_only')")

# Each promotion begins a timeline; its number is the first eight digits of the names of its files.
SQL_TIMELINE: Final = Statement("SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)")


async def check(url: str) -> None:
    """Raise an OperatorError that says why this database cannot be used, if it cannot."""
    try:
        connection = await reach(read_address(url), None, **_options())
    except UnreachedError as unreached:
        for error in unreached.errors:
            if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
                raise OperatorError(f"PostgreSQL refuses the user of TUMIRA_DATABASE_URL: {error}") from error
            if isinstance(error, asyncpg.InvalidCatalogNameError):
                raise OperatorError(
                    f"TUMIRA_DATABASE_URL names a database that does not exist: {error}"
                ) from error
        words = f"The database cannot be reached; check TUMIRA_DATABASE_URL. {unreached}"
        # An address that cannot be read stays so; a server that does not answer may come back.
        is_misread = any(isinstance(error, ValueError) for error in unreached.errors)
        raise (OperatorError(words) if is_misread else TemporaryOperatorError(words)) from unreached
    try:
        if connection.get_server_version().major < VERSION_MIN:
            found = connection.get_server_version().major
            raise OperatorError(f"The database is PostgreSQL {found}; Tumira needs {VERSION_MIN} or newer.")
    finally:
        await connection.close()


def _heed_cancelling() -> None:
    """Raise a cancellation that was replaced by another error on its way out.

    Rolling back fails when the server is gone; a loop that continues after failures would then never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _reset(_connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    # No session state is ever left on a connection, so the reset that costs a round trip is not needed.
    return


def _options(
    settings: Mapping[str, str] = NO_SETTINGS, timeout_s: float = COMMAND_TIMEOUT_S
) -> dict[str, Any]:
    return {"command_timeout": timeout_s, "server_settings": {**SESSION, **settings}}
