"""Scheduled sends: their rows, and which is next."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct, structs

from tumira.core.ids import AccountId, BatchId, ScheduleId, UploadId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.phone_numbers import Subject
from tumira.sending.lifecycle import TEXT_KEPT

# So long after its end the rest of a schedule is kept.
KEPT: Final = timedelta(days=90)


class ScheduleState(StrEnum):
    WAITING = "waiting"
    # A file in this state may still be on its way; its own page shows how far it is.
    SENT = "sent"
    NOT_SENT = "not_sent"
    CANCELLED = "cancelled"


class NewSchedule(Struct, frozen=True):
    """A send that begins later: a file, or a message with its recipients."""

    id: ScheduleId
    account_id: AccountId
    start_at: datetime
    upload_id: UploadId | None
    recipients: Sequence[str]
    message: str
    reference: str | None
    count: int
    # The price that its owner agreed to.
    cost: Decimal
    judged_by: str
    # Whether a person other than the one who asked has to approve it.
    approval_needed: bool = False
    asked_by: UUID | None = None


class Schedule(Struct, frozen=True):
    """A scheduled send without its recipients."""

    id: ScheduleId
    account_id: AccountId
    state: ScheduleState
    start_at: datetime
    upload_id: UploadId | None
    message: str
    reference: str | None
    count: int
    cost: Decimal
    held: Decimal
    judged_by: str
    approval_needed: bool
    asked_by: UUID | None
    approved_at: datetime | None
    # Why it was not sent, how many recipients were left out when it began, and what it cost then.
    problem: str | None
    left_out: int
    batch_id: BatchId | None
    sent_cost: Decimal | None
    created_at: datetime
    ended_at: datetime | None
    erased_at: datetime | None

    @property
    def is_waiting(self) -> bool:
        return self.state is ScheduleState.WAITING

    @property
    def lacks_approval(self) -> bool:
        return self.approval_needed and self.approved_at is None


SQL_INSERT: Final = Statement("""
INSERT INTO schedules (id, account_id, start_at, upload_id, recipients, message, reference, count, cost,
                       judged_by, approval_needed, asked_by)
VALUES (%(id)s, %(account_id)s, %(start_at)s, %(upload_id)s, %(recipients)s, %(message)s, %(reference)s,
        %(count)s, %(cost)s, %(judged_by)s, %(approval_needed)s, %(asked_by)s)
""")


async def insert(connection: Connection, new: NewSchedule) -> None:
    await SQL_INSERT.rows(connection, **structs.asdict(new))


SQL_CHANGE: Final = Statement("""
UPDATE schedules
   SET start_at = %(start_at)s, upload_id = %(upload_id)s, recipients = %(recipients)s,
       message = %(message)s, reference = %(reference)s, count = %(count)s, cost = %(cost)s,
       judged_by = %(judged_by)s, approval_needed = %(approval_needed)s, asked_by = %(asked_by)s,
       approved_at = NULL
 WHERE id = %(id)s
   AND account_id = %(account_id)s
   AND state = 'waiting'
""")


async def change(connection: Connection, new: NewSchedule) -> None:
    """Replace a locked schedule by a new version of it, which has not been approved."""
    await SQL_CHANGE.rows(connection, **structs.asdict(new))


SQL_SET_START: Final = Statement("UPDATE schedules SET start_at = %(start_at)s WHERE id = %(schedule_id)s")


async def set_start(connection: Connection, schedule_id: ScheduleId, start_at: datetime) -> None:
    """Change when a locked schedule begins."""
    await SQL_SET_START.rows(connection, schedule_id=schedule_id, start_at=start_at)


SQL_MARK_APPROVED: Final = Statement(
    "UPDATE schedules SET approved_at = clock_timestamp() WHERE id = %(schedule_id)s"
)


async def mark_approved(connection: Connection, schedule_id: ScheduleId) -> None:
    await SQL_MARK_APPROVED.rows(connection, schedule_id=schedule_id)


_SCHEDULE: Final = """
SELECT id, account_id, state, start_at, upload_id, message, reference, count, cost, held, judged_by,
       approval_needed, asked_by, approved_at, problem, left_out, batch_id, sent_cost, created_at, ended_at,
       erased_at
  FROM schedules
"""


def _read(row: asyncpg.Record) -> Schedule:
    schedule_id, account_id, state, *rest = row
    return Schedule(schedule_id, account_id, ScheduleState(state), *rest)


_OWN: Final = _SCHEDULE + "WHERE id = %(schedule_id)s AND account_id = %(account_id)s"

SQL_FIND: Final = Statement(_OWN)
SQL_LOCK: Final = Statement(_OWN + " FOR NO KEY UPDATE")


async def find(connection: Connection, account_id: AccountId, schedule_id: ScheduleId) -> Schedule | None:
    """Return an account's schedule; None for an unknown one and for another account's."""
    row = await SQL_FIND.row(connection, account_id=account_id, schedule_id=schedule_id)
    return None if row is None else _read(row)


async def lock(connection: Connection, account_id: AccountId, schedule_id: ScheduleId) -> Schedule | None:
    """Lock an account's schedule and return it."""
    row = await SQL_LOCK.row(connection, account_id=account_id, schedule_id=schedule_id)
    return None if row is None else _read(row)


SQL_LIST_RECIPIENTS: Final = Statement("""
SELECT recipients FROM schedules WHERE id = %(schedule_id)s AND account_id = %(account_id)s
""")


async def list_recipients(
    connection: Connection, account_id: AccountId, schedule_id: ScheduleId
) -> Sequence[str]:
    """Return the numbers of a scheduled message; none for a file, and after they were erased."""
    found = await SQL_LIST_RECIPIENTS.value(connection, account_id=account_id, schedule_id=schedule_id)
    return found or []


SQL_LIST_UNAPPROVED: Final = Statement(
    _SCHEDULE
    + """
 WHERE account_id = %(account_id)s
   AND state = 'waiting'
   AND approval_needed
   AND approved_at IS NULL
 ORDER BY start_at, id
 LIMIT 100
"""
)


async def list_unapproved(connection: Connection, account_id: AccountId) -> Sequence[Schedule]:
    """Return scheduled sends that wait for a second person, the next first."""
    return [_read(row) for row in await SQL_LIST_UNAPPROVED.rows(connection, account_id=account_id)]


SQL_LIST_WAITING: Final = Statement(
    _SCHEDULE
    + "WHERE account_id = %(account_id)s AND state = 'waiting' ORDER BY start_at, id LIMIT %(count_max)s"
)
SQL_LIST_ENDED: Final = Statement(
    _SCHEDULE
    + """
 WHERE account_id = %(account_id)s
   AND state = ANY(%(states)s::text[])
   AND ended_at >= clock_timestamp() - %(within)s::interval
 ORDER BY ended_at DESC
 LIMIT %(count_max)s
"""
)


async def list_waiting(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Schedule]:
    """Return what an account has scheduled, the next one first."""
    rows = await SQL_LIST_WAITING.rows(connection, account_id=account_id, count_max=count_max)
    return [_read(row) for row in rows]


async def list_ended(
    connection: Connection,
    account_id: AccountId,
    count_max: int,
    *,
    states: Collection[ScheduleState] = tuple(ScheduleState),
    within: timedelta = KEPT,
) -> Sequence[Schedule]:
    """Return an account's schedules that ended lately, the newest first."""
    rows = await SQL_LIST_ENDED.rows(
        connection,
        account_id=account_id,
        states=[state.value for state in states],
        within=within,
        count_max=count_max,
    )
    return [_read(row) for row in rows]


SQL_COUNT_WAITING: Final = Statement(
    "SELECT count(*) FROM schedules WHERE account_id = %(account_id)s AND state = 'waiting'"
)


async def count_waiting(connection: Connection, account_id: AccountId) -> int:
    return int(await SQL_COUNT_WAITING.value(connection, account_id=account_id))


SQL_FIND_OF_FILE: Final = Statement(
    _SCHEDULE + "WHERE upload_id = %(upload_id)s AND account_id = %(account_id)s ORDER BY id DESC LIMIT 1"
)


async def find_of_file(connection: Connection, account_id: AccountId, upload_id: UploadId) -> Schedule | None:
    """Return the last schedule of a file."""
    row = await SQL_FIND_OF_FILE.row(connection, account_id=account_id, upload_id=upload_id)
    return None if row is None else _read(row)


class NextSchedule(Struct, frozen=True):
    """The schedule that begins next, and in how many seconds; not above zero when it is due."""

    id: ScheduleId
    account_id: AccountId
    upload_id: UploadId | None
    judged_by: str
    wait_s: float


# The database's clock decides, whatever a node's own clock says.
SQL_FIND_NEXT: Final = Statement("""
SELECT id, account_id, upload_id, judged_by,
       extract(epoch FROM start_at - clock_timestamp())::double precision AS wait_s
  FROM schedules
 WHERE state = 'waiting'
   AND id <> ALL(%(skipped)s::uuid[])
 ORDER BY start_at
 LIMIT 1
""")


async def find_next(connection: Connection, skipped: Collection[ScheduleId]) -> NextSchedule | None:
    row = await SQL_FIND_NEXT.row(connection, skipped=list(skipped))
    return None if row is None else NextSchedule(*row)


# Locked until commit, so that no two workers begin it; a crash releases the lock.
SQL_CLAIM: Final = Statement(
    _SCHEDULE
    + """
 WHERE id = %(schedule_id)s
   AND state = 'waiting'
   AND start_at <= clock_timestamp()
   FOR NO KEY UPDATE SKIP LOCKED
"""
)


async def claim(connection: Connection, schedule_id: ScheduleId) -> Schedule | None:
    """Lock a schedule that is due; None if it began, was changed, or another worker has locked it."""
    row = await SQL_CLAIM.row(connection, schedule_id=schedule_id)
    return None if row is None else _read(row)


# The file as it was uploaded is of no use any more.
SQL_MARK_ENDED: Final = Statement("""
WITH file AS (
    DELETE FROM scheduled_files WHERE schedule_id = %(schedule_id)s
)
UPDATE schedules
   SET state = %(state)s, ended_at = clock_timestamp(), problem = %(problem)s, batch_id = %(batch_id)s,
       sent_cost = %(sent_cost)s, left_out = %(left_out)s
 WHERE id = %(schedule_id)s
   AND state = 'waiting'
RETURNING 1
""")


async def mark_ended(
    connection: Connection,
    schedule_id: ScheduleId,
    state: ScheduleState,
    *,
    problem: str | None = None,
    batch_id: BatchId | None = None,
    sent_cost: Decimal | None = None,
    left_out: int = 0,
) -> None:
    """Store the outcome of a locked schedule."""
    ended = await SQL_MARK_ENDED.value(
        connection,
        schedule_id=schedule_id,
        state=state.value,
        problem=problem,
        batch_id=batch_id,
        sent_cost=sent_cost,
        left_out=left_out,
    )
    assert ended is not None, "a schedule ends once, by whoever holds it"


SQL_LIST_IDS: Final = Statement(
    "SELECT id FROM schedules WHERE account_id = %(account_id)s AND state = 'waiting' ORDER BY id"
)


async def list_waiting_ids(connection: Connection, account_id: AccountId) -> Sequence[ScheduleId]:
    return [row["id"] for row in await SQL_LIST_IDS.rows(connection, account_id=account_id)]


# A node of the version before leaves the file.
SQL_ERASE_OLD: Final = Statement("""
WITH files AS (
    DELETE FROM scheduled_files f
     USING schedules s
     WHERE s.id = f.schedule_id
       AND s.ended_at < statement_timestamp() - %(kept)s::interval
)
UPDATE schedules
   SET recipients = '{}', message = '', reference = NULL, erased_at = clock_timestamp()
 WHERE id = ANY(ARRAY(
       SELECT id
         FROM schedules
        WHERE ended_at < statement_timestamp() - %(kept)s::interval
          AND erased_at IS NULL
        ORDER BY ended_at
        LIMIT %(count_max)s
          FOR NO KEY UPDATE SKIP LOCKED))
RETURNING 1
""")

SQL_DELETE_OLD: Final = Statement("""
DELETE FROM schedules
 WHERE id = ANY(ARRAY(
       SELECT id
         FROM schedules
        WHERE ended_at < statement_timestamp() - %(kept)s::interval
          AND held = 0
        ORDER BY ended_at
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING 1
""")


async def forget_old(connection: Connection, count_max: int) -> int:
    """Erase numbers and texts some days after the end, and delete the rest later; return how many."""
    erased = await SQL_ERASE_OLD.rows(connection, kept=TEXT_KEPT, count_max=count_max)
    deleted = await SQL_DELETE_OLD.rows(connection, kept=KEPT, count_max=count_max)
    return max(len(erased), len(deleted))


# Whoever asked to be forgotten gets nothing more. A text for this number alone is theirs.
SQL_ERASE_NUMBER: Final = Statement("""
UPDATE schedules
   SET recipients = array_remove(recipients, %(number)s),
       message = CASE WHEN cardinality(recipients) = 1 THEN '' ELSE message END,
       reference = CASE WHEN strpos(translate(reference, ' ()-./_', ''), %(national)s) = 0
                        THEN reference END,
       count = CASE WHEN state = 'waiting' THEN count - 1 ELSE count END
 WHERE id = ANY(ARRAY(
       SELECT id
         FROM schedules
        WHERE %(number)s = ANY(recipients)
          AND id < %(until)s
        ORDER BY id
          FOR NO KEY UPDATE))
RETURNING account_id
""")


async def erase_number(connection: Connection, subject: Subject, until: UUID) -> Sequence[AccountId]:
    """Take a number out of schedules from before a moment; return the account of each."""
    rows = await SQL_ERASE_NUMBER.rows(
        connection, number=subject.number, national=subject.national, until=until
    )
    return [AccountId(row["account_id"]) for row in rows]


SQL_LIST_TO: Final = Statement("""
SELECT account_id, state, start_at, message
  FROM schedules
 WHERE %(number)s = ANY(recipients)
 ORDER BY start_at
 LIMIT %(count_max)s
""")


async def list_to(connection: Connection, number: str, count_max: int) -> Sequence[Mapping[str, Any]]:
    """Return what all accounts have scheduled to a number; files hold their numbers themselves."""
    rows = await SQL_LIST_TO.rows(connection, number=number, count_max=count_max)
    return [dict(row) for row in rows]
