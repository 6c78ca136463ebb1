"""Which weeks do the large tables have, and which will they need?"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tumira.ids import first_id
from tumira.store.sql import Connection, Statement

WEEKS_AHEAD: Final = 8
WEEKS_AHEAD_MIN: Final = 2

# The tables cut into weeks, each with the share of a page that its first rows may fill: messages leave half
# of it for the updates to come, so that these need no index entry.
TABLES: Final = {
    "batches": 70,
    "messages": 50,
    "parts": 80,
    "incidents": 100,
    "events": 100,
    "webhook_attempts": 100,
}

SQL_NOW: Final = Statement("SELECT clock_timestamp()")

SQL_NAMES: Final = Statement("""
SELECT inhrelid::regclass::text AS name
  FROM pg_inherits
 WHERE inhparent = %(table)s::text::regclass
 ORDER BY 1
""")


async def create_ahead(connection: Connection) -> Sequence[str]:
    """Create the weeks from last week's to eight ahead that are missing, and return their names."""
    monday = _monday(await SQL_NOW.value(connection))
    created = []
    for table, fillfactor in TABLES.items():
        present = await names(connection, table)
        for weeks in range(-1, WEEKS_AHEAD + 1):
            start = monday + timedelta(weeks=weeks)
            name = _name(table, start)
            if name not in present:
                await _create(connection, table, name, start, fillfactor)
                created.append(name)
    return created


async def drop_old(connection: Connection, table: str, weeks_kept: int) -> Sequence[str]:
    """Drop the weeks of a table that ended more than so many weeks ago, and return their names."""
    monday = _monday(await SQL_NOW.value(connection))
    kept = {_name(table, monday + timedelta(weeks=weeks)) for weeks in range(-weeks_kept, WEEKS_AHEAD + 2)}
    old = [name for name in await names(connection, table) if name not in kept]
    # Whoever reads the table is waited for, but not for long: those who write wait behind us.
    await connection.execute("SET LOCAL lock_timeout = '2s'")
    for name in old:
        await connection.execute(f"DROP TABLE {name}")
    return old


async def names(connection: Connection, table: str) -> Sequence[str]:
    """Return the weeks that a table has."""
    return [row["name"] for row in await SQL_NAMES.rows(connection, table=table)]


async def weeks_left(connection: Connection) -> int:
    """Return how many weeks after this one every table is ready for."""
    monday = _monday(await SQL_NOW.value(connection))
    left = []
    for table in TABLES:
        present = await names(connection, table)
        weeks = 0
        while _name(table, monday + timedelta(weeks=weeks)) in present:
            weeks += 1
        left.append(weeks - 1)
    return min(left)


async def _create(connection: Connection, table: str, name: str, start: datetime, fillfactor: int) -> None:
    low, high = (first_id(int(at.timestamp() * 1000)) for at in (start, start + timedelta(weeks=1)))
    # Made apart and then attached, because attaching does not lock out those who are writing.
    await connection.execute(
        f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL) WITH (fillfactor = {fillfactor});"
        f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{low}') TO ('{high}')"
    )


def _monday(at: datetime) -> datetime:
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def _name(table: str, start: datetime) -> str:
    year, week, _ = start.isocalendar()
    return f"{table}_{year}w{week:02}"
