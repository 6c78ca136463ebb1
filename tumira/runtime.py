"""What every process needs: logging, retries, and a database with the current schema."""

import asyncio
import gc
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import asyncpg
import structlog

from tumira import VERSION
from tumira.carriers import store as carriers
from tumira.core import logging as logs
from tumira.core import metrics
from tumira.core.backoff import restart_wait_s
from tumira.core.database_errors import UNAVAILABLE
from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.core.loops import forever
from tumira.core.settings import Settings
from tumira.core.shutdown import LOOK_S, Stopping
from tumira.postgres import migrate, nodes, partitions
from tumira.postgres.embedded import server as embedded
from tumira.postgres.embedded.files import Heed, go_on
from tumira.postgres.nodes import NodeRole
from tumira.postgres.pool import Database, check

Tell = Callable[[str], None]

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
# What ran for so long had started well: its end is the first failure of an outage, not one more.
STEADY_S: Final = 10.0
# Of an outage that lasts, the operator is told at its beginning and then at this interval.
REMINDER_S: Final = 30.0
# Words may name a process, another one each time.
WORDS_MAX: Final = 20

# How long a process that ends takes at most to remove its heartbeat.
FORGET_S: Final = 2

_log: Final = structlog.get_logger()

# How the preparation of a database fails that may succeed a little later.
NOT_PREPARED: Final = (TemporaryOperatorError, *UNAVAILABLE, asyncpg.PostgresError)


class Retries:
    """Failures in a row: when the next attempt is due, and what the operator was told."""

    def __init__(self) -> None:
        self._failures = 0
        self._began_at = -math.inf
        self._due_at = -math.inf
        self._told: set[str] = set()
        self._told_at = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def begin(self) -> None:
        self._began_at = time.monotonic()

    def fail(self, words: str, tell: Tell) -> None:
        """Count a failure and print why, but the same words of one outage only every half minute."""
        now = time.monotonic()
        if now - self._began_at >= STEADY_S:
            self._failures = 0
            self._told.clear()
        self._failures += 1
        self._due_at = now + restart_wait_s(self._failures)
        is_new = words not in self._told and len(self._told) < WORDS_MAX
        if is_new or now - self._told_at >= REMINDER_S:
            self._told.add(words)
            self._told_at = now
            tell(words)

    def wait(self, heed: Heed) -> None:
        while not self.is_due:
            heed()
            time.sleep(LOOK_S)


def configure_logging(level: str) -> None:
    if level not in LOG_LEVELS:
        raise OperatorError(f"TUMIRA_LOG_LEVEL is {level!r}; use one of {', '.join(LOG_LEVELS)}.")
    logs.configure(logging.getLevelNamesMapping()[level.upper()])


def collect_rarely() -> None:
    """Collect garbage less often: a call or a message makes many objects, and none of them are cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


@contextmanager
def open_database(settings: Settings, tell: Tell, heed: Heed = go_on) -> Iterator[str]:
    """Yield the URL of the database: the operator's, a running embedded one, or one started for us."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    running = embedded.attach(settings.data_dir, heed)
    if running is not None:
        yield running
        return
    with embedded.start(settings.data_dir, tell, heed) as url:
        yield url


async def prepare(url: str, tell: Tell) -> None:
    """Check the database and migrate it."""
    await check(url)
    database = Database(url, connections_max=1)
    try:
        for name in await migrate.migrate(database):
            tell(f"Applied migration {name}.")
    finally:
        await database.close()


def wait_until_prepared(who: str, url: str, tell: Tell, stopping: Stopping) -> None:
    """Prepare the database for a process, and wait while it is away, however long."""
    retries = Retries()
    while True:
        retries.begin()
        try:
            asyncio.run(stopping.cancel(prepare(url, tell)))
        except NOT_PREPARED as error:
            stopping.heed()
            retries.fail(f"{who} waits for the database. {in_one_line(error)}", tell)
        else:
            stopping.heed()
            return
        retries.wait(stopping.heed)


def in_one_line(error: BaseException) -> str:
    """Return an error's text in one line, with its type where the text is not written for people."""
    words = " ".join(str(error).split())
    return words if isinstance(error, OperatorError) else f"{type(error).__name__}: {words}"


@asynccontextmanager
async def heartbeat(database: Database, role: NodeRole, every_s: float) -> AsyncIterator[str]:
    """List this process on the console's system page; nothing depends on it, so nothing waits for it."""
    node = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    async def beat() -> None:
        async with database.connection() as connection:
            await database.clock.follow(connection)
            await nodes.beat(connection, node, VERSION, migrate.last_step(), role)
        metrics.BEAT.set_to_current_time()

    beating = asyncio.create_task(forever("send a heartbeat", beat, every_s, node=node))
    try:
        yield node
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        try:
            async with asyncio.timeout(FORGET_S), database.connection() as connection:
                await nodes.forget(connection, node)
        except (*UNAVAILABLE, asyncpg.PostgresError) as error:
            _log.warning("could not remove the heartbeat", node=node, error=repr(error))


async def is_ready(database: Database) -> str | None:
    """Return why this node cannot serve, or None."""
    try:
        async with database.connection() as connection:
            if not await migrate.is_current(connection):
                return "Migrations are missing; run `tumira migrate`."
            weeks = await partitions.weeks_left(connection)
            if weeks < partitions.WEEKS_AHEAD_MIN:
                return f"Tables are ready for {weeks} weeks only; is a worker running?"
    except OperatorError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, this node cannot serve
        return f"The database cannot be reached: {error!r}"
    return None


async def known_problems(database: Database) -> Sequence[str]:
    """Return what an operator should know of a node that serves, as far as is known."""
    try:
        async with database.connection() as connection:
            lacks_standby = await nodes.lacks_standby(connection)
            simulated = await carriers.list_simulated(connection)
    except (*UNAVAILABLE, asyncpg.PostgresError):
        return ()
    known = []
    if lacks_standby:
        known.append("No synchronous standby follows: sends wait and are answered 503; reading goes on.")
    if simulated:
        known.append(
            f"The simulator is the only carrier for {', '.join(simulated)}: messages there reach no real "
            "phone, and are billed."
        )
    return known
