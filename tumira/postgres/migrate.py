"""Migrations: numbered SQL files that lead from an empty database to the current schema.

A `_pre` file adds what the new code needs and takes nothing from older code: the first node that starts
applies it. A `_post` file removes what only older code needs: an operator has it applied once no older node
runs.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import asyncpg

from tumira import VERSION
from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.postgres import nodes, partitions
from tumira.postgres.connection import Connection
from tumira.postgres.nodes import Node
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

OUTSIDE: Final = "-- outside a transaction"

_NAME: Final = re.compile(r"(?P<number>[0-9]{4})_[a-z0-9_]+_(pre|post)\.sql")
_AFTER: Final = re.compile(r"^-- after (?P<number>[0-9]{4})$", re.MULTILINE)
_WEEKS: Final = re.compile(r"^-- for each week of (?P<table>\w+) without (?P<index>\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Work:
    """The statements of a file outside a transaction: some once, then some for each week without an index."""

    first: Sequence[str]
    each_week: Sequence[str] = ()
    table: str | None = None
    index: str | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file."""

    number: int
    name: str
    text: str

    @classmethod
    def read(cls, file_name: str, text: str) -> "Migration":
        named = _NAME.fullmatch(file_name)
        assert named is not None, f"{file_name} is not named NNNN_words_pre.sql or NNNN_words_post.sql"
        return cls(int(named["number"]), file_name.removesuffix(".sql"), text)

    @property
    def checksum(self) -> bytes:
        """Tells an edited file from the applied file."""
        return sha256(self.text.encode()).digest()

    @property
    def is_post(self) -> bool:
        """Whether it removes what older code needs."""
        return self.name.endswith("_post")

    @property
    def after(self) -> int | None:
        """The `_post` migration that has to be applied before it, if it names one."""
        found = _AFTER.search(self.text)
        return None if found is None else int(found["number"])

    @property
    def is_outside(self) -> bool:
        """Whether its statements run one by one, outside a transaction."""
        return OUTSIDE in self.text.splitlines()

    def work(self) -> Work:
        """Return the statements of a file outside a transaction; each ends with a semicolon and its line."""
        marker = _WEEKS.search(self.text)
        if marker is None:
            return Work(_statements(self.text))
        return Work(
            first=_statements(self.text[: marker.start()]),
            each_week=_statements(self.text[marker.end() :]),
            table=marker["table"],
            index=marker["index"],
        )


def _statements(text: str) -> Sequence[str]:
    pieces = f"{_COMMENT.sub('', text)}\n".split(";\n")
    return [piece.strip() for piece in pieces if piece.strip()]


# Any number will do, as long as nothing else in this database locks the same one.
MIGRATION_LOCK: Final = 7_486_921_001
# Longer than any step should take; asyncpg's own limit is meant for calls.
STEP_S: Final = 3_600
LOOK_S: Final = 0.2
NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a migration waits for locks and for other nodes."""

    # Whoever wants the table after us waits behind us meanwhile.
    lock_ms: int = 1_000
    # In between they go first.
    pause_s: float = 2.0
    tries_max: int = 30
    # For another node that migrates.
    others_s: float = 900.0


PATIENCE: Final = Patience()


@cache
def _package_steps() -> Sequence[Migration]:
    return _read(resources.files("tumira.postgres").joinpath("migrations"))


def known(directory: Traversable | None = None) -> Sequence[Migration]:
    """Return the migrations of this version of the code, or those in a directory, in order."""
    return _package_steps() if directory is None else _read(directory)


def _read(directory: Traversable) -> Sequence[Migration]:
    files = [file for file in directory.iterdir() if file.name.endswith(".sql")]
    found = [Migration.read(file.name, file.read_text("utf-8")) for file in files]
    return tuple(sorted(found, key=lambda migration: migration.number))


def last_step() -> int:
    return known()[-1].number


SQL_TRY_LOCK: Final = Statement("SELECT pg_try_advisory_lock(%(lock)s)")

SQL_CREATE_HISTORY: Final = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""

SQL_APPLIED: Final = Statement("SELECT number, name, checksum FROM schema_migrations ORDER BY number")

SQL_RECORD: Final = Statement(
    "INSERT INTO schema_migrations (number, name, checksum) VALUES (%(number)s, %(name)s, %(checksum)s)"
)

SQL_EXISTS: Final = Statement("SELECT to_regclass('schema_migrations') IS NOT NULL")


async def migrate(
    database: Database, steps: Sequence[Migration] | None = None, patience: Patience = PATIENCE
) -> Sequence[str]:
    """Apply every missing migration that may run beside older code, and return their names.

    Of ten nodes that start at once one migrates, and the others wait and find nothing left to do. In an empty
    database, which no older code uses, all migrations are applied.
    """
    steps = known() if steps is None else steps
    async with _alone(database, patience) as connection:
        await connection.execute(SQL_CREATE_HISTORY)
        applied = await _applied(connection, steps)
        missing = [step for step in steps if step.number not in applied]
        due = missing if not applied else [step for step in missing if not step.is_post]
        left = {step.number: step.name for step in missing if step not in due}
        for step in due:
            if step.after in left:
                raise OperatorError(
                    f"Migration {step.name} comes after {left[step.after]}: "
                    "run `tumira migrate --finish` once no older node runs."
                )
            await _take(connection, step, patience)
        await _make_weeks(connection, patience)
        return [step.name for step in due]


@dataclass(frozen=True, slots=True)
class Finished:
    """The migrations that were applied, those that have to wait, and the nodes that they wait for."""

    applied: Sequence[str]
    left: Sequence[str]
    older: Sequence[Node]

    @property
    def problem(self) -> str | None:
        if not self.left:
            return None
        named = ", ".join(f"{one.id} ({one.version or 'no version'})" for one in self.older[:NAMED_MAX])
        more = f" and {len(self.older) - NAMED_MAX} more" if len(self.older) > NAMED_MAX else ""
        return (
            f"{self.left[0]} has to wait: older nodes run, {named}{more}. "
            "Stop them or start this version there, then try again."
        )


async def finish(
    database: Database, steps: Sequence[Migration] | None = None, patience: Patience = PATIENCE
) -> Finished:
    """Apply all missing migrations, but for those that remove what a running node needs."""
    steps = known() if steps is None else steps
    done: list[str] = []
    left: dict[int, str] = {}
    blockers: Sequence[Node] = ()
    async with _alone(database, patience) as connection:
        await connection.execute(SQL_CREATE_HISTORY)
        applied = await _applied(connection, steps)
        for step in steps:
            if step.number in applied:
                continue
            # Looked at each time: a step may take long, and an older node may have been started meanwhile.
            older = await nodes.list_older(connection, step.number) if step.is_post else ()
            if older or step.after in left:
                left[step.number] = step.name
                blockers = blockers or older
                continue
            await _take(connection, step, patience)
            done.append(step.name)
        await _make_weeks(connection, patience)
    return Finished(done, list(left.values()), blockers)


async def is_current(connection: Connection, steps: Sequence[Migration] | None = None) -> bool:
    steps = known() if steps is None else steps
    if not await SQL_EXISTS.value(connection):
        return False
    applied = await _applied(connection, steps)
    return all(step.number in applied for step in steps if not step.is_post)


async def list_waiting(connection: Connection, steps: Sequence[Migration] | None = None) -> Sequence[str]:
    """Return the migrations that wait for `tumira migrate --finish`."""
    steps = known() if steps is None else steps
    applied = await _applied(connection, steps)
    return [step.name for step in steps if step.is_post and step.number not in applied]


async def _applied(connection: Connection, steps: Iterable[Migration]) -> Mapping[int, str]:
    """Return the applied migrations; refuse those that were changed since, or removed what we need."""
    ours = {step.number: step for step in steps}
    rows = await SQL_APPLIED.rows(connection)
    for number, name, checksum in rows:
        step = ours.get(number)
        if step is None and name.endswith("_post"):
            raise OperatorError(
                f"Tumira {VERSION} is older than the database, from which {name} has taken what it needs: "
                "use the version that did that, or a newer one."
            )
        if step is not None and step.checksum != checksum:
            raise OperatorError(f"Migration {step.name} was changed after it was applied; restore its file.")
    return {number: name for number, name, _ in rows}


@asynccontextmanager
async def _alone(database: Database, patience: Patience) -> AsyncIterator[Connection]:
    """Yield a connection that holds the migration lock.

    The lock is polled: a session that waits for it would be a transaction, and CREATE INDEX CONCURRENTLY
    waits for those.
    """
    # A machine that is gone does not keep the others from starting.
    connection = await database.connect({"idle_session_timeout": "60s"})
    try:
        clock = asyncio.get_running_loop().time
        until = clock() + patience.others_s
        while not await SQL_TRY_LOCK.value(connection, lock=MIGRATION_LOCK):
            if clock() >= until:
                raise TemporaryOperatorError(
                    f"Another node has migrated for {patience.others_s:g} s: wait for it."
                )
            await asyncio.sleep(LOOK_S)
        await connection.execute(
            f"SET lock_timeout = {patience.lock_ms}; SET statement_timeout = '{STEP_S}s'"
        )
        yield connection
    finally:
        await connection.close()


async def _take(connection: Connection, step: Migration, patience: Patience) -> None:
    """Apply one migration: in one transaction, or statement by statement if it says so."""
    if not step.is_outside:

        async def whole() -> None:
            async with connection.transaction():
                await connection.execute(step.text, timeout=STEP_S)
                await _record(connection, step)

        await _patiently(whole, step.name, patience)
        return
    # Begun again from the front after a crash, so that each piece stands being repeated.
    work = step.work()
    for statement in work.first:
        await _run_alone(connection, statement, step.name, patience)
    for week in await _weeks(connection, work):
        for statement in work.each_week:
            await _run_alone(connection, statement.replace("{week}", week), step.name, patience)
    await _record(connection, step)


async def _record(connection: Connection, step: Migration) -> None:
    await SQL_RECORD.rows(connection, number=step.number, name=step.name, checksum=step.checksum)


async def _run_alone(connection: Connection, statement: str, name: str, patience: Patience) -> None:
    # What works beside the traffic waits for transactions that began before it, and nobody waits behind it.
    lock_ms = 0 if "CONCURRENTLY" in statement else patience.lock_ms

    async def run() -> None:
        await connection.execute(f"SET lock_timeout = {lock_ms}")
        await connection.execute(statement, timeout=STEP_S)

    await _patiently(run, name, patience)
    await connection.execute(f"SET lock_timeout = {patience.lock_ms}")


SQL_WEEKS_WITHOUT: Final = Statement("""
SELECT week.inhrelid::regclass::text AS name
  FROM pg_inherits week
 WHERE week.inhparent = %(table)s::text::regclass
   AND NOT EXISTS (
       SELECT
         FROM pg_inherits part
         JOIN pg_index ON pg_index.indexrelid = part.inhrelid
        WHERE part.inhparent = %(index)s::text::regclass
          AND pg_index.indrelid = week.inhrelid)
 ORDER BY 1
""")


async def _weeks(connection: Connection, work: Work) -> Sequence[str]:
    if work.table is None:
        return ()
    return [
        row["name"] for row in await SQL_WEEKS_WITHOUT.rows(connection, table=work.table, index=work.index)
    ]


async def _make_weeks(connection: Connection, patience: Patience) -> None:
    async def make() -> None:
        async with connection.transaction():
            await partitions.create_ahead(connection)

    await _patiently(make, "that makes new weeks", patience)


async def _patiently(work: Callable[[], Awaitable[None]], name: str, patience: Patience) -> None:
    """Do work that needs locks; on a lock timeout, pause so that others go first, and try again."""
    for tries in range(1, patience.tries_max + 1):
        try:
            await work()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if tries == patience.tries_max:
                raise TemporaryOperatorError(
                    f"Migration {name} does not get its locks ({error}): end the long transactions that "
                    "pg_stat_activity shows, or try again at a quieter time."
                ) from error
            await asyncio.sleep(patience.pause_s)
        else:
            return
