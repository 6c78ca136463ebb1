"""Processes that die at a chosen step."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from tumira.core.settings.payments import read_payments
from tumira.postgres.pool import Database
from tumira.runtime import configure_logging
from tumira.topups.providers import Provider
from tumira.topups.providers.http import ProviderClient
from tumira.topups.providers.registry import open_providers
from tumira.topups.worker import TopUpWorker

PUBLIC_URL: Final = "http://127.0.0.1:9"
KILLED: Final = -signal.SIGKILL
# As often the worker looks at what is due: to ask for the money, and then what became of it.
LOOKS: Final = 2


class Mortal:
    """Makes this process kill itself at its `step`-th word with the database or a provider.

    A word is two steps: before it is said, and once it was answered.
    """

    def __init__(self, step: int) -> None:
        self._left = step
        self.is_counting = False

    def watch(self, owner: type, name: str) -> None:
        method: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._count()
            result = await method(*args, **kwargs)
            self._count()
            return result

        setattr(owner, name, call)

    def _count(self) -> None:
        self._left -= self.is_counting
        if self.is_counting and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _watch_database(mortal: Mortal) -> None:
    for name in ("execute", "executemany", "fetch", "fetchval", "fetchrow"):
        mortal.watch(asyncpg.Connection, name)


def fork_and_die(step: int, work: Callable[[Mortal], Coroutine[Any, Any, None]]) -> int:
    """Do some work in a fork of this process that dies at its `step`-th word with the database.

    Words count once the work says so. Return its exit code: 0 if it came to an end first.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            mortal = Mortal(step)
            _watch_database(mortal)
            asyncio.run(work(mortal))
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def look_once(database: Database, providers: Mapping[str, Provider]) -> None:
    worker = TopUpWorker(database, providers)
    await worker._claim()
    await asyncio.gather(*worker._calls)


async def _work(url: str, step: int) -> None:
    """Do what a worker does for what is due, until it has ended or we have died."""
    mortal = Mortal(step)
    _watch_database(mortal)
    mortal.watch(ProviderClient, "call")
    database = Database(url, connections_max=2)
    providers = open_providers(read_payments(os.environ), PUBLIC_URL)
    for _ in range(LOOKS):
        async with database.connection() as connection:
            await connection.execute("UPDATE top_ups SET due_at = clock_timestamp() WHERE due_at IS NOT NULL")
        mortal.is_counting = True
        await look_once(database, providers)
        mortal.is_counting = False
    for provider in providers.values():
        await provider.close()
    await database.close()


def main() -> None:
    """Fork a worker for each line, which says at which step it is to die, and print how it ended."""
    configure_logging("error")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(_work(sys.argv[1], int(line)))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


class Nursery:
    """Where workers are made that die: a process that has read our code once, and forks."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def die_at(self, step: int) -> int:
        """Let a worker work until it dies at a step, or has no more to do, and return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def nursery(url: str, environment: Mapping[str, str]) -> Iterator[Nursery]:
    """Give a place where workers die that were told of providers by these settings."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.chaos.mortal", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        yield Nursery(process)


if __name__ == "__main__":
    main()
