"""Databases for tests: one server for the run, and copies of a migrated template.

The files of the template are copied, which costs a fifth of copying its pages through the log.
"""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar
from unittest.mock import patch
from urllib.parse import urlsplit

import asyncpg

from tumira.postgres.connection import Connection
from tumira.postgres.embedded import server as embedded
from tumira.postgres.migrate import migrate
from tumira.postgres.pool import Database

TEMPLATE: Final = "tumira_template"
DROP_TRIES: Final = 20

# For a server that nobody needs after a crash. Each copy is a checkpoint, after which every page would be
# written to the log whole, and which looks at every buffer.
FORGETFUL: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_compression": "off",
    "shared_buffers": "64MB",
}

Result = TypeVar("Result")

_numbers: Final = itertools.count(1)

# Nobody is there to be waited for: those who belong to the test have ended, others have to.
SQL_SEND_AWAY: Final = """
SELECT pg_terminate_backend(pid, 5000)
  FROM pg_stat_activity
 WHERE datname = $1
   AND backend_type = 'client backend'
"""


def complete(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, also where this thread has a running loop, as in a browser test."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@contextmanager
def open_directory(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a directory that PostgreSQL's own user can reach, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Copies:
    """The databases of a server; the next one is made while a test uses its own."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        # A thread, because nobody has to wait for what becomes of a database that was used. Its connection is
        # kept: a new one costs a quarter of a database.
        self._thread = ThreadPoolExecutor(1)
        self._loop = asyncio.new_event_loop()
        self._connection: Connection | None = None
        self._next: Future[str] | None = None

    def take(self) -> str:
        made = self._next or self._submit(self._make(TEMPLATE))
        self._next = self._submit(self._make(TEMPLATE))
        return made.result()

    def make(self, template: str) -> str:
        return self._submit(self._make(template)).result()

    def drop(self, name: str) -> None:
        self._submit(self._drop(name))

    def close(self) -> None:
        if self._next is not None:
            self.drop(self._next.result())
        self._submit(self._disconnect())
        self._thread.shutdown()
        self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return self._thread.submit(self._loop.run_until_complete, work)

    async def _connect(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._server_url)
        return self._connection

    async def _make(self, template: str) -> str:
        name = f"tumira_test_{next(_numbers)}"
        connection = await self._connect()
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    async def _drop(self, name: str) -> None:
        await _drop(await self._connect(), name)

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()


_open: Final[list[Copies]] = []


@contextmanager
def run_server(
    parent: Path | None = None, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Run a PostgreSQL with a migrated template database, and give the server's address."""
    with open_directory("tumira-test-", parent) as path, ExitStack() as running:
        with patch.dict(embedded.FIXED, settings):
            url = running.enter_context(embedded.start(path / "data", lambda _line: None))
        execute(url, f"CREATE DATABASE {TEMPLATE}")
        complete(_migrate(sibling(url, TEMPLATE)))
        with open_copies(url):
            yield url


@contextmanager
def open_copies(server_url: str) -> Iterator[None]:
    """Let `clone` make databases on a server that has the template."""
    copies = Copies(server_url)
    _open.append(copies)
    try:
        yield
    finally:
        _open.remove(copies)
        copies.close()


async def _migrate(url: str) -> None:
    database = Database(url, connections_max=1)
    await migrate(database)
    # Tests send the same few codes to the same few numbers; those of the guard switch it on.
    async with database.connection() as connection:
        await connection.execute("ALTER TABLE accounts ALTER COLUMN code_guard SET DEFAULT false")
    await database.close()


@contextmanager
def clone(server_url: str, template: str = TEMPLATE) -> Iterator[str]:
    """Give the address of a database that is like the template, and that nobody else uses."""
    copies = _open[-1]
    name = copies.take() if template == TEMPLATE else copies.make(template)
    try:
        yield sibling(server_url, name)
    finally:
        copies.drop(name)


def drop(server_url: str, name: str) -> None:
    async def connect_and_drop() -> None:
        connection = await asyncpg.connect(server_url)
        try:
            await _drop(connection, name)
        finally:
            await connection.close()

    complete(connect_and_drop())


async def _drop(connection: Connection, name: str) -> None:
    for left in reversed(range(DROP_TRIES)):
        await connection.execute(SQL_SEND_AWAY, name)
        try:
            await connection.execute(f"DROP DATABASE IF EXISTS {name}")
        except asyncpg.ObjectInUseError:
            # Somebody came back at once.
            if not left:
                raise
        else:
            return


def sibling(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def execute(url: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    return complete(_execute(url, statement, *arguments))


async def _execute(url: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement, *arguments)
    finally:
        await connection.close()
