"""SQL that finds a phone number in every table that may hold it, and erases it there.

A table without an index on numbers is read from one end to the other, some rows at a time in the order of its
key. Rows that are found are then changed by their key. Nothing that money or a check rests on is touched.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from tumira.content import near_line_store
from tumira.core.ids import AccountId, BatchId, EndpointId, MessageId, UploadId, message_bounds
from tumira.delivery.store.settlement import lock_batches
from tumira.operations.erasure.requests import StepResult
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.phone_numbers import Subject
from tumira.sending import recipients

LOWEST: Final = UUID(int=0)


def _after(rows: Sequence[asyncpg.Record], count_max: int, *key: str) -> Sequence[str] | None:
    """Return the key of the last row if there may be more rows."""
    return [str(rows[-1][name]) for name in key] if len(rows) == count_max else None


# The characters that people put between digits; removing every non-digit would take three times as long.
SEPARATORS: Final = " ()-./_\u00a0\t"
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


# Before the texts of the messages are erased, because it is found by them.
SQL_ERASE_SAMPLES: Final = Statement("""
DELETE FROM near_line_texts sample
 USING (SELECT m.account_id, coalesce(m.body, CASE WHEN b.recipients = 1 THEN b.body END) AS text
          FROM messages m
          JOIN batches b ON b.id = m.batch_id
         WHERE m.id = ANY(%(ids)s::uuid[])
           AND m.id BETWEEN %(low)s AND %(high)s
           AND b.id = ANY(%(batch_ids)s::uuid[])
           AND b.id BETWEEN %(batch_low)s AND %(batch_high)s) AS sent
 WHERE sample.account_id = sent.account_id
   AND sample.text = sent.text
""")


async def erase_messages(
    connection: Connection, subject: Subject, ids: Sequence[MessageId], batch_ids: Sequence[BatchId]
) -> int:
    """Erase the number in locked messages, and return how many texts were erased with it."""
    bounds = {"ids": ids, "low": min(ids), "high": max(ids)}
    await near_line_store.lock(connection)
    await SQL_ERASE_SAMPLES.rows(
        connection, batch_ids=batch_ids, batch_low=min(batch_ids), batch_high=max(batch_ids), **bounds
    )
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


async def erase_faults(
    connection: Connection, subject: Subject, place: Sequence[str], until: UUID, count_max: int
) -> StepResult:
    """Blank the next rows of files that could not be sent and hold the number."""
    after_upload, after_line = place or (str(LOWEST), "-1")
    rows = await SQL_LIST_FAULTS.rows(
        connection,
        national=subject.national,
        after_upload=UUID(after_upload),
        after_line=int(after_line),
        until=until,
        count_max=count_max,
    )
    holding = [{"upload_id": row["upload_id"], "line": row["line"]} for row in rows if row["holds"]]
    if holding:
        # Lock order: files before their rows.
        await SQL_HOLD_FILES.rows(connection, ids=sorted({one["upload_id"] for one in holding}))
        await SQL_ERASE_FAULT.each(connection, holding)
    return StepResult(
        place=_after(rows, count_max, "upload_id", "line"), others={"bad_file_rows": len(holding)}
    )


# Nearly all answers reject no number, and are not read.
SQL_LIST_REPLIES: Final = Statement(f"""
SELECT account_id, key,
       CASE WHEN position(convert_to('"rejected":[]', 'UTF8') IN response) > 0 THEN NULL
            WHEN {HOLDS.format("convert_from(response, 'UTF8')")} THEN response
       END AS response
  FROM idempotency_keys
 WHERE (account_id, key) > (%(after_account)s, %(after_key)s)
 ORDER BY account_id, key
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


# The row itself stays: it keeps the call from being billed twice.
SQL_SET_REPLY: Final = Statement("""
UPDATE idempotency_keys
   SET response = %(response)s
 WHERE account_id = %(account_id)s
   AND key = %(key)s
""")


async def erase_replies(
    connection: Connection, subject: Subject, place: Sequence[str], count_max: int
) -> StepResult:
    """Take the number out of the next stored answers of idempotent calls."""
    after_account, after_key = place or (str(LOWEST), "")
    rows = await SQL_LIST_REPLIES.rows(
        connection,
        national=subject.national,
        after_account=UUID(after_account),
        after_key=after_key,
        count_max=count_max,
    )
    changed = 0
    for account_id, key, quoting in rows:
        response = None if quoting is None else _without(subject, quoting)
        if response is not None:
            await SQL_SET_REPLY.rows(connection, account_id=account_id, key=key, response=response)
            changed += 1
    return StepResult(place=_after(rows, count_max, "account_id", "key"), others={"replies": changed})


def _without(subject: Subject, response: bytes) -> bytes | None:
    """Return an answer without the number among the rejected ones; None if it is not there."""
    answer: dict[str, Any] = msgspec.json.decode(response)
    quoting = [one for one in answer["rejected"] if subject.is_in(one["to"])]
    for one in quoting:
        one["to"] = subject.pseudonym
    return msgspec.json.encode(answer) if quoting else None


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


SQL_LIST_ATTEMPTS: Final = Statement("""
SELECT id, strpos(answer, %(national)s) > 0 AS holds
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND id > %(after)s
   AND id < %(until)s
 ORDER BY id
 LIMIT %(count_max)s
""")


SQL_ERASE_ANSWER: Final = Statement("""
UPDATE webhook_attempts
   SET answer = ''
 WHERE endpoint_id = %(endpoint_id)s
   AND id = %(attempt_id)s
""")


async def erase_answers(
    connection: Connection,
    subject: Subject,
    endpoint_id: EndpointId,
    after: UUID,
    until: UUID,
    count_max: int,
) -> StepResult:
    """Blank the next answers of a customer's server that hold the number."""
    rows = await SQL_LIST_ATTEMPTS.rows(
        connection,
        national=subject.national,
        endpoint_id=endpoint_id,
        after=after,
        until=until,
        count_max=count_max,
    )
    holding = [{"endpoint_id": endpoint_id, "attempt_id": row["id"]} for row in rows if row["holds"]]
    await SQL_ERASE_ANSWER.each(connection, holding)
    last = _after(rows, count_max, "id")
    return StepResult(
        place=None if last is None else [str(endpoint_id), *last], others={"webhook_answers": len(holding)}
    )


SQL_DELETE_PROOFS: Final = Statement("""
WITH proofs AS (
    DELETE FROM verifications WHERE phone = %(number)s AND created_at < %(before)s RETURNING 1
), tries AS (
    DELETE FROM attempts WHERE phone = %(number)s AND at < %(before)s RETURNING 1
), browsers AS (
    DELETE FROM devices WHERE phone = %(number)s AND created_at < %(before)s RETURNING 1
), invitations AS (
    DELETE FROM invites WHERE phone = %(number)s AND created_at < %(before)s RETURNING 1
), left_all AS (
    -- The history of accounts names them; their number and login are not needed any more.
    UPDATE people SET phone = 'erased ' || id WHERE phone = %(number)s RETURNING id
), recovery AS (
    DELETE FROM recovery_codes WHERE person_id IN (SELECT id FROM left_all)
), passwords AS (
    DELETE FROM logins WHERE person_id IN (SELECT id FROM left_all)
)
SELECT (SELECT count(*) FROM proofs) + (SELECT count(*) FROM tries) + (SELECT count(*) FROM browsers)
       + (SELECT count(*) FROM invitations) + (SELECT count(*) FROM left_all)
""")


async def delete_proofs(connection: Connection, number: str, before: datetime) -> int:
    """Delete proofs of the number, codes, attempts, browsers, invitations and logins; return how many."""
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
