"""Files of scheduled sends as they were uploaded, so that their texts can be changed without them."""

from datetime import datetime
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId, ScheduleId, UploadId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# The file before it is not that of the schedule any more, also where the new one is not there.
SQL_KEEP: Final = Statement("""
WITH gone AS (
    DELETE FROM scheduled_files
     WHERE schedule_id = %(schedule_id)s
       AND NOT EXISTS (
           SELECT FROM kept_files WHERE account_id = %(account_id)s AND upload_id = %(upload_id)s)
)
INSERT INTO scheduled_files (schedule_id, file_name, data, message, country, reference, sheet, sheets,
                             kept_at)
SELECT %(schedule_id)s, file_name, data, message, country, reference, sheet, sheets, kept_at
  FROM kept_files
 WHERE account_id = %(account_id)s
   AND upload_id = %(upload_id)s
ON CONFLICT (schedule_id) DO UPDATE
   SET file_name = excluded.file_name,
       data = excluded.data,
       message = excluded.message,
       country = excluded.country,
       reference = excluded.reference,
       sheet = excluded.sheet,
       sheets = excluded.sheets,
       kept_at = excluded.kept_at
""")


async def keep(
    connection: Connection, account_id: AccountId, schedule_id: ScheduleId, upload_id: UploadId
) -> None:
    """Copy the kept file of an upload to its schedule; without one, a change needs the file again."""
    await SQL_KEEP.rows(connection, account_id=account_id, schedule_id=schedule_id, upload_id=upload_id)


SQL_OFFER: Final = Statement("""
INSERT INTO kept_files (account_id, id, file_name, data, message, country, reference, sheet, sheets,
                        replaces)
SELECT %(account_id)s, %(kept_id)s, f.file_name, f.data, f.message, f.country, f.reference, f.sheet,
       f.sheets, s.id
  FROM scheduled_files f
  JOIN schedules s ON s.id = f.schedule_id
 WHERE s.id = %(schedule_id)s
   AND s.account_id = %(account_id)s
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
       start_at = NULL,
       replaces = excluded.replaces,
       kept_at = excluded.kept_at
RETURNING 1
""")


async def offer(
    connection: Connection, account_id: AccountId, schedule_id: ScheduleId, kept_id: UUID
) -> bool:
    """Keep the file of a schedule as the account's last one, for a correction; False if it is gone."""
    kept = await SQL_OFFER.value(connection, account_id=account_id, schedule_id=schedule_id, kept_id=kept_id)
    return kept is not None


SQL_DELETE_BEFORE: Final = Statement("DELETE FROM scheduled_files WHERE kept_at < %(before)s")


async def delete_before(connection: Connection, before: datetime) -> None:
    """Delete the files of all accounts that were kept before a time: they may hold an erased number."""
    await SQL_DELETE_BEFORE.rows(connection, before=before)
