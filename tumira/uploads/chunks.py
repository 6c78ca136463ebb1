"""The rows of uploaded files that can be sent, in chunks that become batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from msgspec import Struct, structs

from tumira.core.ids import AccountId, BatchId, UploadId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.uploads import store as uploads
from tumira.uploads.rows import RowFault

CHUNK_MAX: Final = 1_000


class Chunk(Struct, frozen=True):
    """Rows that become one batch. The columns of `upload_chunks`."""

    number: int
    lines: Sequence[int]
    recipients: Sequence[str]
    # None where all get the upload's message.
    bodies: Sequence[str] | None
    cost: Decimal
    # The lines of the rows that are sent only because a template allows them.
    by_template: Sequence[int]
    # The lines of the rows whose texts are near the line.
    near_line: Sequence[int]
    # How many messages go to which country in how many segments.
    leg_countries: Sequence[str]
    leg_segments: Sequence[int]
    leg_counts: Sequence[int]


SQL_INSERT: Final = Statement("""
INSERT INTO upload_chunks (upload_id, number, lines, recipients, bodies, cost, by_template, near_line,
                           leg_countries, leg_segments, leg_counts)
VALUES (%(upload_id)s, %(number)s, %(lines)s, %(recipients)s, %(bodies)s, %(cost)s, %(by_template)s,
        %(near_line)s, %(leg_countries)s, %(leg_segments)s, %(leg_counts)s)
""")


async def insert(connection: Connection, upload_id: UploadId, chunk: Chunk) -> None:
    await SQL_INSERT.rows(connection, upload_id=upload_id, **structs.asdict(chunk))


SQL_FIND_NEXT: Final = Statement("""
SELECT number, lines, recipients, bodies, cost, by_template, near_line, leg_countries, leg_segments,
       leg_counts
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND batch_id IS NULL
   AND number > %(after)s
 ORDER BY number
 LIMIT 1
""")


async def find_next(connection: Connection, upload_id: UploadId, after: int = -1) -> Chunk | None:
    """Return the first unsent chunk of a locked file after a given one."""
    row = await SQL_FIND_NEXT.row(connection, upload_id=upload_id, after=after)
    return None if row is None else Chunk(*row)


SQL_LIST_UNSENT_LEGS: Final = Statement("""
SELECT number, leg_countries, leg_segments, leg_counts
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND batch_id IS NULL
 ORDER BY number
""")


async def list_unsent_legs(
    connection: Connection, upload_id: UploadId
) -> Mapping[int, Sequence[tuple[str, int, int]]]:
    """Return country, segments and count of the messages in each unsent chunk of a file."""
    rows = await SQL_LIST_UNSENT_LEGS.rows(connection, upload_id=upload_id)
    return {number: list(zip(*legs, strict=True)) for number, *legs in rows}


@dataclass(frozen=True, slots=True)
class ChunkSummary:
    """A chunk, without its rows, and the batch it has become."""

    number: int
    count: int
    first_line: int
    last_line: int
    cost: Decimal
    batch_id: BatchId | None


SQL_LIST: Final = Statement("""
SELECT number, cardinality(recipients), lines[1], lines[cardinality(lines)], cost, batch_id
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
 ORDER BY number
""")


async def list_chunks(connection: Connection, upload_id: UploadId) -> Sequence[ChunkSummary]:
    return [ChunkSummary(*row) for row in await SQL_LIST.rows(connection, upload_id=upload_id)]


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file of which at least one batch was sent."""

    id: UploadId
    file_name: str
    state: str
    # Of the whole file, those that are not sent yet included.
    recipients: int
    # In the order in which they were sent.
    batch_ids: Sequence[BatchId]


SQL_LIST_FILES: Final = Statement("""
SELECT mine.batch_id, u.id, u.file_name, u.state, u.recipients,
       ARRAY(SELECT batch_id
               FROM upload_chunks
              WHERE upload_id = u.id
                AND batch_id IS NOT NULL
              ORDER BY batch_id) AS batch_ids
  FROM upload_chunks mine
  JOIN uploads u ON u.id = mine.upload_id
 WHERE mine.batch_id = ANY(%(batch_ids)s::uuid[])
   AND u.account_id = %(account_id)s
""")


async def list_files(
    connection: Connection, account_id: AccountId, batch_ids: Sequence[BatchId]
) -> Mapping[BatchId, SentFile]:
    """Return the files that an account's batches came from, as far as they are still kept."""
    if not batch_ids:
        return {}
    rows = await SQL_LIST_FILES.rows(connection, account_id=account_id, batch_ids=batch_ids)
    return {batch_id: SentFile(*file) for batch_id, *file in rows}


SQL_FIND_SENT: Final = Statement("""
SELECT number, lines, recipients, bodies, cost, by_template, near_line, leg_countries, leg_segments,
       leg_counts
  FROM upload_chunks
 WHERE upload_id = %(upload_id)s
   AND batch_id = %(batch_id)s
""")


async def find_sent(connection: Connection, upload_id: UploadId, batch_id: BatchId) -> Chunk | None:
    """Return the chunk of a file that became this batch."""
    row = await SQL_FIND_SENT.row(connection, upload_id=upload_id, batch_id=batch_id)
    return None if row is None else Chunk(*row)


SQL_SUM_PROMISED: Final = Statement("""
SELECT coalesce(sum(c.cost), 0)
  FROM uploads u
  JOIN upload_chunks c ON c.upload_id = u.id
 WHERE u.account_id = %(account_id)s
   AND u.state = 'sending'
   AND c.batch_id IS NULL
   AND NOT EXISTS (SELECT FROM schedules s WHERE s.upload_id = u.id AND s.held > 0)
""")


async def sum_promised(connection: Connection, account_id: AccountId) -> Decimal:
    """Return the cost that an account's files in sending have yet to pay, without what is held for them."""
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
       by_template = %(by_template)s, near_line = %(near_line)s, leg_countries = %(leg_countries)s,
       leg_segments = %(leg_segments)s, leg_counts = %(leg_counts)s
 WHERE upload_id = %(upload_id)s
   AND number = %(number)s
   AND batch_id IS NULL
""")

SQL_DELETE: Final = Statement("""
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
    connection: Connection, upload_id: UploadId, left: Chunk, faults: Sequence[RowFault]
) -> None:
    """Store the rest of a chunk of a locked file, and why its other rows are not sent."""
    if left.recipients:
        await SQL_LEAVE_OUT.rows(connection, upload_id=upload_id, **structs.asdict(left))
    else:
        await SQL_DELETE.rows(connection, upload_id=upload_id, number=left.number)
    await uploads.insert_faults(connection, upload_id, faults)
    await SQL_COUNT_REFUSED.rows(connection, upload_id=upload_id, count=len(faults))
    await SQL_SET_TOTAL.rows(connection, upload_id=upload_id)


# A chunk that has a batch keeps it: the count tells whoever would send it a second time.
SQL_MARK_SENT: Final = Statement("""
UPDATE upload_chunks
   SET batch_id = %(batch_id)s
 WHERE upload_id = %(upload_id)s
   AND number = %(number)s
   AND batch_id IS NULL
RETURNING 1
""")


async def mark_sent(connection: Connection, upload_id: UploadId, number: int, batch_id: BatchId) -> None:
    """Store the batch of a chunk, in the transaction that inserts the batch."""
    marked = await SQL_MARK_SENT.value(connection, upload_id=upload_id, number=number, batch_id=batch_id)
    assert marked is not None, "a chunk is sent once, by whoever holds its file"


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
SQL_FIND_NEXT_GOOD: Final = Statement("""
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
    found = await SQL_FIND_NEXT_GOOD.value(connection, upload_id=upload_id, number=number, place=place)
    if found is None:
        return None
    return start if found == number else int(found) * CHUNK_MAX
