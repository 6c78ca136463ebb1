"""SQL that finds a phone number in every table that may hold it, and erases it there.

A table without an index on numbers is read from one end to the other, some rows at a time in the order of its
key. Rows that are found are then changed by their key. Nothing that money or a check rests on is touched.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import AccountId, BatchId, EndpointId, MessageId, UploadId, message_bounds
from tumira.delivery.store.settlement import lock_batches
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.phone_numbers import Subject
from tumira.sending import recipients

# Without the characters that people put between digits; removing every non-digit would take three times as
# long.
HOLDS: Final = "strpos(translate({}, ' ()-./_' || chr(160) || chr(9), ''), %(national)s) > 0"


async def list_messages(
    connection: Connection, number: str, after: UUID, until: UUID, count_max: int
) -> Sequence[MessageId]:
    """Return messages to a number with ids between two others, oldest first."""
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
    """Erase the number in locked messages, and return how many texts were erased with it."""
    bounds = {"ids": ids, "low": min(ids), "high": max(ids)}
    await SQL_ERASE_MESSAGES.rows(connection, pseudonym=subject.pseudonym, **bounds)
    await SQL_ERASE_PARTS.rows(connection, **bounds)
    await SQL_ERASE_INCIDENTS.rows(connection, **bounds)
    # Lock order: messages before batches.
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


class FileChunk(Struct, frozen=True):
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
) -> Sequence[FileChunk]:
    rows = await SQL_LIST_CHUNKS.rows(
        connection,
        number=number,
        after_upload=after[0],
        after_number=after[1],
        until=until,
        count_max=count_max,
    )
    return [FileChunk(*row) for row in rows]


SQL_LIST_OF_BATCH: Final = Statement("""
SELECT id
  FROM messages
 WHERE id BETWEEN %(low)s AND %(high)s
   AND batch_id = %(batch_id)s
   AND recipient = %(number)s
""")


async def list_of_batch(connection: Connection, number: str, batch_id: BatchId) -> Sequence[MessageId]:
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


async def erase_chunk(connection: Connection, subject: Subject, chunk: FileChunk) -> None:
    """Take the number, and the texts for it, out of rows that were sent."""
    # Lock order: files before their chunks.
    await SQL_ERASE_FILE_TEXT.rows(connection, upload_id=chunk.upload_id)
    await SQL_ERASE_CHUNK.rows(
        connection,
        number=subject.number,
        pseudonym=subject.pseudonym,
        upload_id=chunk.upload_id,
        chunk=chunk.number,
    )


class FileFault(Struct, frozen=True):
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
) -> Sequence[FileFault]:
    rows = await SQL_LIST_FAULTS.rows(
        connection,
        national=subject.national,
        after_upload=after[0],
        after_line=after[1],
        until=until,
        count_max=count_max,
    )
    return [FileFault(*row) for row in rows]


# The maintenance task that deletes old files skips these meanwhile.
SQL_HOLD_FILES: Final = Statement("""
SELECT FROM uploads WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR KEY SHARE
""")

# The whole row is erased: the cells beside the number show whose it is.
SQL_ERASE_FAULT: Final = Statement("""
UPDATE upload_faults
   SET cells = array_fill('erased'::text, ARRAY[cardinality(cells)]),
       reason = 'This row was erased on the request of its recipient.',
       suggestion = NULL
 WHERE upload_id = %(upload_id)s
   AND line = %(line)s
""")


async def erase_faults(connection: Connection, faults: Sequence[FileFault]) -> None:
    """Blank rows that cannot be sent; files are locked before their rows."""
    if not faults:
        return
    await SQL_HOLD_FILES.rows(connection, ids=sorted({one.upload_id for one in faults}))
    await SQL_ERASE_FAULT.each(connection, [{"upload_id": one.upload_id, "line": one.line} for one in faults])


class Reply(Struct, frozen=True):
    """A stored answer of an idempotent call; `response` is None unless it may quote the number."""

    account_id: AccountId
    key: str
    response: bytes | None


# Nearly all answers reject no number, and are not read.
SQL_LIST_REPLIES: Final = Statement(f"""
SELECT account_id, key,
       CASE WHEN position(convert_to('"rejected":[]', 'UTF8') IN response) > 0 THEN NULL
            WHEN {HOLDS.format("convert_from(response, 'UTF8')")} THEN response
       END
  FROM idempotency_keys
 WHERE (account_id, key) > (%(after_account)s, %(after_key)s)
 ORDER BY account_id, key
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


async def list_replies(
    connection: Connection, subject: Subject, after: tuple[UUID, str], count_max: int
) -> Sequence[Reply]:
    rows = await SQL_LIST_REPLIES.rows(
        connection,
        national=subject.national,
        after_account=after[0],
        after_key=after[1],
        count_max=count_max,
    )
    return [Reply(*row) for row in rows]


# The row itself stays: it keeps the call from being billed twice.
SQL_SET_REPLY: Final = Statement("""
UPDATE idempotency_keys
   SET response = %(response)s
 WHERE account_id = %(account_id)s
   AND key = %(key)s
""")


async def set_reply(connection: Connection, reply: Reply) -> None:
    await SQL_SET_REPLY.rows(connection, account_id=reply.account_id, key=reply.key, response=reply.response)


SQL_NEXT_ENDPOINT: Final = Statement("""
SELECT id
  FROM webhook_endpoints
 WHERE account_id = ANY(%(account_ids)s::uuid[])
   AND id > %(after)s
 ORDER BY id
 LIMIT 1
""")


async def next_endpoint(
    connection: Connection, account_ids: Sequence[AccountId], after: UUID
) -> EndpointId | None:
    found: EndpointId | None = await SQL_NEXT_ENDPOINT.value(connection, account_ids=account_ids, after=after)
    return found


class WebhookAnswer(Struct, frozen=True):
    """A webhook attempt; `holds` says whether the answer of the customer's server has the number."""

    id: UUID
    holds: bool


SQL_LIST_ATTEMPTS: Final = Statement("""
SELECT id, strpos(answer, %(national)s) > 0 AS holds
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND id > %(after)s
   AND id < %(until)s
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_attempts(
    connection: Connection,
    subject: Subject,
    endpoint_id: EndpointId,
    after: UUID,
    until: UUID,
    count_max: int,
) -> Sequence[WebhookAnswer]:
    rows = await SQL_LIST_ATTEMPTS.rows(
        connection,
        national=subject.national,
        endpoint_id=endpoint_id,
        after=after,
        until=until,
        count_max=count_max,
    )
    return [WebhookAnswer(*row) for row in rows]


SQL_ERASE_ANSWER: Final = Statement("""
UPDATE webhook_attempts
   SET answer = ''
 WHERE endpoint_id = %(endpoint_id)s
   AND id = %(attempt_id)s
""")


async def erase_answers(
    connection: Connection, endpoint_id: EndpointId, attempts: Sequence[WebhookAnswer]
) -> None:
    await SQL_ERASE_ANSWER.each(
        connection, [{"endpoint_id": endpoint_id, "attempt_id": one.id} for one in attempts]
    )


SQL_DELETE_PROOFS: Final = Statement("""
WITH proofs AS (
    DELETE FROM verifications WHERE phone = %(number)s AND created_at < %(before)s RETURNING 1
), tries AS (
    DELETE FROM attempts WHERE phone = %(number)s AND at < %(before)s RETURNING 1
), browsers AS (
    DELETE FROM devices WHERE phone = %(number)s AND created_at < %(before)s RETURNING 1
)
SELECT (SELECT count(*) FROM proofs) + (SELECT count(*) FROM tries) + (SELECT count(*) FROM browsers)
""")


async def delete_proofs(connection: Connection, number: str, before: datetime) -> int:
    """Delete proofs of the number, with their codes, attempts and browsers, and return how many."""
    return int(await SQL_DELETE_PROOFS.value(connection, number=number, before=before))


# Only full numbers, with or without the international prefix 00: without its country it may be another
# number.
SQL_DELETE_RECEIPTS: Final = Statement("""
DELETE FROM unmatched_receipts
 WHERE id = ANY(ARRAY(
       SELECT id
         FROM unmatched_receipts
        WHERE recipient IN (%(digits)s, '00' || %(digits)s)
          AND received_at < %(before)s
          AND id > %(after)s
        ORDER BY id
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING id
""")


async def delete_receipts(
    connection: Connection, digits: str, before: datetime, after: int, count_max: int
) -> Sequence[int]:
    """Delete unmatched receipts for the number, and return their ids."""
    rows = await SQL_DELETE_RECEIPTS.rows(
        connection, digits=digits, before=before, after=after, count_max=count_max
    )
    return [row["id"] for row in rows]
