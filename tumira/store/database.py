"""How do we reach PostgreSQL, and what does it mean when we cannot?"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from tumira.errors import Trouble
from tumira.store.sql import Connection

CONNECTIONS_MAX: Final = 10
CONNECT_TIMEOUT_S: Final = 5
COMMAND_TIMEOUT_S: Final = 30
VERSION_MIN: Final = 15

# The server is away, starting, stopping or full; or the line to it broke. Not a fault of the statement.
UNAVAILABLE: Final = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    # How a connection complains that the server ended it just before it was used.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
)

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

# Somebody else holds what this statement needs, or two transactions stood in each other's way.
BUSY: Final = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.QueryCanceledError,
)


def is_unavailable(error: BaseException) -> bool:
    """Tell a database that is away from a statement that is wrong."""
    # A value that cannot be sent is reported as an InterfaceError too; that is the statement's fault.
    return isinstance(error, UNAVAILABLE) and not isinstance(error, ValueError)


class Database:
    """A pool of connections, opened when first needed so that a process starts while the server is away."""

    def __init__(
        self, url: str, *, connections_max: int = CONNECTIONS_MAX, settings: Mapping[str, str] | None = None
    ) -> None:
        self.url = url
        self._connections_max = connections_max
        self._settings = settings or {}
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    async def connect(
        self, settings: Mapping[str, str] = NO_SETTINGS
    ) -> "asyncpg.Connection[asyncpg.Record]":
        """Open a connection outside the pool, for a caller that keeps it."""
        return await _connect(self.url, **_options({**self._settings, **settings}))

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; each statement on it commits by itself."""
        pool = await self._open()
        try:
            async with pool.acquire(timeout=CONNECT_TIMEOUT_S) as connection:
                yield connection
        except Exception:
            _heed_cancelling()
            raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend a connection with one transaction on it, committed at the end and undone by an exception."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def close(self) -> None:
        """Close all pooled connections."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _open(self) -> "asyncpg.Pool[asyncpg.Record]":
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self.url,
                    min_size=0,
                    max_size=self._connections_max,
                    connect=_connect,
                    reset=_reset,
                    **_options(self._settings),
                )
            return self._pool


async def check(url: str) -> None:
    """Say in one line what keeps us from using this database, if anything does."""
    try:
        connection = await asyncpg.connect(url, **_options())
    except asyncpg.InvalidAuthorizationSpecificationError as error:
        raise Trouble(f"PostgreSQL refuses the user of TUMIRA_DATABASE_URL: {error}") from error
    except asyncpg.InvalidCatalogNameError as error:
        raise Trouble(f"TUMIRA_DATABASE_URL names a database that does not exist: {error}") from error
    except (*UNAVAILABLE, ValueError, asyncpg.PostgresError) as error:
        reason = str(error) or type(error).__name__
        raise Trouble(f"The database cannot be reached; check TUMIRA_DATABASE_URL. {reason}") from error
    try:
        if connection.get_server_version().major < VERSION_MIN:
            found = connection.get_server_version().major
            raise Trouble(f"The database is PostgreSQL {found}; Tumira needs {VERSION_MIN} or newer.")
    finally:
        await connection.close()


async def _connect(*arguments: Any, **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
    """Connect; a server that answers and refuses is as far away as one that does not answer."""
    try:
        return await asyncpg.connect(*arguments, **options)
    except asyncpg.PostgresError as error:
        raise ConnectionError(str(error)) from error


def _heed_cancelling() -> None:
    """Let a cancellation through that was replaced by what went wrong on its way out.

    Undoing a transaction fails when the server is gone; a loop that goes on after failures would then never
    hear that it should end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _reset(_connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    # No session state is ever left on a connection, so the reset that costs a round trip is not needed.
    return


class Line:
    """A connection that one loop keeps for its transactions, opened again when it broke."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._begun = False

    async def begin(self) -> Connection:
        """Begin a transaction; the caller commits it, or rolls it back."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect()
            self._begun = False
        if not self._begun:
            await self._connection.execute("BEGIN")
        self._begun = False
        return self._connection

    async def begin_ahead(self) -> None:
        """Begin a transaction now that is used in a moment; until then it holds nothing."""
        await self.begin()
        self._begun = True

    async def commit(self, *, durable: bool = True) -> None:
        """Commit what was begun, and begin the next transaction in the same round trip.

        What need not survive a crash is not waited for until it is on disk.
        """
        assert self._connection is not None
        hurry = "" if durable else "SET LOCAL synchronous_commit TO off; "
        await self._connection.execute(f"{hurry}COMMIT; BEGIN")
        self._begun = True

    async def let_go(self) -> None:
        """Undo what was begun ahead and is not needed soon after all."""
        if self._begun and self._connection is not None:
            self._begun = False
            await self._connection.execute("ROLLBACK")

    async def roll_back(self, error: BaseException) -> None:
        """Undo what was begun, or give the connection up when it is the connection that failed."""
        if is_unavailable(error) or self._connection is None:
            self.hang_up()
            return
        try:
            await self._connection.execute("ROLLBACK")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self.hang_up()

    def hang_up(self) -> None:
        """Let go of the connection."""
        self._begun = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def _options(settings: Mapping[str, str] = NO_SETTINGS) -> dict[str, Any]:
    return {
        "timeout": CONNECT_TIMEOUT_S,
        "command_timeout": COMMAND_TIMEOUT_S,
        "server_settings": {
            "application_name": "tumira",
            "jit": "off",
            "timezone": "UTC",
            # A process that froze, or whose machine is gone, lets go of the rows that it holds.
            "idle_in_transaction_session_timeout": "5s",
            "client_connection_check_interval": "2s",
            **settings,
        },
    }
