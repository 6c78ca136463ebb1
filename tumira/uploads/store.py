"""Uploaded files, and their rows that cannot be sent."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from tumira.core.ids import AccountId, ScheduleId, UploadId
from tumira.postgres.columns import columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending.lifecycle import TEXT_KEPT
from tumira.uploads.rows import RowFault

FAULTS_MAX: Final = 10_000
# Of files that were checked and never sent: they cost their owner nothing.
CHECKED_KEPT: Final = 20
CHECKED_ROWS_KEPT: Final = 30_000

CHECKED: Final = "checked"
SCHEDULED: Final = "scheduled"
SENDING: Final = "sending"
SENT: Final = "sent"
STOPPED: Final = "stopped"


class NewUpload(Struct, frozen=True):
    """A checked file; its rows are stored in chunks."""

    id: UploadId
    account_id: AccountId
    file_name: str
    columns: Sequence[str]
    message: str
    reference: str | None
    rows: int
    recipients: int
    total_cost: Decimal
    # By which version of the templates its rows were screened.
    policy_version: int
    # How many of its rows are hidden in the workbook.
    hidden_rows: int = 0
    # When it shall be sent, if that was chosen before, and the scheduled send that it changes.
    start_at: datetime | None = None
    replaces: ScheduleId | None = None


@dataclass(frozen=True, slots=True)
class Upload:
    id: UploadId
    account_id: AccountId
    file_name: str
    columns: Sequence[str]
    message: str
    reference: str | None
    state: str
    problem: str | None
    rows: int
    recipients: int
    total_cost: Decimal
    created_at: datetime
    confirmed_at: datetime | None
    finished_at: datetime | None
    # By which version of the templates its rows were screened, and how many were refused after the check.
    policy_version: int
    refused: int
    # When its numbers and texts were erased; its batches are still shown as one file.
    erased_at: datetime | None
    hidden_rows: int
    # When it shall be sent, if that was chosen before, and the scheduled send that it changes.
    start_at: datetime | None
    replaces: ScheduleId | None


SQL_INSERT: Final = Statement("""
INSERT INTO uploads (id, account_id, file_name, columns, message, reference, rows, recipients, total_cost,
                     policy_version, hidden_rows, start_at, replaces)
VALUES (%(id)s, %(account_id)s, %(file_name)s, %(columns)s, %(message)s, %(reference)s, %(rows)s,
        %(recipients)s, %(total_cost)s, %(policy_version)s, %(hidden_rows)s, %(start_at)s, %(replaces)s)
""")

# Rows differ in how many cells they have, which an array of arrays may not, so cells travel as JSON.
SQL_INSERT_FAULTS: Final = Statement("""
INSERT INTO upload_faults (upload_id, line, cells, code, reason, suggestion)
SELECT %(upload_id)s::uuid, line, ARRAY(SELECT jsonb_array_elements_text(cells::jsonb)), code, reason,
       suggestion
  FROM unnest(%(line)s::integer[], %(cells)s::text[], %(code)s::text[], %(reason)s::text[],
              %(suggestion)s::text[]) AS fault (line, cells, code, reason, suggestion)
""")


async def insert(connection: Connection, upload: NewUpload) -> None:
    """Insert a checked file without its rows."""
    await SQL_INSERT.rows(connection, **structs.asdict(upload))


async def insert_faults(connection: Connection, upload_id: UploadId, faults: Sequence[RowFault]) -> None:
    values = columns(RowFault, faults)
    values["cells"] = [json.dumps(fault.cells, ensure_ascii=False) for fault in faults]
    await SQL_INSERT_FAULTS.rows(connection, upload_id=upload_id, **values)


# Of files that were checked and never sent, only the newest are of any use to their owner.
SQL_DELETE_SURPLUS: Final = Statement("""
DELETE FROM uploads
 WHERE id IN (
       SELECT id
         FROM (SELECT id, row_number() OVER newest AS place, sum(rows) OVER newest AS rows_with_newer
                 FROM uploads
                WHERE account_id = %(account_id)s
                  AND state = 'checked'
               WINDOW newest AS (ORDER BY id DESC)) AS checked
        WHERE place > %(files_max)s
           OR (place > 1 AND rows_with_newer > %(rows_max)s)
       )
   AND state = 'checked'
""")


async def delete_surplus(connection: Connection, account_id: AccountId) -> None:
    """Forget all but the newest of an account's files that were checked and not sent.

    They have no more rows together than CHECKED_ROWS_KEPT; the newest one always stays.
    """
    await SQL_DELETE_SURPLUS.rows(
        connection, account_id=account_id, files_max=CHECKED_KEPT, rows_max=CHECKED_ROWS_KEPT
    )


_UPLOAD: Final = """
SELECT id, account_id, file_name, columns, message, reference, state, problem, rows, recipients, total_cost,
       created_at, confirmed_at, finished_at, policy_version, refused, erased_at, hidden_rows,
       start_at, replaces
  FROM uploads
"""

SQL_FIND: Final = Statement(_UPLOAD + "WHERE id = %(upload_id)s AND account_id = %(account_id)s")


async def find(connection: Connection, account_id: AccountId, upload_id: UploadId) -> Upload | None:
    """Return an account's file; None for an unknown one and for another account's."""
    row = await SQL_FIND.row(connection, account_id=account_id, upload_id=upload_id)
    return None if row is None else Upload(*row)


SQL_HOLD: Final = Statement(
    _UPLOAD + "WHERE id = %(upload_id)s AND account_id = %(account_id)s FOR NO KEY UPDATE"
)


async def hold(connection: Connection, account_id: AccountId, upload_id: UploadId) -> Upload | None:
    """Lock an account's file and return it."""
    row = await SQL_HOLD.row(connection, account_id=account_id, upload_id=upload_id)
    return None if row is None else Upload(*row)


SQL_HOLD_SCHEDULED: Final = Statement(
    _UPLOAD + "WHERE id = %(upload_id)s AND state = 'scheduled' FOR NO KEY UPDATE"
)


async def hold_scheduled(connection: Connection, upload_id: UploadId) -> Upload | None:
    """Lock a file that waits for its time, of whichever account."""
    row = await SQL_HOLD_SCHEDULED.row(connection, upload_id=upload_id)
    return None if row is None else Upload(*row)


SQL_LIST: Final = Statement(
    _UPLOAD + "WHERE account_id = %(account_id)s ORDER BY id DESC LIMIT %(count_max)s"
)


async def list_recent(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Upload]:
    return [
        Upload(*row) for row in await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    ]


SQL_LIST_STOPPED: Final = Statement(
    _UPLOAD + "WHERE account_id = %(account_id)s AND state = 'stopped' ORDER BY id DESC LIMIT %(count_max)s"
)


async def list_stopped(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Upload]:
    """Return an account's files whose sending stopped half-way, the newest first."""
    rows = await SQL_LIST_STOPPED.rows(connection, account_id=account_id, count_max=count_max)
    return [Upload(*row) for row in rows]


# Locked until commit, so that no two workers send the same chunk; a crash releases the lock.
SQL_CLAIM: Final = Statement(
    _UPLOAD
    + """
 WHERE state = 'sending'
   AND id > %(after)s
 ORDER BY id
 LIMIT 1
   FOR NO KEY UPDATE SKIP LOCKED
"""
)


async def claim_sending(connection: Connection, after: UploadId) -> Upload | None:
    """Lock the next file that has something left to send and that no other worker has locked."""
    row = await SQL_CLAIM.row(connection, after=after)
    return None if row is None else Upload(*row)


SQL_SET_POLICY_VERSION: Final = Statement(
    "UPDATE uploads SET policy_version = %(policy_version)s WHERE id = %(upload_id)s"
)


async def set_policy_version(connection: Connection, upload_id: UploadId, policy_version: int) -> None:
    """Store the version of the templates by which the rest of a locked file was checked."""
    await SQL_SET_POLICY_VERSION.rows(connection, upload_id=upload_id, policy_version=policy_version)


SQL_MARK_SENDING: Final = Statement("""
UPDATE uploads
   SET state = 'sending', problem = NULL, confirmed_at = clock_timestamp()
 WHERE id = %(upload_id)s
""")


async def mark_sending(connection: Connection, upload_id: UploadId) -> None:
    """Mark a locked file as being sent."""
    await SQL_MARK_SENDING.rows(connection, upload_id=upload_id)


SQL_MARK_SCHEDULED: Final = Statement("""
UPDATE uploads SET state = 'scheduled', start_at = NULL, replaces = NULL WHERE id = %(upload_id)s
""")


async def mark_scheduled(connection: Connection, upload_id: UploadId) -> None:
    """Keep a locked file until its schedule begins."""
    await SQL_MARK_SCHEDULED.rows(connection, upload_id=upload_id)


SQL_MARK_CHECKED: Final = Statement("UPDATE uploads SET state = 'checked' WHERE id = %(upload_id)s")


async def mark_checked(connection: Connection, upload_id: UploadId) -> None:
    """Give a locked file back to its owner, who may send it or leave it."""
    await SQL_MARK_CHECKED.rows(connection, upload_id=upload_id)
    await renew(connection, upload_id)


SQL_DELETE_SCHEDULED: Final = Statement(
    "DELETE FROM uploads WHERE id = %(upload_id)s AND state = 'scheduled'"
)


async def delete_scheduled(connection: Connection, upload_id: UploadId) -> None:
    """Delete a locked file that another one replaces."""
    await SQL_DELETE_SCHEDULED.rows(connection, upload_id=upload_id)


SQL_RENEW: Final = Statement("UPDATE uploads SET created_at = clock_timestamp() WHERE id = %(upload_id)s")


async def renew(connection: Connection, upload_id: UploadId) -> None:
    """Count the days for which a file is kept from now on: it may have waited for months."""
    await SQL_RENEW.rows(connection, upload_id=upload_id)


SQL_MARK_SENT: Final = Statement("""
UPDATE uploads
   SET state = 'sent', finished_at = clock_timestamp()
 WHERE id = %(upload_id)s
   AND NOT EXISTS (SELECT FROM upload_chunks WHERE upload_id = %(upload_id)s AND batch_id IS NULL)
RETURNING 1
""")


async def mark_sent(connection: Connection, upload_id: UploadId) -> bool:
    """Mark a locked file as sent; False while something is left."""
    return await SQL_MARK_SENT.value(connection, upload_id=upload_id) is not None


SQL_MARK_STOPPED: Final = Statement("""
UPDATE uploads
   SET state = 'stopped', problem = %(problem)s
 WHERE id = %(upload_id)s
""")


async def mark_stopped(connection: Connection, upload_id: UploadId, problem: str) -> None:
    """Stop sending a locked file until its owner resumes it."""
    await SQL_MARK_STOPPED.rows(connection, upload_id=upload_id, problem=problem)


SQL_LIST_FAULTS: Final = Statement("""
SELECT line, cells, code, reason, suggestion
  FROM upload_faults
 WHERE upload_id = %(upload_id)s
   AND line > %(after)s
   AND (code = ANY(%(codes)s::text[]) OR %(codes)s::text[] IS NULL)
 ORDER BY line
 LIMIT %(count_max)s
""")


async def list_faults(
    connection: Connection,
    upload_id: UploadId,
    count_max: int,
    *,
    after: int = 0,
    codes: Sequence[str] | None = None,
) -> Sequence[RowFault]:
    """Return rows of a file that cannot be sent, for some reasons or for any, in its order."""
    assert count_max <= FAULTS_MAX + 1
    rows = await SQL_LIST_FAULTS.rows(
        connection, upload_id=upload_id, after=after, codes=codes, count_max=count_max
    )
    return [RowFault(*row) for row in rows]


SQL_COUNT_FAULTS: Final = Statement("""
SELECT code, count(*) AS count
  FROM upload_faults
 WHERE upload_id = %(upload_id)s
 GROUP BY code
 ORDER BY count DESC, code
""")


async def count_faults(connection: Connection, upload_id: UploadId) -> Mapping[str, int]:
    """Return how many rows of a file cannot be sent, by what is wrong with them, most first."""
    return {row["code"]: row["count"] for row in await SQL_COUNT_FAULTS.rows(connection, upload_id=upload_id)}


# What is being sent or waits for its time is left alone, however old; its rows go when it has ended. Of a
# file that was sent, its name, its size and the row of each message stay; a part that was never sent goes.
SQL_ERASE_OLD: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id
      FROM uploads
     WHERE created_at < clock_timestamp() - make_interval(days => %(days)s)
       AND erased_at IS NULL
       AND state NOT IN ('sending', 'scheduled')
     ORDER BY created_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
), sent AS MATERIALIZED (
    SELECT upload_id AS id, sum(cardinality(lines)) AS recipients, sum(cost) AS total_cost
      FROM upload_chunks
     WHERE upload_id = ANY(ARRAY(SELECT id FROM old))
       AND batch_id IS NOT NULL
     GROUP BY upload_id
), gone AS (
    DELETE FROM uploads
     WHERE id = ANY(ARRAY(SELECT id FROM old EXCEPT SELECT id FROM sent))
), faults AS (
    DELETE FROM upload_faults
     WHERE upload_id = ANY(ARRAY(SELECT id FROM sent))
), unsent AS (
    DELETE FROM upload_chunks
     WHERE upload_id = ANY(ARRAY(SELECT id FROM sent))
       AND batch_id IS NULL
), chunks AS (
    UPDATE upload_chunks
       SET recipients = array_fill(''::text, ARRAY[cardinality(recipients)]),
           bodies = CASE WHEN bodies IS NOT NULL THEN '{}'::text[] END, by_template = '{}', near_line = '{}'
     WHERE upload_id = ANY(ARRAY(SELECT id FROM sent))
       AND batch_id IS NOT NULL
), erased AS (
    UPDATE uploads u
       SET state = 'sent', problem = NULL, message = '', columns = '{}', recipients = sent.recipients,
           total_cost = sent.total_cost, erased_at = clock_timestamp()
      FROM sent
     WHERE u.id = sent.id
)
SELECT count(*) FROM old
""")


async def erase_old(connection: Connection, count_max: int) -> int:
    """Erase numbers and texts of files that were uploaded long ago, and return of how many.

    Files of which nothing was sent are deleted.
    """
    return int(await SQL_ERASE_OLD.value(connection, days=TEXT_KEPT.days, count_max=count_max))


SQL_DELETE_EMPTY: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT u.id
      FROM uploads u
     WHERE u.id < %(before)s
       AND u.erased_at IS NOT NULL
       AND NOT EXISTS (
           SELECT
             FROM upload_chunks c
            WHERE c.upload_id = u.id
              AND c.batch_id >= %(before)s)
     ORDER BY u.id
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
DELETE FROM uploads
 WHERE id = ANY(ARRAY(SELECT id FROM old))
RETURNING 1
""")


async def delete_empty(connection: Connection, before: UUID, count_max: int) -> int:
    """Delete what is left of files whose batches all have ids before this one, and return how many."""
    return len(await SQL_DELETE_EMPTY.rows(connection, before=before, count_max=count_max))
