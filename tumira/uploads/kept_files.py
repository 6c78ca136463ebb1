"""The last file that each account uploaded, kept for a day so that a correction does not need it again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId, ScheduleId, UploadId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

KEPT: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file's name, what was typed beside it, and its check, if one began."""

    id: UUID
    file_name: str
    message: str
    country: str
    reference: str
    upload_id: UploadId | None
    # Of a workbook with several sheets: the one that was chosen, and those to choose from.
    sheet: str = ""
    sheets: Sequence[str] = ()
    # When it shall be sent, if that was chosen before, and the scheduled send that it changes.
    start_at: datetime | None = None
    replaces: ScheduleId | None = None


SQL_KEEP: Final = Statement("""
INSERT INTO kept_files (account_id, id, file_name, data, message, country, reference, sheet, sheets,
                        start_at, replaces)
VALUES (%(account_id)s, %(id)s, %(file_name)s, %(data)s, %(message)s, %(country)s, %(reference)s, %(sheet)s,
        %(sheets)s, %(start_at)s, %(replaces)s)
ON CONFLICT (account_id) DO UPDATE
   SET id = excluded.id,
       file_name = excluded.file_name,
       data = excluded.data,
       message = excluded.message,
       country = excluded.country,
       reference = excluded.reference,
       upload_id = NULL,
       sheet = excluded.sheet,
       sheets = excluded.sheets,
       start_at = excluded.start_at,
       replaces = excluded.replaces,
       kept_at = excluded.kept_at
""")


async def keep(connection: Connection, account_id: AccountId, file: KeptFile, data: bytes) -> None:
    """Keep a file instead of the account's file before it."""
    await SQL_KEEP.rows(
        connection,
        account_id=account_id,
        id=file.id,
        file_name=file.file_name,
        data=data,
        message=file.message,
        country=file.country,
        reference=file.reference,
        sheet=file.sheet,
        sheets=file.sheets,
        start_at=file.start_at,
        replaces=file.replaces,
    )


SQL_REUSE: Final = Statement("""
UPDATE kept_files
   SET message = %(message)s, country = %(country)s, reference = %(reference)s, sheet = %(sheet)s,
       upload_id = NULL
 WHERE account_id = %(account_id)s
   AND id = %(id)s
   AND kept_at > clock_timestamp() - %(kept)s::interval
RETURNING file_name, data, sheets, start_at, replaces
""")


async def reuse(
    connection: Connection, account_id: AccountId, typed: KeptFile
) -> tuple[KeptFile, bytes] | None:
    """Return a kept file and its content, and keep what was typed now; None if it is gone."""
    row = await SQL_REUSE.row(
        connection,
        account_id=account_id,
        id=typed.id,
        message=typed.message,
        country=typed.country,
        reference=typed.reference,
        sheet=typed.sheet,
        kept=KEPT,
    )
    if row is None:
        return None
    found = {name: row[name] for name in ("file_name", "start_at", "replaces")}
    return replace(typed, sheets=tuple(row["sheets"]), **found), row["data"]


SQL_SET_UPLOAD: Final = Statement("""
UPDATE kept_files
   SET upload_id = %(upload_id)s
 WHERE account_id = %(account_id)s
   AND id = %(id)s
""")


async def set_upload(
    connection: Connection, account_id: AccountId, file_id: UUID, upload_id: UploadId
) -> None:
    await SQL_SET_UPLOAD.rows(connection, account_id=account_id, id=file_id, upload_id=upload_id)


SQL_SET_SHEETS: Final = Statement(
    "UPDATE kept_files SET sheets = %(sheets)s WHERE account_id = %(account_id)s"
)


async def set_sheets(connection: Connection, account_id: AccountId, sheets: Sequence[str]) -> None:
    """Store which sheets of an account's kept workbook have rows."""
    await SQL_SET_SHEETS.rows(connection, account_id=account_id, sheets=sheets)


SQL_FIND: Final = Statement("""
SELECT id, file_name, message, country, reference, upload_id, sheet, sheets, start_at, replaces
  FROM kept_files
 WHERE account_id = %(account_id)s
   AND kept_at > clock_timestamp() - %(kept)s::interval
""")


async def find(connection: Connection, account_id: AccountId) -> KeptFile | None:
    """Return an account's kept file without its content."""
    row = await SQL_FIND.row(connection, account_id=account_id, kept=KEPT)
    if row is None:
        return None
    found = KeptFile(*row)
    return replace(found, sheets=tuple(found.sheets))


SQL_DELETE_BEFORE: Final = Statement("DELETE FROM kept_files WHERE kept_at < %(before)s")


async def delete_before(connection: Connection, before: datetime) -> None:
    """Delete the files of all accounts that were kept before a time: they may hold an erased number."""
    await SQL_DELETE_BEFORE.rows(connection, before=before)


SQL_DELETE_OLD: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT account_id
      FROM kept_files
     WHERE kept_at < statement_timestamp() - %(kept)s::interval
     ORDER BY kept_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
DELETE FROM kept_files
 WHERE account_id IN (SELECT account_id FROM old)
RETURNING 1
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    """Delete up to `count_max` files that were kept long enough, and return how many."""
    return len(await SQL_DELETE_OLD.rows(connection, kept=KEPT, count_max=count_max))
