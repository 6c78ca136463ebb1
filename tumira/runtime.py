"""What does every process need? Settings in, log lines out, and an open database with today's schema."""

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from tumira import logs
from tumira.config import Settings
from tumira.errors import Trouble
from tumira.store import embedded, migrate, partitions, replication
from tumira.store.database import UNAVAILABLE, Database, check
from tumira.store.embedded_place import Heed, go_on

Tell = Callable[[str], None]

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def configure_logging(level: str) -> None:
    """Write log lines as JSON to standard error."""
    if level not in LOG_LEVELS:
        raise Trouble(f"TUMIRA_LOG_LEVEL is {level!r}; use one of {', '.join(LOG_LEVELS)}.")
    logs.configure(logging.getLevelNamesMapping()[level.upper()])


def collect_rarely() -> None:
    """Look for garbage less often: a call or a message makes many objects, and none of them are cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


@contextmanager
def open_database(settings: Settings, tell: Tell, heed: Heed = go_on) -> Iterator[str]:
    """Give the address of the database: the operator's, a running embedded one, or one started for us."""
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
    """Make sure that the database can be used and has today's schema."""
    await check(url)
    database = Database(url, connections_max=1)
    try:
        for name in await migrate.migrate(database):
            tell(f"Applied migration {name}.")
    finally:
        await database.close()


async def is_ready(database: Database) -> str | None:
    """Return what keeps this node from serving, or None."""
    try:
        async with database.connection() as connection:
            if not await migrate.is_current(connection):
                return "Migrations are missing; run `tumira migrate`."
            weeks = await partitions.weeks_left(connection)
            if weeks < partitions.WEEKS_AHEAD_MIN:
                return f"Tables are ready for {weeks} weeks only; is a worker running?"
    except Trouble as trouble:
        return str(trouble)
    except Exception as error:  # noqa: BLE001 - whatever it is, this node cannot serve
        return f"The database cannot be reached: {error!r}"
    return None


async def waits_for_standby(database: Database) -> bool:
    """Tell whether a node that serves cannot commit, as far as can be known."""
    try:
        async with database.connection() as connection:
            return await replication.lacks_standby(connection)
    except (*UNAVAILABLE, asyncpg.PostgresError):
        return False
