"""Files that are being checked, one for each account: their progress, and whether a browser waits."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tumira.core.ids import AccountId, UploadId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Whoever has sent a file follows to its page at once, and that page asks again every few seconds.
FIRST_LOOK: Final = timedelta(seconds=20)
NEXT_LOOK: Final = timedelta(seconds=60)
# A process that checks says so every second; one that has not for so long is dead.
DEAD_AFTER: Final = timedelta(seconds=30)


SQL_BEGIN: Final = Statement("""
INSERT INTO file_checks (account_id, upload_id, file_name, wanted_until)
VALUES (%(account_id)s, %(upload_id)s, %(file_name)s, clock_timestamp() + %(first_look)s::interval)
ON CONFLICT (account_id) DO UPDATE
   SET upload_id = excluded.upload_id,
       file_name = excluded.file_name,
       rows = 0,
       done = 0,
       problem = NULL,
       alive_at = clock_timestamp(),
       wanted_until = excluded.wanted_until
""")


async def begin(connection: Connection, account_id: AccountId, upload_id: UploadId, file_name: str) -> None:
    """Record that a file is being checked; it replaces an earlier one of the account, whose check ends."""
    await SQL_BEGIN.rows(
        connection,
        account_id=account_id,
        upload_id=upload_id,
        file_name=file_name,
        first_look=FIRST_LOOK,
    )


SQL_BEAT: Final = Statement("""
UPDATE file_checks
   SET rows = %(rows)s, done = %(done)s, alive_at = clock_timestamp()
 WHERE upload_id = %(upload_id)s
RETURNING wanted_until > clock_timestamp()
""")


async def beat(connection: Connection, upload_id: UploadId, *, rows: int, done: int) -> bool | None:
    """Record the progress of a check; False if nobody waits for it, None if another file replaced it."""
    wanted: bool | None = await SQL_BEAT.value(connection, upload_id=upload_id, rows=rows, done=done)
    return wanted


SQL_END: Final = Statement("DELETE FROM file_checks WHERE upload_id = %(upload_id)s RETURNING 1")


async def end(connection: Connection, upload_id: UploadId) -> bool:
    """Delete a check whose file is stored in the same transaction; False if another file replaced it."""
    return await SQL_END.value(connection, upload_id=upload_id) is not None


SQL_FAIL: Final = Statement("UPDATE file_checks SET problem = %(problem)s WHERE upload_id = %(upload_id)s")


async def fail(connection: Connection, upload_id: UploadId, problem: str) -> None:
    await SQL_FAIL.rows(connection, upload_id=upload_id, problem=problem)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """A file that is being checked; `is_dead` if its process is gone."""

    upload_id: UploadId
    file_name: str
    rows: int
    done: int
    problem: str | None
    is_dead: bool


SQL_LOOK: Final = Statement("""
UPDATE file_checks
   SET wanted_until = clock_timestamp() + %(next_look)s::interval
 WHERE account_id = %(account_id)s
   AND upload_id = %(upload_id)s
RETURNING upload_id, file_name, rows, done, problem,
          alive_at < clock_timestamp() - %(dead_after)s::interval AS is_dead
""")


async def look(connection: Connection, account_id: AccountId, upload_id: UploadId) -> FileCheck | None:
    """Return an account's file that is being checked, and record that a browser waits for it."""
    row = await SQL_LOOK.row(
        connection,
        account_id=account_id,
        upload_id=upload_id,
        next_look=NEXT_LOOK,
        dead_after=DEAD_AFTER,
    )
    return None if row is None else FileCheck(*row)


SQL_DELETE_OLD: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT account_id
      FROM file_checks
     WHERE alive_at < statement_timestamp() - interval '1 day'
     ORDER BY alive_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
DELETE FROM file_checks
 WHERE account_id IN (SELECT account_id FROM old)
RETURNING 1
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    """Delete up to `count_max` checks that ended without a file, and return how many."""
    return len(await SQL_DELETE_OLD.rows(connection, count_max=count_max))
