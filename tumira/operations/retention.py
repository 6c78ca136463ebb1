"""Retention: old weeks are dropped whole, and the numbers of old messages are shortened.

A week is checked, detached, checked again and dropped. No step blocks other transactions, and a worker may
die after any of them: the next run finds the week in `leaving_weeks` with its state, and continues.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

import asyncpg

from tumira.core.errors import OperatorError
from tumira.core.ids import first_id, made_at_ms
from tumira.operations.audit import runs
from tumira.operations.audit.checks import AuditScope, settled_checks
from tumira.postgres import clock, partitions
from tumira.postgres.connection import Connection
from tumira.postgres.partitions import State, Week
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement
from tumira.pricing.phone_numbers import DIGITS_LEFT, GAP, NUMBERS_KEPT
from tumira.sending.lifecycle import is_final

# A week is read as a whole before it goes.
READ_S: Final = 3600
# By so much the clocks of those who write may differ.
_UNSURE_MS: Final = 3_600_000


class RetentionKind(StrEnum):
    """Tables that are kept for the same time, and dropped together."""

    MESSAGES = "messages"
    EVENTS = "events"
    ATTEMPTS = "attempts"


TABLES: Final[Mapping[RetentionKind, Sequence[str]]] = {
    # The batch goes first: nobody is shown one that has lost its messages.
    RetentionKind.MESSAGES: ("batches", "messages", "parts", "incidents"),
    RetentionKind.EVENTS: ("events",),
    RetentionKind.ATTEMPTS: ("webhook_attempts",),
}


@dataclass(frozen=True, slots=True)
class Leaving:
    """An old week of all tables of a kind."""

    kind: RetentionKind
    low: UUID
    high: UUID
    tables: Sequence[Week]

    @property
    def name(self) -> str:
        """Its name in a line to the operator."""
        return ", ".join(week.name for week in self.tables)

    def table(self, parent: str) -> str:
        """Return the week of one table, in SQL; an empty relation where it has none."""
        found = [week.name for week in self.tables if week.parent == parent]
        return found[0] if found else f"(SELECT * FROM {parent} WHERE false)"  # noqa: S608 - our own name


# Free while nobody audits: an audit must find a week's rows all there or all gone.
SQL_TRY_LOCK: Final = Statement(
    "SELECT pg_try_advisory_lock(hashtext('tumira retention'), hashtext(%(kind)s))"
)


@asynccontextmanager
async def alone(database: Database, kind: RetentionKind, wait_ms: int) -> "AsyncIterator[Connection | None]":
    """Yield a connection that holds the retention lock of a kind; None while another process drops or audits.

    The lock ends with the connection: that of a worker that died is free at once.
    """
    # Whoever attaches a week, or vacuums one, stands in the same line: nobody is waited for longer than this.
    settings = {**runs.PLANNED_FREELY, "lock_timeout": f"{wait_ms}ms"}
    async with database.own_connection(settings) as connection:
        yield connection if await SQL_TRY_LOCK.value(connection, kind=kind.value) else None


async def list_old(connection: Connection, kind: RetentionKind, weeks_kept: int) -> Sequence[Leaving]:
    """Return the weeks of a kind that ended `weeks_kept` weeks ago and are not leaving yet, the oldest first.

    Of messages and events `weeks_kept` weeks stay in any case, whatever the time is: a clock that jumps ahead
    by years takes a few weeks with it, and not all of them.
    """
    monday = await partitions.this_week(connection)
    border, now = (
        first_id(int(at.timestamp() * 1000))
        for at in (monday - timedelta(weeks=weeks_kept), monday + timedelta(weeks=1))
    )
    on_their_way = {week.name for one in await list_leaving(connection, kind) for week in one.tables}
    found: dict[tuple[UUID, UUID], list[Week]] = {}
    for table in TABLES[kind]:
        for week in await partitions.list_weeks(connection, table):
            if week.name not in on_their_way:
                found.setdefault((week.low, week.high), []).append(week)
    begun = sorted(bounds for bounds in found if bounds[0] < now)
    if kind is not RetentionKind.ATTEMPTS:
        begun = begun[: max(0, len(begun) - weeks_kept)]
    return [Leaving(kind, *bounds, found[bounds]) for bounds in begun if bounds[1] <= border]


_OPEN_MESSAGES: Final = """
SELECT (SELECT count(*) FROM {batches} batch WHERE completed_at IS NULL),
       (SELECT count(*) FROM {messages} message WHERE status IN ('queued', 'sending', 'sent')),
       (SELECT count(*)
          FROM (SELECT message_id FROM queue
                 UNION ALL
                SELECT message_id FROM in_flight
                 UNION ALL
                SELECT message_id FROM retries) AS place
         WHERE message_id >= $1
           AND message_id < $2)
"""

# What an endpoint that is paused or disabled was not told of does not wait for ever.
_OPEN_EVENTS: Final = """
SELECT (SELECT count(*)
          FROM webhook_endpoints e
          JOIN (SELECT account_id, max(sequence) AS last FROM {events} event GROUP BY account_id) AS told
               ON told.account_id = e.account_id
         WHERE e.state = 'active'
           AND e.position < told.last),
       (SELECT count(*)
          FROM webhook_retries
         WHERE event_id >= $1
           AND event_id < $2
           AND due_at < 'infinity')
"""

_OPEN: Final[Mapping[RetentionKind, tuple[str, Sequence[str]]]] = {
    RetentionKind.MESSAGES: (
        _OPEN_MESSAGES,
        ("batches that are not completed", "messages that have not ended", "messages that wait to be sent"),
    ),
    RetentionKind.EVENTS: (
        _OPEN_EVENTS,
        ("endpoints that were not told of all of it", "events that are tried again"),
    ),
}


async def problem_of(connection: Connection, week: Leaving) -> str | None:
    """Return why a week has to stay: messages in it are open, or it does not add up; None when it may go."""
    if week.kind not in _OPEN:
        return None
    query, words = _OPEN[week.kind]
    text = query.format(**{table: week.table(table) for table in TABLES[week.kind]})
    row = await connection.fetchrow(text, week.low, week.high, timeout=READ_S)
    assert row is not None
    still_open = [f"{count} {word}" for count, word in zip(row, words, strict=True) if count]
    if still_open:
        return f"it has {' and '.join(still_open)}"
    if week.kind is RetentionKind.MESSAGES:
        scope = AuditScope(week.table("batches"), week.table("messages"), f"'{week.low}'", f"'{week.high}'")
        for check in settled_checks(scope):
            if (await runs.run_check(connection, check)).rows:
                return f"it does not add up, as `{check.name}` of the audit says"
    return None


SQL_MARK_LEAVING: Final = Statement("""
WITH bordered AS (
    UPDATE kept_from
       SET id = greatest(id, %(high)s), sure_from = greatest(sure_from, %(sure_from)s)
     WHERE kind = %(kind)s
)
INSERT INTO leaving_weeks (name, parent, kind, low, high)
SELECT name, parent, %(kind)s, %(low)s, %(high)s
  FROM unnest(%(names)s::text[], %(parents)s::text[]) AS week (name, parent)
""")


async def mark_leaving(connection: Connection, week: Leaving) -> None:
    """Mark a week as leaving: from now on nothing is compared with it, and the next run continues with it."""
    await SQL_MARK_LEAVING.rows(
        connection,
        kind=week.kind.value,
        low=week.low,
        high=week.high,
        sure_from=first_id(made_at_ms(week.high) + _UNSURE_MS),
        names=[one.name for one in week.tables],
        parents=[one.parent for one in week.tables],
    )


SQL_LIST_LEAVING: Final = Statement("""
SELECT name, parent, low, high FROM leaving_weeks WHERE kind = %(kind)s ORDER BY low, parent, name
""")


async def list_leaving(connection: Connection, kind: RetentionKind) -> Sequence[Leaving]:
    """Return the weeks that are leaving, the oldest first."""
    found: dict[tuple[UUID, UUID], list[Week]] = {}
    for row in await SQL_LIST_LEAVING.rows(connection, kind=kind.value):
        found.setdefault((row["low"], row["high"]), []).append(Week(*row))
    order = TABLES[kind].index
    return [
        Leaving(kind, *bounds, sorted(weeks, key=lambda week: order(week.parent)))
        for bounds, weeks in found.items()
    ]


SQL_FORGET: Final = Statement("DELETE FROM leaving_weeks WHERE name = ANY(%(names)s::text[])")


async def drop(connection: Connection, week: Leaving) -> None:
    """Drop a week that is detached from all its tables; no other transaction can see it any more."""
    names = [one.name for one in week.tables]
    async with connection.transaction():
        states = {await partitions.state_of(connection, one) for one in week.tables}
        assert states <= {State.DETACHED, State.GONE}, (names, states)
        await connection.execute(f"DROP TABLE IF EXISTS {', '.join(names)}")
        await SQL_FORGET.rows(connection, names=names)


WEEKS_PER_TURN_MAX: Final = 8
# For each of those who were using a table when a week of it was detached; else it is finished the next time.
WAIT_MS: Final = 10_000


async def drop_old(database: Database, kind: RetentionKind, weeks_kept: int, wait_ms: int = WAIT_MS) -> int:
    """Drop the weeks of a kind that ended `weeks_kept` weeks ago, and return how many.

    The oldest goes first and nothing overtakes it: all above the border is complete.
    """
    dropped = 0
    async with alone(database, kind, wait_ms) as line:
        if line is None:
            return 0
        for week in await list_leaving(line, kind):
            await _let_go(line, week)
            dropped += 1
        for week in (await list_old(line, kind, weeks_kept))[:WEEKS_PER_TURN_MAX]:
            problem = await problem_of(line, week)
            if problem is not None:
                raise OperatorError(
                    f"The old week {week.name} is kept, because {problem}: run `tumira audit`."
                )
            await mark_leaving(line, week)
            await _let_go(line, week)
            dropped += 1
    return dropped


async def _let_go(line: Connection, week: Leaving) -> None:
    for one in week.tables:
        try:
            await partitions.detach(line, one)
        except (asyncpg.LockNotAvailableError, TimeoutError) as error:
            raise OperatorError(
                f"The old week {one.name} cannot go, because a transaction that is older still uses "
                f"{one.parent}: it is tried again every hour; look for that one in pg_stat_activity."
            ) from error
    # Whatever was written there between the first look and the detaching is seen now, and nothing can follow.
    # Somebody may have dropped it by hand after such a look.
    left = [one for one in week.tables if await partitions.state_of(line, one) is not State.GONE]
    problem = await problem_of(line, replace(week, tables=left)) if left else None
    if problem is not None:
        raise OperatorError(
            f"The old week {week.name} was detached and is not dropped, because {problem}: see what is in "
            "it; then drop it, or attach it again and delete it from leaving_weeks."
        )
    await drop(line, week)


SQL_HOLD_PLACE: Final = Statement("SELECT up_to FROM number_retention FOR NO KEY UPDATE")

SQL_LIST_OLD: Final = Statement("""
SELECT id, status
  FROM messages
 WHERE id > %(up_to)s
   AND id < %(before)s
 ORDER BY id
 LIMIT %(count_max)s
""")

# Held in their order, because somebody may be erasing one of them.
SQL_CUT: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id
      FROM messages
     WHERE id BETWEEN %(low)s AND %(high)s
       AND recipient ~ '^[+][0-9]+$'
     ORDER BY id
       FOR NO KEY UPDATE
)
UPDATE messages
   SET recipient = '+' || (SELECT calling_code FROM destinations WHERE country = messages.country)
                   || %(gap)s || right(recipient, %(digits)s)
 WHERE id = ANY(ARRAY(SELECT id FROM old))
   AND id BETWEEN %(low)s AND %(high)s
""")

SQL_CUT_INCIDENTS: Final = Statement("""
UPDATE incidents
   SET recipient = NULL
 WHERE message_id BETWEEN %(low)s AND %(high)s
   AND recipient IS NOT NULL
""")

SQL_SET_PLACE: Final = Statement("UPDATE number_retention SET up_to = %(up_to)s")


async def cut_old(connection: Connection, count_max: int) -> int:
    """Shorten the numbers of the oldest messages, and return how many were looked at."""
    up_to = await SQL_HOLD_PLACE.value(connection)
    kept_from = await clock.read_now(connection) - NUMBERS_KEPT
    before = first_id(int(kept_from.timestamp() * 1000))
    ended = []
    for row in await SQL_LIST_OLD.rows(connection, up_to=up_to, before=before, count_max=count_max):
        # One that still waits, because no worker ran for months, needs its number; the others wait with it.
        if not is_final(row["status"]):
            break
        ended.append(row["id"])
    if ended:
        bounds = {"low": ended[0], "high": ended[-1]}
        await SQL_CUT.rows(connection, **bounds, gap=GAP, digits=DIGITS_LEFT)
        await SQL_CUT_INCIDENTS.rows(connection, **bounds)
        await SQL_SET_PLACE.rows(connection, up_to=ended[-1])
    return len(ended)
