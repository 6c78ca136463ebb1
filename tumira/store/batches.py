"""What was accepted, and what became of it?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.ids import AccountId, BatchId, MessageId, message_bounds
from tumira.rules.quotes import Quote, SendRequest
from tumira.store.sql import Connection, Statement


class NewBatch(Struct, frozen=True):
    """A batch to be stored: the request, its price, and the ids and turns of its messages."""

    id: BatchId
    account_id: AccountId
    created_at: datetime
    request: SendRequest
    quote: Quote
    lane: int
    message_ids: Sequence[UUID]
    turns: Sequence[int]


# A message names its leg by its place in arrays of a few elements, so a thousand rows travel as four arrays.
SQL_INSERT: Final = Statement("""
WITH batch AS (
    INSERT INTO batches (id, account_id, created_at, completed_at, recipients, pending, segments,
                         total_cost, status, channel, reference, body)
    SELECT id, account_id, created_at, CASE WHEN recipients = 0 THEN created_at END,
           recipients, recipients, segments, total_cost,
           CASE WHEN recipients = 0 THEN 'completed' ELSE 'queued' END, channel, reference, body
      FROM unnest(%(ids)s::uuid[], %(account_ids)s::uuid[], %(created_ats)s::timestamptz[],
                  %(recipient_counts)s::integer[], %(segments)s::smallint[], %(total_costs)s::numeric[],
                  %(channels)s::text[], %(references)s::text[], %(bodies)s::text[])
           AS batch (id, account_id, created_at, recipients, segments, total_cost, channel, reference, body)
), message AS (
    INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost)
    SELECT id, (%(leg_batch_ids)s::uuid[])[leg], (%(leg_account_ids)s::uuid[])[leg],
           (%(leg_segments)s::smallint[])[leg], (%(leg_countries)s::text[])[leg], recipient,
           (%(leg_costs)s::numeric[])[leg]
      FROM unnest(%(message_ids)s::uuid[], %(legs)s::integer[], %(recipients)s::text[])
           AS message (id, leg, recipient)
)
INSERT INTO queue (country, lane, turn, message_id)
SELECT (%(leg_countries)s::text[])[leg], (%(leg_lanes)s::smallint[])[leg], turn, id
  FROM unnest(%(message_ids)s::uuid[], %(legs)s::integer[], %(turns)s::bigint[]) AS message (id, leg, turn)
""")


async def insert_many(connection: Connection, batches: Sequence[NewBatch]) -> None:
    """Store batches with their messages, each message waiting in the queue."""
    legs = [(batch, leg) for batch in batches for leg in batch.quote.legs]
    legs_of_messages: list[int] = []
    first_leg = 1
    for batch in batches:
        legs_of_messages.extend([first_leg + leg for leg in batch.quote.leg_of])
        first_leg += len(batch.quote.legs)
    await SQL_INSERT.rows(
        connection,
        ids=[batch.id for batch in batches],
        account_ids=[batch.account_id for batch in batches],
        created_ats=[batch.created_at for batch in batches],
        recipient_counts=[len(batch.quote.numbers) for batch in batches],
        segments=[batch.quote.segments for batch in batches],
        total_costs=[batch.quote.total_cost for batch in batches],
        channels=[batch.request.channel for batch in batches],
        references=[batch.request.reference for batch in batches],
        bodies=[batch.request.body for batch in batches],
        leg_batch_ids=[batch.id for batch, _ in legs],
        leg_account_ids=[batch.account_id for batch, _ in legs],
        leg_segments=[batch.quote.segments for batch, _ in legs],
        leg_lanes=[batch.lane for batch, _ in legs],
        leg_countries=[leg.country for _, leg in legs],
        leg_costs=[leg.cost for _, leg in legs],
        message_ids=[message_id for batch in batches for message_id in batch.message_ids],
        legs=legs_of_messages,
        recipients=[number for batch in batches for number in batch.quote.numbers],
        turns=[turn for batch in batches for turn in batch.turns],
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as its owner sees it."""

    id: BatchId
    status: str
    channel: str
    reference: str | None
    recipients: int
    segments: int
    total_cost: Decimal
    refunded: Decimal
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its owner sees it."""

    id: MessageId
    recipient: str
    country: str
    status: str
    segments: int
    cost: Decimal
    sent_at: datetime | None
    delivered_at: datetime | None
    failure_reason: str | None
    refunded_at: datetime | None


SQL_FIND: Final = Statement("""
SELECT id, status, channel, reference, recipients, segments, total_cost, refunded, created_at
  FROM batches
 WHERE id = %(batch_id)s
   AND account_id = %(account_id)s
""")


async def find(connection: Connection, account_id: AccountId, batch_id: BatchId) -> Batch | None:
    """Return an account's batch; None for an unknown one and for somebody else's."""
    row = await SQL_FIND.row(connection, account_id=account_id, batch_id=batch_id)
    return None if row is None else Batch(*row)


_MESSAGE: Final = """
SELECT id, recipient, country, status, segments, cost, sent_at, delivered_at, failure_reason, refunded_at
  FROM messages
"""

# The bounds keep the search to one week and to the few neighbouring entries of the primary key.
SQL_LIST_MESSAGES: Final = Statement(
    _MESSAGE
    + """
 WHERE id BETWEEN %(low)s AND %(high)s
   AND batch_id = %(batch_id)s
   AND account_id = %(account_id)s
 ORDER BY id
"""
)


async def list_messages(
    connection: Connection, account_id: AccountId, batch_id: BatchId
) -> Sequence[Message]:
    """Return the messages of an account's batch, in the order of its recipients."""
    low, high = message_bounds(batch_id)
    rows = await SQL_LIST_MESSAGES.rows(
        connection, low=low, high=high, batch_id=batch_id, account_id=account_id
    )
    return [Message(*row) for row in rows]


SQL_FIND_MESSAGE: Final = Statement(_MESSAGE + "WHERE id = %(message_id)s AND account_id = %(account_id)s")


async def find_message(
    connection: Connection, account_id: AccountId, message_id: MessageId
) -> Message | None:
    """Return an account's message; None for an unknown one and for somebody else's."""
    row = await SQL_FIND_MESSAGE.row(connection, account_id=account_id, message_id=message_id)
    return None if row is None else Message(*row)
