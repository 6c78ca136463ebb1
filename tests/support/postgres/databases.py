"""Databases for tests: one server for the run, and clones of a migrated template.

What a test leaves behind is made like new again (`renewal`), because that takes a tenth of the time of making
and dropping. It comes back under another name, so that nothing that a test forgot to stop finds it there.
"""

import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import asyncpg

from tests.support.postgres.renewal import Pattern, read_pattern, renew
from tumira.postgres.embedded import server as embedded
from tumira.postgres.migrate import migrate
from tumira.postgres.pool import Database

TEMPLATE: Final = "tumira_template"
DROP_TRIES: Final = 20

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


class Pool:
    """The databases of a server that were used and are as good as new."""

    def __init__(self, server_url: str, pattern: Pattern) -> None:
        self._server_url = server_url
        self._pattern = pattern
        self._ready: SimpleQueue[str] = SimpleQueue()
        # Nobody has to wait for what becomes of a database that was used.
        self._tidying = ThreadPoolExecutor(1)

    def take(self) -> str:
        try:
            return self._ready.get_nowait()
        except Empty:
            return self.make(TEMPLATE)

    def make(self, template: str) -> str:
        name = _new_name()
        execute(self._server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def give_back(self, name: str) -> None:
        self._tidying.submit(self._tidy, name)

    def throw_away(self, name: str) -> None:
        self._tidying.submit(drop, self._server_url, name)

    def settle(self) -> None:
        """Wait until all that was given back is ready, or gone."""
        self._tidying.submit(lambda: None).result()

    def close(self) -> None:
        """Leave what is still to be done: it goes with the server."""
        self._tidying.shutdown(cancel_futures=True)

    def _tidy(self, name: str) -> None:
        renamed = _new_name()
        try:
            is_renewed = complete(self._renew(name, renamed))
        except asyncpg.PostgresError:
            # It does not exist any more, or somebody comes back again and again.
            drop(self._server_url, name)
            return
        if is_renewed:
            self._ready.put(renamed)
        else:
            drop(self._server_url, renamed)

    async def _renew(self, name: str, renamed: str) -> bool:
        connection = await asyncpg.connect(self._server_url)
        try:
            await connection.execute(SQL_SEND_AWAY, name)
            await connection.execute(f"ALTER DATABASE {name} RENAME TO {renamed}")
        finally:
            await connection.close()
        return await renew(sibling(self._server_url, renamed), self._pattern)


_pools: Final[list[Pool]] = []


@contextmanager
def run_server(parent: Path | None = None) -> Iterator[str]:
    """Run a PostgreSQL with a migrated template database, and give the server's address."""
    with (
        open_directory("tumira-test-", parent) as path,
        embedded.start(path / "data", lambda _line: None) as url,
    ):
        execute(url, f"CREATE DATABASE {TEMPLATE}")
        complete(_migrate(sibling(url, TEMPLATE)))
        with open_pool(url) as pool:
            _pools.append(pool)
            try:
                yield url
            finally:
                _pools.remove(pool)


@contextmanager
def open_pool(server_url: str) -> Iterator[Pool]:
    """Give a pool that is empty at first, for a server that has the template."""
    pool = Pool(server_url, complete(read_pattern(sibling(server_url, TEMPLATE))))
    try:
        yield pool
    finally:
        pool.close()


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
    pool = _pools[-1]
    name = pool.take() if template == TEMPLATE else pool.make(template)
    try:
        yield sibling(server_url, name)
    finally:
        if template == TEMPLATE:
            pool.give_back(name)
        else:
            pool.throw_away(name)


def _new_name() -> str:
    return f"tumira_test_{next(_numbers)}"


def drop(server_url: str, name: str) -> None:
    for _ in range(DROP_TRIES):
        try:
            execute(server_url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        except asyncpg.InsufficientPrivilegeError:
            # The server is cleaning up there, as its own user, whom we may not interrupt; it is done soon.
            time.sleep(1)
        else:
            return
    raise AssertionError(f"{name} could not be dropped")


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
