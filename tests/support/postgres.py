"""Where does a test get a database? One server for the run, a clone of a migrated template for each."""

import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import asyncpg

from tumira.store import embedded
from tumira.store.database import Database
from tumira.store.migrate import migrate

TEMPLATE: Final = "tumira_template"
DROP_TRIES: Final = 20

Result = TypeVar("Result")

_numbers: Final = itertools.count(1)
# Dropping a database takes longer than making one, and nobody has to wait for it.
_dropping: Final[list[ThreadPoolExecutor]] = []


def complete(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, also where this thread has a running loop, as in a browser test."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@contextmanager
def open_directory(prefix: str) -> Iterator[Path]:
    """Make a directory that PostgreSQL's own user can reach, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def run_server() -> Iterator[str]:
    """Run a PostgreSQL with a migrated template database, and give the server's address."""
    with open_directory("tumira-test-") as path, embedded.start(path / "data", lambda _line: None) as url:
        execute(url, f"CREATE DATABASE {TEMPLATE}")
        complete(_migrate(sibling(url, TEMPLATE)))
        with ThreadPoolExecutor(1) as dropping:
            _dropping.append(dropping)
            try:
                yield url
            finally:
                _dropping.remove(dropping)
                # What is still to be dropped goes with the server.
                dropping.shutdown(cancel_futures=True)


async def _migrate(url: str) -> None:
    database = Database(url, connections_max=1)
    await migrate(database)
    await database.close()


@contextmanager
def clone(server_url: str, template: str = TEMPLATE) -> Iterator[str]:
    """Give the address of a fresh copy of the template, and drop it at the end."""
    name = f"tumira_test_{next(_numbers)}"
    execute(server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield sibling(server_url, name)
    finally:
        _dropping[-1].submit(_drop, server_url, name)


def _drop(server_url: str, name: str) -> None:
    for _ in range(DROP_TRIES):
        try:
            execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")
        except asyncpg.InsufficientPrivilegeError:
            # The server is cleaning up there, as its own user, whom we may not interrupt; it is done soon.
            time.sleep(1)
        else:
            return
    raise AssertionError(f"{name} could not be dropped")


def sibling(url: str, name: str) -> str:
    """Return the address of another database on the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def execute(url: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    """Run one statement and return its rows."""
    return complete(_execute(url, statement, *arguments))


async def _execute(url: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement, *arguments)
    finally:
        await connection.close()
