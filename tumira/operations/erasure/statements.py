"""How is a number taken out of the messages to it, and out of the files that they came from?

A table whose numbers stand in no index is read from one end to the other, some rows at a time in the order of
its key. What is found is then erased by its key. Nothing that money or a check rests on is touched.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import BatchId, MessageId, UploadId, message_bounds
from tumira.delivery.store.settlement import lock_batches
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.phone_numbers import Subject
from tumira.sending import recipients

# Without what people put between digits; to take out all that is no digit would take three times as long.
HOLDS: Final = "strpos(translate({}, ' ()-./_' || chr(160) || chr(9), ''), %(national)s) > 0"


async def list_messages(
    connection: Connection, number: str, after: UUID, until: UUID, count_max: int
) -> Sequence[MessageId]:
    """Return messages to a number that were accepted after one of them and before a moment, oldest first."""
    bounds = (UUID(int=after.int + 1), until)
    sent = await recipients.list_sent(connection, number, bounds, count_max, newest_first=False)
    return [one.id for one in sent]


SQL_ERASE_MESSAGES: Final = Statement("""
UPDATE messages
   SET recipient = %(pseudonym)s, body = NULL
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
""")

SQL_ERASE_PARTS: Final = Statement("""
UPDATE parts
   SET receipt = NULL
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND message_id BETWEEN %(low)s AND %(high)s
   AND receipt IS NOT NULL
""")

SQL_ERASE_INCIDENTS: Final = Statement("""
UPDATE incidents
   SET recipient = NULL,
       detail = CASE WHEN kind = 'late_receipt' THEN NULL ELSE detail END
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND message_id BETWEEN %(low)s AND %(high)s
""")

# A text that others got too is not about this number, and goes when its time is over.
SQL_ERASE_BATCHES: Final = Statement(f"""
WITH own AS MATERIALIZED (
    SELECT id
      FROM batches
     WHERE id = ANY(%(ids)s::uuid[])
       AND id BETWEEN %(low)s AND %(high)s
       AND recipients = 1
       AND body IS NOT NULL
), erased AS (
    UPDATE batches
       SET body = CASE WHEN recipients = 1 THEN NULL ELSE body END,
           reference = CASE WHEN {HOLDS.format("reference")} THEN NULL ELSE reference END
     WHERE id = ANY(%(ids)s::uuid[])
       AND id BETWEEN %(low)s AND %(high)s
       AND (recipients = 1 OR {HOLDS.format("reference")})
)
SELECT count(*) FROM own
""")  # noqa: S608 - only constants are put in


async def erase_messages(
    connection: Connection, subject: Subject, ids: Sequence[MessageId], batch_ids: Sequence[BatchId]
) -> int:
    """Take the number out of messages that are held, in order, and return how many texts went with it."""
    bounds = {"ids": ids, "low": min(ids), "high": max(ids)}
    await SQL_ERASE_MESSAGES.rows(connection, pseudonym=subject.pseudonym, **bounds)
    await SQL_ERASE_PARTS.rows(connection, **bounds)
    await SQL_ERASE_INCIDENTS.rows(connection, **bounds)
    # Messages before batches, as everybody holds them.
    await lock_batches(connection, batch_ids)
    return int(
        await SQL_ERASE_BATCHES.value(
            connection,
            ids=batch_ids,
            low=min(batch_ids),
            high=max(batch_ids),
            national=subject.national,
        )
    )


class Chunk(Struct, frozen=True):
    """Rows of a file, the batch that they became, and how many of them hold the number."""

    upload_id: UploadId
    number: int
    batch_id: BatchId | None
    holding: int


SQL_LIST_CHUNKS: Final = Statement("""
SELECT upload_id, number, batch_id, cardinality(array_positions(recipients, %(number)s))
  FROM upload_chunks
 WHERE (upload_id, number) > (%(after_upload)s, %(after_number)s)
   AND upload_id < %(until)s
 ORDER BY upload_id, number
 LIMIT %(count_max)s
""")


async def list_chunks(
    connection: Connection, number: str, after: tuple[UUID, int], until: UUID, count_max: int
) -> Sequence[Chunk]:
    """Return chunks of everybody's files, in their order."""
    rows = await SQL_LIST_CHUNKS.rows(
        connection,
        number=number,
        after_upload=after[0],
        after_number=after[1],
        until=until,
        count_max=count_max,
    )
    return [Chunk(*row) for row in rows]


SQL_LIST_OF_BATCH: Final = Statement("""
SELECT id
  FROM messages
 WHERE id BETWEEN %(low)s AND %(high)s
   AND batch_id = %(batch_id)s
   AND recipient = %(number)s
""")


async def list_of_batch(connection: Connection, number: str, batch_id: BatchId) -> Sequence[MessageId]:
    """Return the messages of a batch to a number; a file may have several texts for it."""
    low, high = message_bounds(batch_id)
    rows = await SQL_LIST_OF_BATCH.rows(connection, low=low, high=high, batch_id=batch_id, number=number)
    return [row["id"] for row in rows]


# With one recipient, the text of a file is that recipient's.
SQL_ERASE_FILE_TEXT: Final = Statement("""
UPDATE uploads
   SET message = ''
 WHERE id = %(upload_id)s
   AND recipients = 1
""")

SQL_ERASE_CHUNK: Final = Statement("""
UPDATE upload_chunks
   SET recipients = array_replace(recipients, %(number)s, %(pseudonym)s),
       bodies = CASE WHEN bodies IS NOT NULL THEN ARRAY(
                    SELECT CASE WHEN recipient = %(number)s THEN '' ELSE body END
                      FROM unnest(recipients, bodies) WITH ORDINALITY AS row (recipient, body, place)
                     ORDER BY place
                ) END
 WHERE upload_id = %(upload_id)s
   AND number = %(chunk)s
   AND batch_id IS NOT NULL
   AND %(number)s = ANY(recipients)
""")


async def erase_chunk(connection: Connection, subject: Subject, chunk: Chunk) -> None:
    """Take the number, and the texts for it, out of rows that were sent."""
    # Files before their chunks, as everybody holds them.
    await SQL_ERASE_FILE_TEXT.rows(connection, upload_id=chunk.upload_id)
    await SQL_ERASE_CHUNK.rows(
        connection,
        number=subject.number,
        pseudonym=subject.pseudonym,
        upload_id=chunk.upload_id,
        chunk=chunk.number,
    )


class Fault(Struct, frozen=True):
    """A row of a file that cannot be sent; `holds` tells whether the number is in it."""

    upload_id: UploadId
    line: int
    holds: bool


SQL_LIST_FAULTS: Final = Statement(f"""
SELECT upload_id, line,
       EXISTS (SELECT
                 FROM unnest(cells || reason || coalesce(suggestion, '')) AS word
                WHERE {HOLDS.format("word")}) AS holds
  FROM upload_faults
 WHERE (upload_id, line) > (%(after_upload)s, %(after_line)s)
   AND upload_id < %(until)s
 ORDER BY upload_id, line
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


async def list_faults(
    connection: Connection, subject: Subject, after: tuple[UUID, int], until: UUID, count_max: int
) -> Sequence[Fault]:
    """Return rows of everybody's files that cannot be sent, in their order."""
    rows = await SQL_LIST_FAULTS.rows(
        connection,
        national=subject.national,
        after_upload=after[0],
        after_line=after[1],
        until=until,
        count_max=count_max,
    )
    return [Fault(*row) for row in rows]


# Whoever forgets old files, with all their rows, passes these over meanwhile.
SQL_HOLD_FILES: Final = Statement("""
SELECT FROM uploads WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR KEY SHARE
""")

# All of the row goes: what stands beside the number tells whose it is.
SQL_ERASE_FAULT: Final = Statement("""
UPDATE upload_faults
   SET cells = array_fill('erased'::text, ARRAY[cardinality(cells)]),
       reason = 'This row was erased on the request of its recipient.',
       suggestion = NULL
 WHERE upload_id = %(upload_id)s
   AND line = %(line)s
""")


async def erase_faults(connection: Connection, faults: Sequence[Fault]) -> None:
    """Blank rows that cannot be sent; files are locked before their rows."""
    if not faults:
        return
    await SQL_HOLD_FILES.rows(connection, ids=sorted({one.upload_id for one in faults}))
    await SQL_ERASE_FAULT.each(connection, [{"upload_id": one.upload_id, "line": one.line} for one in faults])
