"""Unmatched receipts for the operator, and the segments that they may be about.

Segments are found by the carrier id with any number, and by the number with any id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from tumira.core.ids import AccountId, MessageId
from tumira.delivery.receipt_rules import Receipt
from tumira.postgres.columns import named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending import recipients

# Above all numbers that a receipt can have.
LATEST: Final = 2**63 - 1
# Segments read for each spelling of an id, and messages for each number.
SEGMENTS_MAX: Final = 3
MESSAGES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class ListedReceipt:
    """An unmatched receipt with its carrier and its next retry."""

    id: int
    carrier_id: int
    carrier: str
    receipt: Receipt
    received_at: datetime
    next_try_at: datetime


_UNMATCHED: Final = """
SELECT u.id, u.carrier_id, coalesce(c.name, u.carrier_id::text), u.received_at, u.next_try_at,
       u.carrier_ref, u.recipient, u.state, u.error, u.receipt
  FROM unmatched_receipts u
  LEFT JOIN carriers c ON c.id = u.carrier_id
"""

SQL_LIST: Final = Statement(
    _UNMATCHED
    + """
 WHERE u.id < %(before)s
 ORDER BY u.id DESC
 LIMIT %(count_max)s
"""
)


async def list_before(
    connection: Connection, count_max: int, before: int = LATEST
) -> Sequence[ListedReceipt]:
    rows = await SQL_LIST.rows(connection, before=before, count_max=count_max)
    return [_unmatched(row) for row in rows]


SQL_FIND: Final = Statement(_UNMATCHED + "WHERE u.id = %(receipt_id)s")
# Held until the commit: a worker that tries receipts again passes it over meanwhile.
SQL_LOCK: Final = Statement(_UNMATCHED + "WHERE u.id = %(receipt_id)s FOR UPDATE OF u")


async def find(connection: Connection, receipt_id: int, *, lock: bool = False) -> ListedReceipt | None:
    row = await (SQL_LOCK if lock else SQL_FIND).row(connection, receipt_id=receipt_id)
    return None if row is None else _unmatched(row)


def _unmatched(row: asyncpg.Record) -> ListedReceipt:
    return ListedReceipt(*(*row[:3], Receipt(*row[5:]), *row[3:5]))


SQL_COUNT: Final = Statement("""
SELECT count(*) FROM (SELECT FROM unmatched_receipts LIMIT %(count_max)s) AS counted
""")


async def count(connection: Connection, count_max: int) -> int:
    return int(await SQL_COUNT.value(connection, count_max=count_max))


@dataclass(frozen=True, slots=True)
class CandidateSegment:
    place: int
    message_id: MessageId
    number: int
    attempt: int
    account_id: AccountId
    recipient: str
    # The status of its message, and the state of the segment's own last receipt.
    status: str
    state: str | None
    carrier_id: int
    carrier: str
    carrier_ref: str
    submitted_at: datetime

    @property
    def key(self) -> tuple[MessageId, int, int]:
        return self.message_id, self.number, self.attempt


_SEGMENT: Final = """
SELECT wanted.place, part.message_id, part.number, part.attempt, message.account_id, message.recipient,
       message.status, part.state, part.carrier_id, coalesce(c.name, part.carrier_id::text), part.carrier_ref,
       part.submitted_at
"""

SQL_BY_ID: Final = Statement(f"""
{_SEGMENT}
  FROM unnest(%(places)s::integer[], %(carrier_ids)s::integer[], %(keys)s::text[])
       AS wanted (place, carrier_id, key)
 CROSS JOIN LATERAL (
       SELECT message_id, number, attempt, state, carrier_id, carrier_ref, submitted_at
         FROM parts
        WHERE carrier_id = wanted.carrier_id
          AND carrier_key = wanted.key
          AND message_id BETWEEN %(low)s AND %(high)s
        ORDER BY message_id DESC
        LIMIT %(count_max)s
       ) AS part
 CROSS JOIN LATERAL (
       SELECT account_id, recipient, status
         FROM messages
        WHERE id = part.message_id
          AND id BETWEEN %(low)s AND %(high)s
        OFFSET 0
       ) AS message
  LEFT JOIN carriers c ON c.id = part.carrier_id
""")  # noqa: S608 - only a constant is put in


async def list_by_id(
    connection: Connection, keys: Sequence[tuple[int, int, str]], bounds: tuple[UUID, UUID]
) -> Sequence[CandidateSegment]:
    wanted = named_columns("places carrier_ids keys", keys)
    low, high = bounds
    rows = await SQL_BY_ID.rows(connection, **wanted, low=low, high=high, count_max=SEGMENTS_MAX)
    return [CandidateSegment(*row) for row in rows]


SQL_OF_MESSAGES: Final = Statement(f"""
{_SEGMENT}
  FROM unnest(%(places)s::integer[], %(ids)s::uuid[]) AS wanted (place, id)
 CROSS JOIN LATERAL (
       SELECT account_id, recipient, status
         FROM messages
        WHERE id = wanted.id
          AND id BETWEEN %(low)s AND %(high)s
        OFFSET 0
       ) AS message
 CROSS JOIN LATERAL (
       SELECT message_id, number, attempt, state, carrier_id, carrier_ref, submitted_at
         FROM parts
        WHERE message_id = wanted.id
          AND message_id BETWEEN %(low)s AND %(high)s
        OFFSET 0
       ) AS part
  LEFT JOIN carriers c ON c.id = part.carrier_id
""")  # noqa: S608 - only a constant is put in


async def list_by_number(
    connection: Connection, numbers: Sequence[tuple[int, str, UUID]], low: UUID
) -> Sequence[CandidateSegment]:
    # A receipt is not about a message that was made after it came.
    found = [
        (place, sent.id)
        for place, number, high in numbers
        for sent in await recipients.list_sent(connection, number, (low, high), MESSAGES_MAX)
    ]
    if not found:
        return []
    wanted = named_columns("places ids", found)
    rows = await SQL_OF_MESSAGES.rows(connection, **wanted, low=min(wanted["ids"]), high=max(wanted["ids"]))
    return [CandidateSegment(*row) for row in rows]
