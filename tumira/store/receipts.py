"""Which message is a receipt about, and what is kept of those that match none?"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.ids import MessageId
from tumira.rules.receipts import Receipt
from tumira.store.sql import Connection, Statement


class Match(Struct, frozen=True):
    """A segment whose carrier's id is spelt like one of a receipt's; `place` says which receipt's."""

    place: int
    message_id: MessageId
    number: int
    attempt: int
    recipient: str


# Carriers use their ids again: the newest few are enough, and none older than the bounds.
SQL_MATCH: Final = Statement("""
SELECT wanted.place, part.message_id, part.number, part.attempt, message.recipient
  FROM unnest(%(places)s::integer[], %(keys)s::text[]) AS wanted (place, key)
 CROSS JOIN LATERAL (
       SELECT message_id, number, attempt
         FROM parts
        WHERE carrier_id = %(carrier_id)s
          AND carrier_key = wanted.key
          AND message_id BETWEEN %(low)s AND %(high)s
        ORDER BY message_id DESC
        LIMIT 3
       ) AS part
 CROSS JOIN LATERAL (
       SELECT recipient
         FROM messages
        WHERE id = part.message_id
          AND id BETWEEN %(low)s AND %(high)s
        OFFSET 0
       ) AS message
""")


async def match(
    connection: Connection,
    carrier_id: int,
    keys: Sequence[tuple[int, str]],
    bounds: tuple[UUID, UUID],
) -> Sequence[Match]:
    """Find segments by the spellings of their carrier's id, each given with the place of its receipt."""
    rows = await SQL_MATCH.rows(
        connection,
        carrier_id=carrier_id,
        places=[place for place, _ in keys],
        keys=[key for _, key in keys],
        low=bounds[0],
        high=bounds[1],
    )
    return [Match(*row) for row in rows]


class Doubt(Struct, frozen=True):
    """A message that may have been handed over without our learning the carrier's id."""

    message_id: MessageId
    doubted_at: datetime
    segments: int
    resends: int
    # The numbers of the segments whose carrier's id is known.
    taken: Sequence[int]


# Not while another message to the number is being handed over: the receipt may be about that one, and be
# ahead of its answer.
SQL_DOUBTS: Final = Statement("""
SELECT incidents.message_id, incidents.at, message.segments,
       (SELECT count(*)
          FROM incidents AS resend
         WHERE resend.message_id = incidents.message_id
           AND resend.message_id BETWEEN %(low)s AND %(high)s
           AND resend.kind = 'resend'
           AND resend.at < incidents.at),
       ARRAY(SELECT DISTINCT number
               FROM parts
              WHERE parts.message_id = incidents.message_id
                AND parts.message_id BETWEEN %(low)s AND %(high)s)
  FROM incidents
 CROSS JOIN LATERAL (
       SELECT segments
         FROM messages
        WHERE id = incidents.message_id
          AND id BETWEEN %(low)s AND %(high)s
          AND status IN ('queued', 'sending', 'sent', 'unconfirmed')
        OFFSET 0
       ) AS message
 WHERE incidents.carrier_id = %(carrier_id)s
   AND incidents.recipient = %(recipient)s
   AND incidents.kind = 'doubt'
   AND incidents.message_id BETWEEN %(low)s AND %(high)s
   AND NOT EXISTS (
       SELECT
         FROM in_flight
        CROSS JOIN LATERAL (
              SELECT recipient
                FROM messages
               WHERE id = in_flight.message_id
                 AND id BETWEEN %(low)s AND %(high)s
               OFFSET 0
              ) AS other
        WHERE in_flight.carrier_id = %(carrier_id)s
          AND other.recipient = '+' || incidents.recipient)
 ORDER BY incidents.at
""")


async def list_doubts(
    connection: Connection, carrier_id: int, recipient: str, bounds: tuple[UUID, UUID]
) -> Sequence[Doubt]:
    """Return the messages to a number that a receipt without a known id may be about, oldest first."""
    rows = await SQL_DOUBTS.rows(
        connection, carrier_id=carrier_id, recipient=recipient, low=bounds[0], high=bounds[1]
    )
    # A message that was in doubt more than once is one message all the same.
    return list({row[0]: Doubt(*row) for row in rows}.values())


class Unmatched(Struct, frozen=True):
    """A receipt that matched nothing when it came."""

    id: int
    carrier_id: int
    receipt: Receipt
    received_at: datetime


SQL_KEEP: Final = Statement("""
INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, error, receipt, received_at,
                                next_try_at)
SELECT %(carrier_id)s, carrier_ref, recipient, state, error, receipt, received_at,
       clock_timestamp() + interval '1 second'
  FROM unnest(%(carrier_refs)s::text[], %(recipients)s::text[], %(states)s::text[], %(errors)s::text[],
              %(receipts)s::text[], %(received_ats)s::timestamptz[])
       AS kept (carrier_ref, recipient, state, error, receipt, received_at)
""")


async def keep(connection: Connection, carrier_id: int, receipts: Sequence[tuple[Receipt, datetime]]) -> None:
    """Keep receipts that match nothing yet, each with the time when it came."""
    await SQL_KEEP.rows(
        connection,
        carrier_id=carrier_id,
        carrier_refs=[receipt.carrier_ref for receipt, _ in receipts],
        recipients=[receipt.recipient for receipt, _ in receipts],
        states=[receipt.state for receipt, _ in receipts],
        errors=[receipt.error for receipt, _ in receipts],
        receipts=[receipt.text for receipt, _ in receipts],
        received_ats=[received_at for _, received_at in receipts],
    )


# Every second for the first minute, then every minute. By a clock that stands still, so that the index tells
# what is due.
SQL_TAKE: Final = Statement("""
UPDATE unmatched_receipts
   SET next_try_at = clock_timestamp()
                     + CASE WHEN received_at > clock_timestamp() - interval '1 minute'
                            THEN interval '1 second' ELSE interval '1 minute' END
 WHERE id = ANY(ARRAY(
       SELECT id
         FROM unmatched_receipts
        WHERE next_try_at <= statement_timestamp()
        ORDER BY next_try_at
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING id, carrier_id, carrier_ref, recipient, state, error, receipt, received_at
""")


async def take_due(connection: Connection, count_max: int) -> Sequence[Unmatched]:
    """Take receipts whose next try is due, and set the one after it."""
    rows = await SQL_TAKE.rows(connection, count_max=count_max)
    return [Unmatched(row[0], row[1], Receipt(*row[2:7]), row[7]) for row in rows]


SQL_DELETE: Final = Statement("DELETE FROM unmatched_receipts WHERE id = ANY(%(ids)s::bigint[])")


async def delete(connection: Connection, ids: Sequence[int]) -> None:
    """Forget receipts that have found their message."""
    await SQL_DELETE.rows(connection, ids=ids)


SQL_DELETE_OLD: Final = Statement("""
WITH deleted AS (
    DELETE FROM unmatched_receipts
     WHERE received_at < clock_timestamp() - interval '72 hours'
 RETURNING 1
)
SELECT count(*) FROM deleted
""")


async def delete_old(connection: Connection) -> int:
    """Forget receipts that matched nothing in 72 hours, and return how many."""
    return int(await SQL_DELETE_OLD.value(connection))
