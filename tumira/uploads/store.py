"""Uploaded files, their rows and faults, and how much of each has been sent."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tumira.core.ids import AccountId, BatchId, UploadId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending.lifecycle import TEXT_KEPT

CHUNK_MAX: Final = 1_000
FAULTS_MAX: Final = 10_000

CHECKED: Final = "checked"
SENDING: Final = "sending"
SENT: Final = "sent"
STOPPED: Final = "stopped"


@dataclass(frozen=True, slots=True)
class ChunkLeg:
    """The messages of a chunk to one country with the same number of segments."""

    country: str
    segments: int
    count: int


@dataclass(frozen=True, slots=True)
class NewChunk:
    """Rows that can be sent and become one batch; `bodies` is None where all get the upload's message."""

    lines: Sequence[int]
    recipients: Sequence[str]
    bodies: Sequence[str] | None
    cost: Decimal
    # The lines of the rows that are sent only because a template allows them.
    by_template: Sequence[int]
    legs: Sequence[ChunkLeg]


@dataclass(frozen=True, slots=True)
class Fault:
    """A row that cannot be sent, and why."""

    line: int
    cells: Sequence[str]
    code: str
    reason: str
    suggestion: str | None


@dataclass(frozen=True, slots=True)
class NewUpload:
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
    policy_version: int | None
    refused: int


SQL_INSERT: Final = Statement("""
INSERT INTO uploads (id, account_id, file_name, columns, message, reference, rows, recipients, total_cost,
                     policy_version)
VALUES (%(upload_id)s, %(account_id)s, %(file_name)s, %(columns)s, %(message)s, %(reference)s, %(rows)s,
        %(recipients)s, %(total_cost)s, %(policy_version)s)
""")

SQL_INSERT_CHUNK: Final = Statement("""
INSERT INTO upload_chunks (upload_id, number, lines, recipients, bodies, cost, by_template, leg_countries,
                           leg_segments, leg_counts)
VALUES (%(upload_id)s, %(number)s, %(lines)s, %(recipients)s, %(bodies)s, %(cost)s, %(by_template)s,
        %(leg_countries)s, %(leg_segments)s, %(leg_counts)s)
""")

# Rows differ in how many cells they have, which an array of arrays may not, so cells travel as JSON.
SQL_INSERT_FAULTS: Final = Statement("""
INSERT INTO upload_faults (upload_id, line, cells, code, reason, suggestion)
SELECT %(upload_id)s::uuid, line, ARRAY(SELECT jsonb_array_elements_text(cells::jsonb)), code, reason,
       suggestion
  FROM unnest(%(lines)s::integer[], %(cells)s::text[], %(codes)s::text[], %(reasons)s::text[],
              %(suggestions)s::text[]) AS fault (line, cells, code, reason, suggestion)
""")


async def insert(connection: Connection, upload: NewUpload) -> None:
    """Insert a checked file without its rows."""
    await SQL_INSERT.rows(
        connection,
        upload_id=upload.id,
        account_id=upload.account_id,
        file_name=upload.file_name,
        columns=list(upload.columns),
        message=upload.message,
        reference=upload.reference,
        rows=upload.rows,
        recipients=upload.recipients,
        total_cost=upload.total_cost,
        policy_version=upload.policy_version,
    )


async def insert_chunk(connection: Connection, upload_id: UploadId, number: int, chunk: NewChunk) -> None:
    await SQL_INSERT_CHUNK.rows(
        connection,
        upload_id=upload_id,
        number=number,
        lines=chunk.lines,
        recipients=chunk.recipients,
        bodies=chunk.bodies,
        cost=chunk.cost,
        by_template=chunk.by_template,
        **_leg_columns(chunk.legs),
    )


def _leg_columns(legs: Sequence[ChunkLeg]) -> Mapping[str, Sequence[Any]]:
    return {
        "leg_countries": [leg.country for leg in legs],
        "leg_segments": [leg.segments for leg in legs],
        "leg_counts": [leg.count for leg in legs],
    }


async def insert_faults(connection: Connection, upload_id: UploadId, faults: Sequence[Fault]) -> None:
    await SQL_INSERT_FAULTS.rows(
        connection,
        upload_id=upload_id,
        lines=[fault.line for fault in faults],
        cells=[json.dumps(fault.cells, ensure_ascii=False) for fault in faults],
        codes=[fault.code for fault in faults],
        reasons=[fault.reason for fault in faults],
        suggestions=[fault.suggestion for fault in faults],
    )


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


async def delete_surplus(
    connection: Connection, account_id: AccountId, files_max: int, rows_max: int
) -> None:
    """Forget all but the newest of an account's files that were checked and not sent.

    They have no more rows together than `rows_max`; the newest one always stays.
    """
    await SQL_DELETE_SURPLUS.rows(connection, account_id=account_id, files_max=files_max, rows_max=rows_max)


_UPLOAD: Final = """
SELECT id, account_id, file_name, columns, message, reference, state, problem, rows, recipients, total_cost,
       created_at, confirmed_at, finished_at, policy_version, refused
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


SQL_LIST: Final = Statement(
    _UPLOAD + "WHERE account_id = %(account_id)s ORDER BY id DESC LIMIT %(count_max)s"
)


async def list_recent(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Upload]:
    """Return an account's files, the newest first."""
    return [
        Upload(*row) for row in await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    ]


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


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that are to become one batch."""

    number: int
    lines: Sequence[int]
    recipients: Sequence[str]
    bodies: Sequence[str] | None
    cost: Decimal
    # The lines of the rows that are sent only because a template allows them; None where nobody noted that.
    by_template: Sequence[int] | None


SQL_NEXT_CHUNK: Final = Statement("""
SELECT number, lines, recipients, bodies, cost, by_template
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND batch_id IS NULL
   AND number > %(after)s
 ORDER BY number
 LIMIT 1
""")


async def find_next_chunk(connection: Connection, upload_id: UploadId, after: int = -1) -> Chunk | None:
    """Return the first unsent chunk of a locked file after a given one."""
    row = await SQL_NEXT_CHUNK.row(connection, upload_id=upload_id, after=after)
    return None if row is None else Chunk(*row)


SQL_LIST_UNSENT: Final = Statement("""
SELECT number, lines, recipients, bodies, cost, by_template
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND batch_id IS NULL
 ORDER BY number
""")


async def list_unsent(connection: Connection, upload_id: UploadId) -> Sequence[Chunk]:
    """Return the chunks of a file that were not sent yet."""
    return [Chunk(*row) for row in await SQL_LIST_UNSENT.rows(connection, upload_id=upload_id)]


SQL_LIST_UNSENT_LEGS: Final = Statement("""
SELECT number, leg_countries, leg_segments, leg_counts
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND batch_id IS NULL
 ORDER BY number
""")


async def list_unsent_legs(
    connection: Connection, upload_id: UploadId
) -> Mapping[int, Sequence[ChunkLeg]] | None:
    """Return the legs of a file's unsent chunks; None where they were not stored."""
    rows = await SQL_LIST_UNSENT_LEGS.rows(connection, upload_id=upload_id)
    if any(row["leg_countries"] is None for row in rows):
        return None
    return {
        row["number"]: [
            ChunkLeg(*leg)
            for leg in zip(row["leg_countries"], row["leg_segments"], row["leg_counts"], strict=True)
        ]
        for row in rows
    }


@dataclass(frozen=True, slots=True)
class Handed:
    """A chunk, without its rows, and the batch it has become."""

    number: int
    count: int
    first_line: int
    last_line: int
    cost: Decimal
    batch_id: BatchId | None


SQL_LIST_CHUNKS: Final = Statement("""
SELECT number, cardinality(recipients), lines[1], lines[cardinality(lines)], cost, batch_id
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
 ORDER BY number
""")


async def list_chunks(connection: Connection, upload_id: UploadId) -> Sequence[Handed]:
    """Return the chunks of a file, in order."""
    return [Handed(*row) for row in await SQL_LIST_CHUNKS.rows(connection, upload_id=upload_id)]


SQL_SUM_PROMISED: Final = Statement("""
SELECT coalesce(sum(c.cost), 0)
  FROM uploads u
  JOIN upload_chunks c ON c.upload_id = u.id
 WHERE u.account_id = %(account_id)s
   AND u.state = 'sending'
   AND c.batch_id IS NULL
""")


async def sum_promised(connection: Connection, account_id: AccountId) -> Decimal:
    """Return the cost that an account's files in sending have yet to pay."""
    promised: Decimal = await SQL_SUM_PROMISED.value(connection, account_id=account_id)
    return promised


SQL_SET_COSTS: Final = Statement("""
UPDATE upload_chunks
   SET cost = %(cost)s
 WHERE upload_id = %(upload_id)s
   AND number = %(number)s
   AND batch_id IS NULL
""")

SQL_SET_TOTAL: Final = Statement("""
UPDATE uploads
   SET total_cost = (SELECT coalesce(sum(cost), 0) FROM upload_chunks WHERE upload_id = %(upload_id)s)
 WHERE id = %(upload_id)s
""")


async def set_costs(connection: Connection, upload_id: UploadId, costs: Mapping[int, Decimal]) -> None:
    """Set the costs of a locked file's chunks."""
    await SQL_SET_COSTS.each(
        connection,
        [{"upload_id": upload_id, "number": number, "cost": cost} for number, cost in costs.items()],
    )
    await SQL_SET_TOTAL.rows(connection, upload_id=upload_id)


SQL_LEAVE_OUT: Final = Statement("""
UPDATE upload_chunks
   SET lines = %(lines)s, recipients = %(recipients)s, bodies = %(bodies)s, cost = %(cost)s,
       by_template = %(by_template)s, leg_countries = %(leg_countries)s, leg_segments = %(leg_segments)s,
       leg_counts = %(leg_counts)s
 WHERE upload_id = %(upload_id)s
   AND number = %(number)s
   AND batch_id IS NULL
""")

SQL_DELETE_CHUNK: Final = Statement("""
DELETE FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND number = %(number)s
   AND batch_id IS NULL
""")

SQL_COUNT_REFUSED: Final = Statement("""
UPDATE uploads
   SET recipients = recipients - %(count)s, refused = refused + %(count)s
 WHERE id = %(upload_id)s
""")


async def leave_out(
    connection: Connection,
    upload_id: UploadId,
    left: Chunk,
    legs: Sequence[ChunkLeg],
    faults: Sequence[Fault],
) -> None:
    """Store the rest of a chunk of a locked file, and why its other rows are not sent."""
    if left.recipients:
        await SQL_LEAVE_OUT.rows(
            connection,
            upload_id=upload_id,
            number=left.number,
            lines=left.lines,
            recipients=left.recipients,
            bodies=left.bodies,
            cost=left.cost,
            by_template=left.by_template,
            **_leg_columns(legs),
        )
    else:
        await SQL_DELETE_CHUNK.rows(connection, upload_id=upload_id, number=left.number)
    await insert_faults(connection, upload_id, faults)
    await SQL_COUNT_REFUSED.rows(connection, upload_id=upload_id, count=len(faults))
    await SQL_SET_TOTAL.rows(connection, upload_id=upload_id)


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


# A chunk that has a batch keeps it: the count tells whoever would send it a second time.
SQL_MARK_CHUNK: Final = Statement("""
UPDATE upload_chunks
   SET batch_id = %(batch_id)s
 WHERE upload_id = %(upload_id)s
   AND number = %(number)s
   AND batch_id IS NULL
RETURNING 1
""")


async def mark_chunk_sent(
    connection: Connection, upload_id: UploadId, number: int, batch_id: BatchId
) -> None:
    """Store the batch of a chunk, in the transaction that inserts the batch."""
    marked = await SQL_MARK_CHUNK.value(connection, upload_id=upload_id, number=number, batch_id=batch_id)
    assert marked is not None, "a chunk is sent once, by whoever holds its file"


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
 ORDER BY line
 LIMIT %(count_max)s
""")


async def list_faults(
    connection: Connection, upload_id: UploadId, count_max: int, *, after: int = 0
) -> Sequence[Fault]:
    """Return rows of a file that cannot be sent, in its order."""
    assert count_max <= FAULTS_MAX + 1
    rows = await SQL_LIST_FAULTS.rows(connection, upload_id=upload_id, after=after, count_max=count_max)
    return [Fault(*row) for row in rows]


SQL_LIST_FAULTS_OF_CODE: Final = Statement("""
SELECT line, cells, code, reason, suggestion
  FROM upload_faults
 WHERE upload_id = %(upload_id)s
   AND code = %(code)s
 ORDER BY line
 LIMIT %(count_max)s
""")


async def list_faults_of_code(
    connection: Connection, upload_id: UploadId, code: str, count_max: int
) -> Sequence[Fault]:
    """Return the first rows of a file that cannot be sent for one reason."""
    rows = await SQL_LIST_FAULTS_OF_CODE.rows(connection, upload_id=upload_id, code=code, count_max=count_max)
    return [Fault(*row) for row in rows]


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


@dataclass(frozen=True, slots=True)
class GoodRow:
    """A row that can be sent; `body` is None where all get the upload's message."""

    line: int
    recipient: str
    body: str | None


SQL_LIST_GOOD: Final = Statement("""
SELECT lines[%(first)s::integer:%(last)s::integer] AS lines,
       recipients[%(first)s::integer:%(last)s::integer] AS recipients,
       bodies[%(first)s::integer:%(last)s::integer] AS bodies
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND number = %(number)s
""")


async def list_good(
    connection: Connection, upload_id: UploadId, start: int, count_max: int
) -> Sequence[GoodRow]:
    """Return rows of a file that can be sent, from one place on; only those of the chunk it is in."""
    number, place = divmod(start, CHUNK_MAX)
    row = await SQL_LIST_GOOD.row(
        connection, upload_id=upload_id, number=number, first=place + 1, last=place + count_max
    )
    if row is None:
        return []
    bodies: Sequence[Any] = row["bodies"] or [None] * len(row["recipients"])
    return [GoodRow(*one) for one in zip(row["lines"], row["recipients"], bodies, strict=True)]


# A chunk may have fewer rows than it can hold, where some were left out after the check.
SQL_NEXT_GOOD: Final = Statement("""
SELECT number
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND (number > %(number)s OR number = %(number)s AND cardinality(recipients) > %(place)s)
 ORDER BY number
 LIMIT 1
""")


async def find_next_good(connection: Connection, upload_id: UploadId, start: int) -> int | None:
    """Return the first place from this one on at which a row stands that can be sent; None if none does."""
    number, place = divmod(start, CHUNK_MAX)
    found = await SQL_NEXT_GOOD.value(connection, upload_id=upload_id, number=number, place=place)
    if found is None:
        return None
    return start if found == number else int(found) * CHUNK_MAX


# What is being sent is left alone, however old; its rows go when it has ended.
SQL_DELETE_OLD: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id
      FROM uploads
     WHERE created_at < clock_timestamp() - make_interval(days => %(days)s)
       AND state <> 'sending'
     ORDER BY created_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
DELETE FROM uploads
 WHERE id = ANY(ARRAY(SELECT id FROM old))
RETURNING 1
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    """Delete files that were uploaded long ago, with all their rows, and return how many."""
    return len(await SQL_DELETE_OLD.rows(connection, days=TEXT_KEPT.days, count_max=count_max))
