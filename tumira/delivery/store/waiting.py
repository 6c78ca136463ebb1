"""Moves waiting messages between queue, retries and flight; the caller has locked their rows."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import BatchId, MessageId
from tumira.postgres.columns import columns, named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.networks import list_queues

# Another carrier has had time to take the message; then the one that it avoids may have it again.
AVOID_S: Final = 60.0


class QueueEntry(Struct, frozen=True):
    """A place in a queue; without a turn it gets the lane's clock, without a queue that of its network.

    `avoid` is the carrier at which it was in doubt: another one takes it if there is one.
    """

    message_id: MessageId
    country: str
    network: str | None
    queue: str | None
    lane: int
    turn: int | None
    again: bool
    expires_at: datetime
    avoid: int | None = None


# A network with routes has a queue of its own (`networks.queue_of`), as of now.
_PROPER: Final = """
CASE WHEN EXISTS (SELECT FROM routes WHERE routes.country = entry.country AND routes.network = entry.network)
     THEN entry.country || '-' || entry.network ELSE entry.country END
"""

SQL_ENQUEUE: Final = Statement(f"""
INSERT INTO queue (country, lane, turn, message_id, again, expires_at, avoid, avoid_until)
SELECT proper.queue, entry.lane,
       coalesce(entry.turn, (SELECT turn FROM clocks
                              WHERE clocks.country = proper.queue AND clocks.lane = entry.lane), 0),
       entry.message_id, entry.again, entry.expires_at, entry.avoid,
       CASE WHEN entry.avoid IS NOT NULL
            THEN clock_timestamp() + make_interval(secs => %(avoid_s)s) END
  FROM unnest(%(message_id)s::uuid[], %(country)s::text[], %(network)s::text[], %(queue)s::text[],
              %(lane)s::smallint[], %(turn)s::bigint[], %(again)s::boolean[],
              %(expires_at)s::timestamptz[], %(avoid)s::integer[])
       AS entry (message_id, country, network, queue, lane, turn, again, expires_at, avoid)
 CROSS JOIN LATERAL (SELECT coalesce(entry.queue, {_PROPER}) AS queue) AS proper
""")  # noqa: S608 - only a constant is put in


async def enqueue(connection: Connection, entries: Sequence[QueueEntry]) -> None:
    await SQL_ENQUEUE.rows(connection, **columns(QueueEntry, entries), avoid_s=AVOID_S)


class NewRetry(Struct, frozen=True):
    message_id: MessageId
    wait_s: float
    in_doubt: bool
    carrier_id: int


SQL_INSERT_RETRIES: Final = Statement("""
INSERT INTO retries (message_id, due_at, in_doubt, carrier_id)
SELECT message_id, clock_timestamp() + make_interval(secs => wait_s), in_doubt, carrier_id
  FROM unnest(%(message_id)s::uuid[], %(wait_s)s::double precision[], %(in_doubt)s::boolean[],
              %(carrier_id)s::integer[]) AS delay (message_id, wait_s, in_doubt, carrier_id)
""")


async def insert_retries(connection: Connection, delays: Sequence[NewRetry]) -> None:
    await SQL_INSERT_RETRIES.rows(connection, **columns(NewRetry, delays))


class DueRetry(Struct, frozen=True):
    message_id: MessageId
    in_doubt: bool
    carrier_id: int | None


# By the time of the statement, so that the index is used: else all of `retries` would be read.
SQL_LIST_DUE: Final = Statement("""
SELECT message_id, in_doubt, carrier_id
  FROM retries
 WHERE due_at <= statement_timestamp()
   -- The worker at such a carrier asks about these.
   AND NOT (retries.in_doubt
            AND retries.message_id >= %(fresh)s
            AND retries.carrier_id IN (
                SELECT id FROM carriers WHERE in_doubt = 'look' AND removed_at IS NULL))
 ORDER BY due_at
 LIMIT %(count_max)s
""")


async def list_due(connection: Connection, fresh: UUID, count_max: int) -> Sequence[DueRetry]:
    """Return retries that are due; a doubt that a carrier can be asked about only if older than `fresh`."""
    return [DueRetry(*row) for row in await SQL_LIST_DUE.rows(connection, fresh=fresh, count_max=count_max)]


SQL_CLAIM_DUE: Final = Statement("""
DELETE FROM retries
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND due_at <= clock_timestamp()
RETURNING message_id, in_doubt, carrier_id
""")


async def claim_due(connection: Connection, ids: Sequence[UUID]) -> Sequence[DueRetry]:
    """Take locked messages out of `retries`, as far as they are still due."""
    return [DueRetry(*row) for row in await SQL_CLAIM_DUE.rows(connection, ids=ids)]


# The place of a message in `queue`: its queue, lane and turn.
QueuePlace = tuple[str, int, int]

# Rows of the queue are not waited for: who claims one of these holds it and will wait for the message that we
# hold. It finds the message settled then, and lets go of it.
SQL_LEAVE_PLACES: Final = Statement("""
DELETE FROM queue
 WHERE ctid = ANY(ARRAY(
       SELECT row.ctid
         FROM unnest(%(ids)s::uuid[], %(queues)s::text[], %(lanes)s::smallint[], %(turns)s::bigint[])
              AS place (message_id, queue, lane, turn)
        CROSS JOIN LATERAL (
              SELECT ctid
                FROM queue
               WHERE country = place.queue
                 AND lane = place.lane
                 AND turn = place.turn
                 AND message_id = place.message_id
                 FOR UPDATE SKIP LOCKED
              ) AS row))
RETURNING message_id
""")

SQL_LEAVE_OTHERS: Final = Statement("""
WITH left_retries AS (
    DELETE FROM retries WHERE message_id = ANY(%(ids)s::uuid[]) RETURNING message_id
), left_flight AS (
    DELETE FROM in_flight WHERE message_id = ANY(%(ids)s::uuid[]) RETURNING message_id
)
SELECT message_id FROM left_retries
 UNION ALL
SELECT message_id FROM left_flight
""")

# The queue is in the order of turns, so all of it is read.
SQL_LEAVE_QUEUE: Final = Statement("""
DELETE FROM queue
 WHERE ctid = ANY(ARRAY(
       SELECT ctid
         FROM queue
        WHERE country = ANY(%(queues)s::text[])
          AND message_id = ANY(%(ids)s::uuid[])
          FOR UPDATE SKIP LOCKED))
""")


async def delete_waiting(
    connection: Connection, countries: Mapping[UUID, str], known: Mapping[UUID, QueuePlace]
) -> None:
    """Take messages, given with their countries, out of wherever they wait.

    Each is in one place. Known places in the queue are tried first, then the small tables; the whole queue is
    read only for messages that are in none of these.
    """
    left = set(countries)
    if known:
        rows = await SQL_LEAVE_PLACES.rows(
            connection, ids=list(known), **named_columns("queues lanes turns", known.values())
        )
        left -= {row["message_id"] for row in rows}
    if left:
        left -= {row["message_id"] for row in await SQL_LEAVE_OTHERS.rows(connection, ids=sorted(left))}
    if left:
        where = [
            name for country in sorted({countries[one] for one in left}) for name in list_queues(country)
        ]
        await SQL_LEAVE_QUEUE.rows(connection, ids=sorted(left), queues=where)


SQL_END_FLIGHT: Final = Statement("""
DELETE FROM in_flight
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND worker = %(worker)s
RETURNING message_id, claimed_at
""")


async def end_flight(connection: Connection, ids: Sequence[UUID], worker: str) -> Mapping[UUID, datetime]:
    return {row[0]: row[1] for row in await SQL_END_FLIGHT.rows(connection, ids=ids, worker=worker)}


SQL_OF_WORKER: Final = Statement("""
SELECT message_id, carrier_id
  FROM in_flight
 WHERE worker = %(worker)s
 ORDER BY message_id
 LIMIT %(count_max)s
""")


async def list_in_flight(connection: Connection, worker: str, count_max: int) -> Mapping[UUID, int]:
    rows = await SQL_OF_WORKER.rows(connection, worker=worker, count_max=count_max)
    return {row[0]: row[1] for row in rows}


SQL_DIRECT: Final = Statement("""
SELECT message_id
  FROM in_flight
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND worker = %(worker)s
   AND is_direct
""")


async def list_direct(connection: Connection, ids: Sequence[UUID], worker: str) -> Sequence[UUID]:
    """Return those of a worker's claims that were made with the accept."""
    return [row[0] for row in await SQL_DIRECT.rows(connection, ids=ids, worker=worker)]


# With something still in flight it is left to be found dead, at once.
SQL_DELETE_WORKER: Final = Statement("""
WITH left_behind AS (
    UPDATE workers
       SET seen_at = timestamptz 'epoch'
     WHERE id = %(worker)s
       AND EXISTS (SELECT FROM in_flight WHERE in_flight.worker = %(worker)s)
)
DELETE FROM workers
 WHERE id = %(worker)s
   AND NOT EXISTS (SELECT FROM in_flight WHERE in_flight.worker = %(worker)s)
""")


async def delete_worker(connection: Connection, worker: str) -> None:
    """Note that a worker has shut down."""
    await SQL_DELETE_WORKER.rows(connection, worker=worker)


# A worker that was taken for dead may have woken, claimed and died before it said that it lives.
SQL_ADOPT_ORPHANS: Final = Statement("""
INSERT INTO workers (id, seen_at)
SELECT DISTINCT worker, timestamptz 'epoch'
  FROM in_flight
 WHERE claimed_at < clock_timestamp() - interval '1 minute'
   AND NOT EXISTS (SELECT FROM workers WHERE workers.id = in_flight.worker)
    ON CONFLICT (id) DO NOTHING
RETURNING id
""")


async def adopt_orphans(connection: Connection) -> int:
    """Insert the workers again whose claims outlived them, so that they are found dead."""
    return len(await SQL_ADOPT_ORPHANS.rows(connection))


class BatchFacts(Struct, frozen=True):
    """How many recipients a batch has, which decides its lane, and when its messages expire."""

    recipients: int
    expires_at: datetime


SQL_BATCH_FACTS: Final = Statement("""
SELECT id, recipients, coalesce(expires_at, created_at + interval '24 hours') AS expires_at
  FROM batches
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
""")


async def find_batch_facts(connection: Connection, ids: Sequence[BatchId]) -> Mapping[UUID, BatchFacts]:
    rows = await SQL_BATCH_FACTS.rows(connection, ids=ids, low=min(ids), high=max(ids))
    return {batch_id: BatchFacts(*facts) for batch_id, *facts in rows}


class Incident(Struct, frozen=True):
    message_id: MessageId
    kind: str
    carrier_id: int | None
    part: int | None = None
    recipient: str | None = None
    detail: str | None = None
    # Of a doubt: when the message had been claimed. A receipt that came before is not about it.
    claimed_at: datetime | None = None


SQL_INSERT_INCIDENTS: Final = Statement("""
INSERT INTO incidents (message_id, kind, carrier_id, part, recipient, detail, claimed_at)
SELECT *
  FROM unnest(%(message_id)s::uuid[], %(kind)s::text[], %(carrier_id)s::integer[], %(part)s::smallint[],
              %(recipient)s::text[], %(detail)s::text[], %(claimed_at)s::timestamptz[])
""")


async def insert_incidents(connection: Connection, incidents: Sequence[Incident]) -> None:
    await SQL_INSERT_INCIDENTS.rows(connection, **columns(Incident, incidents))


# Rows of the version before have no time of their own.
SQL_LIST_EXPIRED: Final = Statement("""
SELECT message_id, country, lane, turn
  FROM queue
 WHERE expires_at < %(by)s
    OR expires_at IS NULL AND message_id < %(first)s
 LIMIT %(count_max)s
""")


async def list_expired(
    connection: Connection, by: datetime, first: UUID, count_max: int
) -> Mapping[UUID, QueuePlace]:
    """Return queued messages that expire before a time, with their places.

    Those without a time of their own expire if they were accepted before the id `first`. A message that waits
    for a retry is due within minutes, and is looked at then.
    """
    rows = await SQL_LIST_EXPIRED.rows(connection, by=by, first=first, count_max=count_max)
    return {message_id: (country, lane, turn) for message_id, country, lane, turn in rows}


SQL_LIST_IN_QUEUE: Final = Statement("""
SELECT message_id, country, lane, turn FROM queue WHERE country = %(queue)s LIMIT %(count_max)s
""")


async def list_in_queue(connection: Connection, queue: str, count_max: int) -> Mapping[UUID, QueuePlace]:
    rows = await SQL_LIST_IN_QUEUE.rows(connection, queue=queue, count_max=count_max)
    return {message_id: (where, lane, turn) for message_id, where, lane, turn in rows}


# Their turns are those of another queue, so they enter at the clock.
SQL_MOVE: Final = Statement("""
WITH moved AS (
    DELETE FROM queue
     WHERE ctid = ANY(ARRAY(
           SELECT row.ctid
             FROM unnest(%(ids)s::uuid[], %(queues)s::text[], %(lanes)s::smallint[], %(turns)s::bigint[])
                  AS place (message_id, queue, lane, turn)
            CROSS JOIN LATERAL (
                  SELECT ctid
                    FROM queue
                   WHERE country = place.queue
                     AND lane = place.lane
                     AND turn = place.turn
                     AND message_id = place.message_id
                     FOR UPDATE SKIP LOCKED
                  ) AS row))
 RETURNING message_id, lane, again, expires_at, avoid, avoid_until
)
INSERT INTO queue (country, lane, turn, message_id, again, expires_at, avoid, avoid_until)
SELECT target.queue, moved.lane,
       coalesce((SELECT turn FROM clocks
                  WHERE clocks.country = target.queue AND clocks.lane = moved.lane), 0),
       moved.message_id, moved.again, moved.expires_at, moved.avoid, moved.avoid_until
  FROM moved
  JOIN unnest(%(ids)s::uuid[], %(targets)s::text[]) AS target (message_id, queue) USING (message_id)
RETURNING 1
""")


async def move(connection: Connection, found: Mapping[UUID, QueuePlace], targets: Mapping[UUID, str]) -> int:
    """Move waiting messages, of which the caller has locked the rows, to other queues; return how many."""
    places = [found[message_id] for message_id in targets]
    rows = await SQL_MOVE.rows(
        connection,
        ids=list(targets),
        targets=list(targets.values()),
        **named_columns("queues lanes turns", places),
    )
    return len(rows)


# A batch's messages share the first 90 bits of its id, which is 26 places of its text and a bit.
SQL_LIST_UNCONFIRMED: Final = Statement("""
SELECT messages.id
  FROM batches
 CROSS JOIN LATERAL (
       SELECT id
         FROM messages
        WHERE batch_id = batches.id
          AND id BETWEEN (substr(batches.id::text, 1, 26) || '0000000000')::uuid
                     AND (substr(batches.id::text, 1, 26) || 'ffffffffff')::uuid
          AND id BETWEEN %(low)s AND %(high)s
          AND status = 'sent'
          AND sent_at < %(sent_before)s
        OFFSET 0
       ) AS messages
 WHERE batches.completed_at IS NULL
   AND batches.id BETWEEN %(low)s AND %(high)s
 LIMIT %(count_max)s
""")


async def list_unconfirmed(
    connection: Connection, low: UUID, high: UUID, sent_before: datetime, count_max: int
) -> Sequence[UUID]:
    """Return messages of open batches between these ids that were sent before a moment."""
    rows = await SQL_LIST_UNCONFIRMED.rows(
        connection, low=low, high=high, sent_before=sent_before, count_max=count_max
    )
    return [row["id"] for row in rows]
