"""Segments that receipts may be about, and receipts that match none."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from tumira.core.ids import MessageId
from tumira.delivery.receipt_rules import Receipt, UnmatchedReceipt
from tumira.postgres.columns import columns, named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


class Match(Struct, frozen=True):
    place: int
    key: str
    message_id: MessageId
    number: int
    attempt: int
    claimed_at: datetime
    recipient: str


# Carriers use their ids again: the newest few are enough, and none older than the bounds.
SQL_FIND_SEGMENTS: Final = Statement("""
SELECT wanted.place, wanted.key, part.message_id, part.number, part.attempt, part.claimed_at,
       message.recipient
  FROM unnest(%(places)s::integer[], %(keys)s::text[]) AS wanted (place, key)
 CROSS JOIN LATERAL (
       SELECT message_id, number, attempt, claimed_at
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


async def find_segments(
    connection: Connection, carrier_id: int, keys: Collection[tuple[int, str]], bounds: tuple[UUID, UUID]
) -> Sequence[Match]:
    low, high = bounds
    rows = await SQL_FIND_SEGMENTS.rows(
        connection, carrier_id=carrier_id, **named_columns("places keys", keys), low=low, high=high
    )
    return [Match(*row) for row in rows]


class Doubt(Struct, frozen=True):
    """A submission that ended in doubt: the carrier ids may be unknown.

    `segments` is 0 at a carrier over HTTP, which gets messages whole.
    """

    recipient: str
    message_id: MessageId
    claimed_at: datetime
    attempt: int
    segments: int
    status: str


# With more than this, the number says nothing.
DOUBTS_MAX: Final = 50

# Also of messages that have ended: a receipt may be about a try that another one made needless.
SQL_DOUBTS: Final = Statement("""
SELECT wanted.recipient, doubt.message_id, doubt.claimed_at,
       (SELECT count(*)
          FROM incidents AS resend
         WHERE resend.message_id = doubt.message_id
           AND resend.message_id BETWEEN %(low)s AND %(high)s
           AND resend.kind = 'resend'
           AND resend.at < doubt.at) AS attempt,
       CASE WHEN EXISTS (SELECT FROM http_carriers WHERE http_carriers.carrier_id = %(carrier_id)s)
            THEN 0 ELSE message.segments END AS segments,
       message.status
  FROM unnest(%(recipients)s::text[]) AS wanted (recipient)
 CROSS JOIN LATERAL (
       SELECT message_id, at, coalesce(claimed_at, at) AS claimed_at
         FROM incidents
        WHERE carrier_id = %(carrier_id)s
          AND recipient = wanted.recipient
          AND kind = 'doubt'
          AND message_id BETWEEN %(low)s AND %(high)s
        LIMIT %(count_max)s
       ) AS doubt
 CROSS JOIN LATERAL (
       SELECT segments, status
         FROM messages
        WHERE id = doubt.message_id
          AND id BETWEEN %(low)s AND %(high)s
        OFFSET 0
       ) AS message
""")


async def list_doubts(
    connection: Connection, carrier_id: int, recipients: Sequence[str], bounds: tuple[UUID, UUID]
) -> Sequence[Doubt]:
    low, high = bounds
    rows = await SQL_DOUBTS.rows(
        connection, carrier_id=carrier_id, recipients=recipients, low=low, high=high, count_max=DOUBTS_MAX + 1
    )
    return [Doubt(*row) for row in rows]


class KnownPart(Struct, frozen=True):
    message_id: MessageId
    number: int
    attempt: int
    carrier_ref: str
    answered_at: datetime


SQL_KNOWN_PARTS: Final = Statement("""
SELECT message_id, number, attempt, carrier_ref, answered_at
  FROM parts
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND message_id BETWEEN %(low)s AND %(high)s
""")


async def list_known_parts(connection: Connection, ids: Sequence[UUID]) -> Sequence[KnownPart]:
    rows = await SQL_KNOWN_PARTS.rows(connection, ids=ids, low=min(ids), high=max(ids))
    return [KnownPart(*row) for row in rows]


SQL_BEING_SUBMITTED: Final = Statement("""
SELECT DISTINCT message.recipient
  FROM in_flight
 CROSS JOIN LATERAL (
       SELECT recipient
         FROM messages
        WHERE id = in_flight.message_id
          AND id BETWEEN %(low)s AND %(high)s
        OFFSET 0
       ) AS message
 WHERE in_flight.carrier_id = %(carrier_id)s
   AND message.recipient = ANY(%(numbers)s::text[])
""")


async def list_being_submitted(
    connection: Connection, carrier_id: int, numbers: Sequence[str], bounds: tuple[UUID, UUID]
) -> frozenset[str]:
    rows = await SQL_BEING_SUBMITTED.rows(
        connection, carrier_id=carrier_id, numbers=numbers, low=bounds[0], high=bounds[1]
    )
    return frozenset(row["recipient"] for row in rows)


# When it came, by the clock of the database: that is compared with when messages were claimed. The caller's
# copy of that clock may be a moment ahead.
SQL_INSERT_UNMATCHED: Final = Statement("""
INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, error, receipt, received_at,
                                next_try_at)
SELECT %(carrier_id)s, carrier_ref, recipient, state, error, receipt,
       least(received_at, statement_timestamp()), clock_timestamp() + interval '1 second'
  FROM unnest(%(carrier_ref)s::text[], %(recipient)s::text[], %(state)s::text[], %(error)s::text[],
              %(text)s::text[], %(received_at)s::timestamptz[])
       AS kept (carrier_ref, recipient, state, error, receipt, received_at)
""")


async def insert_unmatched(
    connection: Connection, carrier_id: int, receipts: Sequence[tuple[Receipt, datetime]]
) -> None:
    """Keep receipts that match nothing yet, each with its time of arrival by the database's clock."""
    kept = columns(Receipt, [receipt for receipt, _ in receipts])
    # Another receipt of the number will name its network too.
    del kept["network"]
    await SQL_INSERT_UNMATCHED.rows(
        connection,
        carrier_id=carrier_id,
        **kept,
        received_at=[received_at for _, received_at in receipts],
    )


_KEPT: Final = "id, carrier_id, carrier_ref, recipient, state, error, receipt, received_at"

# As many of each carrier, so that none waits behind another. Each waits again for as long as it is old, and
# ten minutes at most. By the time of the statement, so that the index is used.
SQL_CLAIM_DUE: Final = Statement(f"""
UPDATE unmatched_receipts
   SET next_try_at = clock_timestamp()
                     + least(greatest(clock_timestamp() - received_at, interval '1 second'),
                             interval '10 minutes')
 WHERE id = ANY(ARRAY(
       SELECT due.id
         FROM carriers
        CROSS JOIN LATERAL (
              SELECT unmatched_receipts.id
                FROM unmatched_receipts
               WHERE unmatched_receipts.carrier_id = carriers.id
                 AND unmatched_receipts.next_try_at <= statement_timestamp()
               ORDER BY unmatched_receipts.next_try_at
               LIMIT %(count_max)s
                 FOR UPDATE SKIP LOCKED
              ) AS due))
RETURNING {_KEPT}
""")  # noqa: S608 - only a constant is put in


async def claim_due(connection: Connection, count_max: int) -> Mapping[int, Sequence[UnmatchedReceipt]]:
    """Take receipts whose retry is due, at most `count_max` per carrier, and schedule the next retry."""
    taken: dict[int, list[UnmatchedReceipt]] = {}
    for row in await SQL_CLAIM_DUE.rows(connection, count_max=count_max):
        taken.setdefault(row["carrier_id"], []).append(_unmatched(row))
    return taken


# The most receipts to one number that are read, newest first; this many prove nothing.
TO_NUMBER_MAX: Final = 50

SQL_TO_NUMBERS: Final = Statement(f"""
SELECT kept.*
  FROM unnest(%(ends)s::text[]) AS wanted (ending)
 CROSS JOIN LATERAL (
       SELECT {_KEPT}
         FROM unmatched_receipts
        WHERE carrier_id = %(carrier_id)s
          AND right(recipient, 8) = wanted.ending
        ORDER BY id DESC
        LIMIT %(count_max)s
       ) AS kept
""")  # noqa: S608 - only a constant is put in


async def list_to_numbers(
    connection: Connection, carrier_id: int, ends: Collection[str]
) -> Sequence[UnmatchedReceipt]:
    rows = await SQL_TO_NUMBERS.rows(
        connection, carrier_id=carrier_id, ends=sorted(set(ends)), count_max=TO_NUMBER_MAX
    )
    return [_unmatched(row) for row in rows]


def _unmatched(row: asyncpg.Record) -> UnmatchedReceipt:
    return UnmatchedReceipt(row[0], row[1], Receipt(*row[2:7]), row[7])


SQL_LIST_STATES: Final = Statement("""
SELECT state
  FROM unmatched_receipts
 WHERE carrier_id = %(carrier_id)s
   AND carrier_ref = %(carrier_ref)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_states(connection: Connection, carrier_id: int, carrier_ref: str) -> Sequence[str]:
    """Return what receipts say of a message that is none of ours, the newest first."""
    rows = await SQL_LIST_STATES.rows(
        connection, carrier_id=carrier_id, carrier_ref=carrier_ref, count_max=TO_NUMBER_MAX
    )
    return [row["state"] for row in rows]


# Without waiting: the holder of a locked one settles its message, and may wait for us.
SQL_LOCK: Final = Statement("""
SELECT id FROM unmatched_receipts WHERE id = ANY(%(ids)s::bigint[]) FOR UPDATE SKIP LOCKED
""")


async def lock_free(connection: Connection, ids: Sequence[int]) -> frozenset[int]:
    return frozenset(row["id"] for row in await SQL_LOCK.rows(connection, ids=ids))


SQL_DELETE: Final = Statement("DELETE FROM unmatched_receipts WHERE id = ANY(%(ids)s::bigint[])")


async def delete(connection: Connection, ids: Sequence[int]) -> None:
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
    """Delete receipts that matched nothing in 72 hours, and return how many."""
    return int(await SQL_DELETE_OLD.value(connection))


# The newest are the likeliest to find a message yet.
SQL_DELETE_BEYOND: Final = Statement("""
WITH flooding AS (
    SELECT carrier_id
      FROM unmatched_receipts
     GROUP BY carrier_id
    HAVING count(*) > %(kept_max)s
), deleted AS (
    DELETE FROM unmatched_receipts
     WHERE id = ANY(ARRAY(
           SELECT beyond.id
             FROM flooding
            CROSS JOIN LATERAL (
                  SELECT id
                    FROM unmatched_receipts
                   WHERE carrier_id = flooding.carrier_id
                   ORDER BY id DESC
                  OFFSET %(kept_max)s
                  ) AS beyond
            LIMIT %(count_max)s))
 RETURNING 1
)
SELECT count(*) FROM deleted
""")


async def delete_beyond(connection: Connection, kept_max: int, count_max: int) -> int:
    """Delete the oldest receipts of carriers with more than `kept_max`, and return how many."""
    return int(await SQL_DELETE_BEYOND.value(connection, kept_max=kept_max, count_max=count_max))
