"""Which steps lead from an empty database to today's schema, and which of them has this one taken?"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import Final

from tumira.errors import Trouble
from tumira.store import partitions
from tumira.store.database import Database
from tumira.store.sql import Connection, Statement

# Any number will do, as long as nothing else in this database locks the same one.
MIGRATION_LOCK: Final = 7_486_921_001


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered SQL file."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> bytes:
        """Return what tells an edited file from the one that was applied."""
        return sha256(self.text.encode()).digest()


def known() -> Sequence[Migration]:
    """Return the migrations of this version of the code, in order."""
    files = resources.files("tumira.store").joinpath("migrations").iterdir()
    return sorted(
        (
            Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
            for file in files
            if file.name.endswith(".sql")
        ),
        key=lambda migration: migration.number,
    )


SQL_LOCK: Final = Statement("SELECT pg_advisory_xact_lock(%(lock)s)")

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


async def migrate(database: Database) -> Sequence[str]:
    """Take every step that is missing, and return their names.

    All in one transaction that first takes a lock: of ten nodes that start at once one migrates, and
    the others wait and find nothing left to do.
    """
    async with database.transaction() as connection:
        # A migration may wait for the one that runs, but not stand in the queue of a busy table.
        await connection.execute("SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = '600s'")
        await SQL_LOCK.value(connection, lock=MIGRATION_LOCK)
        await connection.execute("SET LOCAL lock_timeout = '5s'")
        await connection.execute(SQL_CREATE_HISTORY)
        missing = await _missing(connection)
        for migration in missing:
            await connection.execute(migration.text)
            await SQL_RECORD.rows(
                connection, number=migration.number, name=migration.name, checksum=migration.checksum
            )
        await partitions.create_ahead(connection)
        return [migration.name for migration in missing]


async def is_current(connection: Connection) -> bool:
    """Tell whether every migration of this code has been applied."""
    return bool(await SQL_EXISTS.value(connection)) and not await _missing(connection)


async def _missing(connection: Connection) -> Sequence[Migration]:
    applied = {row["number"]: row for row in await SQL_APPLIED.rows(connection)}
    for migration in known():
        row = applied.get(migration.number)
        if row is not None and row["checksum"] != migration.checksum:
            raise Trouble(f"Migration {migration.name} was changed after it was applied; restore its file.")
    return [migration for migration in known() if migration.number not in applied]
