"""How do we reach PostgreSQL, and what does it mean when we cannot?"""

import asyncio
from collections.abc import AsyncIterator
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
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
)

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

    def __init__(self, url: str, *, connections_max: int = CONNECTIONS_MAX) -> None:
        self.url = url
        self._connections_max = connections_max
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Open a connection outside the pool, for a caller that keeps it."""
        return await _connect(self.url, **_options())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; each statement on it commits by itself."""
        pool = await self._open()
        async with pool.acquire(timeout=CONNECT_TIMEOUT_S) as connection:
            yield connection

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
                    **_options(),
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


async def _reset(_connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    # No session state is ever left on a connection, so the reset that costs a round trip is not needed.
    return


def _options() -> dict[str, Any]:
    return {
        "timeout": CONNECT_TIMEOUT_S,
        "command_timeout": COMMAND_TIMEOUT_S,
        "server_settings": {"application_name": "tumira", "jit": "off", "timezone": "UTC"},
    }
