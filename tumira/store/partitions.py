"""Which weeks do the large tables have, and which will they need?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from tumira.ids import first_id
from tumira.store.sql import Connection, Statement

WEEKS_AHEAD: Final = 8
WEEKS_AHEAD_MIN: Final = 2
# Detaching waits for those who are using the table, one after the other, and for all of them so long at most.
DETACH_S: Final = 120

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

# The pages of messages are summarised, so that a number is found in them, when their week is vacuumed: after
# so many new ones, however many there are.
_VACUUMED: Final = {
    "messages": ", autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000"
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


@dataclass(frozen=True, slots=True)
class Week:
    """A week of one table: the ids from `low` on and below `high`."""

    name: str
    parent: str
    low: UUID
    high: UUID


# What is bounded in another way was not made here, and is left alone.
SQL_LIST: Final = Statement("""
SELECT name, parent, bounds[1]::uuid AS low, bounds[2]::uuid AS high
  FROM (SELECT week.oid::regclass::text AS name, %(table)s::text AS parent,
               regexp_match(pg_get_expr(week.relpartbound, week.oid),
                            'FROM \\(''([0-9a-f-]{36})''\\) TO \\(''([0-9a-f-]{36})''\\)') AS bounds
          FROM pg_inherits
          JOIN pg_class AS week ON week.oid = inhrelid
         WHERE inhparent = %(table)s::text::regclass
           AND NOT inhdetachpending) AS bounded
 WHERE bounds IS NOT NULL
 ORDER BY low
""")


async def list_weeks(connection: Connection, table: str) -> Sequence[Week]:
    """Return the weeks of a table with their bounds, the oldest first; not those that are being detached."""
    return [Week(*row) for row in await SQL_LIST.rows(connection, table=table)]


async def this_week(connection: Connection) -> datetime:
    """Return when this week began, by the database's clock."""
    return _monday(await SQL_NOW.value(connection))


class State(StrEnum):
    """How far a week is on its way out."""

    ATTACHED = "attached"
    # Nobody who begins now sees it; those who began before may still read it.
    PENDING = "pending"
    DETACHED = "detached"
    GONE = "gone"


SQL_STATE: Final = Statement("""
SELECT CASE WHEN week.oid IS NULL THEN 'gone'
            WHEN inhrelid IS NULL THEN 'detached'
            WHEN inhdetachpending THEN 'pending'
            ELSE 'attached' END
  FROM (SELECT to_regclass(%(name)s::text)::oid AS oid) AS week
  LEFT JOIN pg_inherits ON inhrelid = week.oid
""")


async def state_of(connection: Connection, week: Week) -> State:
    """Tell how far a week is on its way out."""
    return State(await SQL_STATE.value(connection, name=week.name))


async def detach(connection: Connection, week: Week) -> None:
    """Take a week out of its table while others read and write there, or go on where somebody died at that.

    Outside a transaction, because PostgreSQL makes two of it: from the first on nobody new sees the week, and
    between the two those are waited for who still may.
    """
    state = await state_of(connection, week)
    if state is State.ATTACHED:
        how = "CONCURRENTLY"
    elif state is State.PENDING:
        how = "FINALIZE"
    else:
        return
    await connection.execute(
        f"ALTER TABLE {week.parent} DETACH PARTITION {week.name} {how}", timeout=DETACH_S
    )


async def _create(connection: Connection, table: str, name: str, start: datetime, fillfactor: int) -> None:
    low, high = (first_id(int(at.timestamp() * 1000)) for at in (start, start + timedelta(weeks=1)))
    # Made apart and then attached, because attaching does not lock out those who are writing.
    await connection.execute(
        f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"
        f" WITH (fillfactor = {fillfactor}{_VACUUMED.get(table, '')});"
        f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{low}') TO ('{high}')"
    )


def _monday(at: datetime) -> datetime:
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def _name(table: str, start: datetime) -> str:
    year, week, _ = start.isocalendar()
    return f"{table}_{year}w{week:02}"
