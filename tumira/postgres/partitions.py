"""Weekly partitions of the large tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from tumira.core.ids import first_id, made_at_ms
from tumira.postgres.clock import read_now
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

WEEKS_AHEAD: Final = 8
WEEKS_AHEAD_MIN: Final = 2
# Detaching waits for those who are using the table, one after the other, and for all of them so long at most.
DETACH_S: Final = 120
# The clocks of those who make ids do not differ by more.
AHEAD: Final = timedelta(days=1)

# The tables cut into weeks, each with the share of a page that its first rows may fill. Messages leave half
# of it for the updates to come, and parts leave room for receipts, which are longer: then an update needs no
# index entry.
TABLES: Final = {
    "batches": 70,
    "messages": 50,
    "parts": 30,
    "incidents": 100,
    "events": 100,
    "webhook_attempts": 100,
}

# The pages of messages are summarised, so that a number is found in them, when their week is vacuumed: after
# so many new ones, however many there are.
_VACUUMED: Final = {
    "messages": ", autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000"
}

SQL_NAMES: Final = Statement("""
SELECT inhrelid::regclass::text AS name
  FROM pg_inherits
 WHERE inhparent = %(table)s::text::regclass
 ORDER BY 1
""")


async def create_ahead(connection: Connection) -> Sequence[str]:
    """Create the missing weeks from last week to eight weeks ahead, and return their names."""
    monday = _monday(await read_now(connection))
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
    return [row["name"] for row in await SQL_NAMES.rows(connection, table=table)]


SQL_NAMES_AND_NOW: Final = Statement("""
SELECT inhrelid::regclass::text AS name, clock_timestamp() AS now
  FROM pg_inherits
 WHERE inhparent = %(table)s::text::regclass
   AND NOT inhdetachpending
 ORDER BY 1 DESC
""")


async def names_within(connection: Connection, table: str, low: UUID, high: UUID) -> Sequence[str]:
    """Return the weeks of a table in which ids from `low` to below `high` may be by now, the newest first."""
    rows = await SQL_NAMES_AND_NOW.rows(connection, table=table)
    if not rows:
        return []
    high = min(high, first_id(_ms(rows[0]["now"] + AHEAD)))
    first, last = (_name(table, datetime.fromtimestamp(made_at_ms(end) / 1000, UTC)) for end in (low, high))
    return [row["name"] for row in rows if first <= row["name"] <= last]


async def weeks_left(connection: Connection) -> int:
    """Return how many weeks ahead every table has."""
    monday = _monday(await read_now(connection))
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


SQL_BOUNDS: Final = Statement("""
SELECT inhrelid::regclass::text AS name, pg_get_expr(relpartbound, inhrelid) AS bounds
  FROM pg_inherits
  JOIN pg_class ON oid = inhrelid
 WHERE inhparent = %(table)s::text::regclass
   AND NOT inhdetachpending
""")
_BOUNDS: Final = re.compile(r"FOR VALUES FROM \('([0-9a-f-]{36})'\) TO \('([0-9a-f-]{36})'\)")


async def list_weeks(connection: Connection, table: str) -> Sequence[Week]:
    """Return the weeks of a table with their bounds, the oldest first; not those that are being detached.

    Partitions with other bounds were not made here, and are left alone.
    """
    rows = await SQL_BOUNDS.rows(connection, table=table)
    bounded = [(row["name"], _BOUNDS.fullmatch(row["bounds"])) for row in rows]
    weeks = [
        Week(name, table, UUID(match[1]), UUID(match[2])) for name, match in bounded if match is not None
    ]
    return sorted(weeks, key=lambda week: week.low)


async def this_week(connection: Connection) -> datetime:
    """Return when this week began, by the database's clock."""
    return _monday(await read_now(connection))


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
    return State(await SQL_STATE.value(connection, name=week.name))


async def detach(connection: Connection, week: Week) -> None:
    """Detach a week from its table while others read and write there, or continue after a crash.

    Outside a transaction, because PostgreSQL makes two of it: from the first on no new transaction sees the
    week, and between the two it waits for those that may still see it.
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
    low, high = (first_id(_ms(at)) for at in (start, start + timedelta(weeks=1)))
    # Made apart and then attached, because attaching does not lock out those who are writing.
    await connection.execute(
        f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"
        f" WITH (fillfactor = {fillfactor}{_VACUUMED.get(table, '')});"
        f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{low}') TO ('{high}')"
    )


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _monday(at: datetime) -> datetime:
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def _name(table: str, at: datetime) -> str:
    """Return the name of the week of a moment; names sort by time."""
    year, week, _ = at.isocalendar()
    return f"{table}_{year}w{week:02}"
