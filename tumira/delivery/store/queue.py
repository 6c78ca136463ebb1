"""The queue of messages that wait for a carrier, and the claim that takes the next ones.

A waiting message is in exactly one of three tables: `queue` (for its turn), `in_flight` (claimed by a worker)
and `retries` (until a moment). The message's row is locked before it moves, except by the claim: it takes
queue rows that nobody has locked, and then only messages that are still `queued`.

`queue` holds several queues, named in its column `country`: one for each country, as `ZW`, and one for each
network with routes of its own, as `ZW-econet` (`pricing/networks.py`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from tumira.core.ids import AccountId, BatchId, MessageId, message_bounds
from tumira.delivery.lanes import Room
from tumira.postgres.columns import columns, named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# A queue and a lane.
LaneKey = tuple[str, int]


class ClaimRequest(Struct, frozen=True):
    """How many messages to claim from one queue.

    At most `small` from lane 0. From lane 1 at most `bulk_max` less what lane 0 had, but `bulk` in any case.
    Messages that avoid the carrier `avoided` are left to another one.
    """

    queue: str
    small: int
    bulk: int
    bulk_max: int
    small_floor: int
    bulk_floor: int
    avoided: int | None = None


class ClaimedMessage(Struct, frozen=True):
    id: MessageId
    batch_id: BatchId
    account_id: AccountId
    country: str
    lane: int
    turn: int
    again: bool
    recipient: str
    segments: int
    body: str
    # The carrier that it avoids, because it was in doubt there.
    avoid: int | None
    # The queue that it was claimed from.
    queue: str
    # None for a message from before networks were stored.
    network: str | None
    cost: Decimal
    created_at: datetime
    # When it stops being worth delivering.
    expires_at: datetime
    claimed_at: datetime
    # Its recipient has opted out of the account's messages.
    opted_out: bool = False
    # The sender name of the account that was granted and in use when it was claimed.
    sender_name: str | None = None


# Moves the picked rows, by their place: they are ours, so they cannot move. It locks messages
# and then batches by id, like all writers, because it finds them by walking through their primary keys: that
# holds on a connection with `IN_KEY_ORDER`. A message that was settled meanwhile is not `queued` any more; it
# is returned without its batch, and leaves flight below.
_START_PICKED: Final = """
), taken AS (
    DELETE FROM queue
     WHERE ctid = ANY(ARRAY(SELECT place FROM picked))
), claimed AS (
    INSERT INTO in_flight (message_id, worker, bind, carrier_id)
    SELECT message_id, %(worker)s, %(bind)s, %(carrier_id)s
      FROM picked
), started AS (
    UPDATE messages
       SET status = 'sending'
     WHERE id = ANY(ARRAY(SELECT message_id FROM picked))
       AND id BETWEEN (SELECT message_id FROM picked ORDER BY message_id LIMIT 1)
                  AND (SELECT message_id FROM picked ORDER BY message_id DESC LIMIT 1)
       AND status = 'queued'
 RETURNING id, batch_id, account_id, country, network, recipient, segments, cost, body
), touched AS MATERIALIZED (
    SELECT DISTINCT batch_id AS id FROM started
), begun AS (
    UPDATE batches
       SET status = 'processing'
     WHERE id = ANY(ARRAY(SELECT id FROM touched))
       AND id BETWEEN (SELECT id FROM touched ORDER BY id LIMIT 1)
                  AND (SELECT id FROM touched ORDER BY id DESC LIMIT 1)
       AND status = 'queued'
), texts AS (
    SELECT id, body, created_at, coalesce(expires_at, created_at + interval '24 hours') AS expires_at
      FROM batches
     WHERE id = ANY(ARRAY(SELECT id FROM touched))
       AND id BETWEEN (SELECT id FROM touched ORDER BY id LIMIT 1)
                  AND (SELECT id FROM touched ORDER BY id DESC LIMIT 1)
), owners AS MATERIALIZED (
    -- Asked once for all messages of an account to a network; most accounts have neither. It is read with the
    -- claim: a name that was revoked before is on no message that is claimed now. The network's own decision
    -- counts more than that of its country.
    SELECT account_id, country, network,
           EXISTS (SELECT FROM opt_outs WHERE account_id = owner.account_id OFFSET 0) AS has_opt_outs,
           (SELECT granted.name
              FROM sender_grants granted
             WHERE granted.account_id = owner.account_id
               AND granted.country = owner.country
               AND granted.network IN ('', owner.network)
               AND granted.in_use
               AND NOT EXISTS (
                   SELECT
                     FROM sender_grants decided
                    WHERE decided.name_id = granted.name_id
                      AND decided.country = owner.country
                      AND decided.network = owner.network
                      AND decided.state IN ('refused', 'revoked')
                   -- A look per name: as a join it would read all names.
                   OFFSET 0)
             ORDER BY granted.network DESC
             LIMIT 1) AS sender_name
      FROM (SELECT DISTINCT account_id, country, coalesce(network, '') AS network FROM started) AS owner
)
SELECT picked.message_id, started.batch_id, started.account_id, started.country, picked.lane, picked.turn,
       picked.again, started.recipient, started.segments, coalesce(started.body, texts.body, '') AS body,
       picked.avoid, picked.country AS queue, started.network, started.cost,
       date_part('epoch', texts.created_at) AS created_s, date_part('epoch', texts.expires_at) AS expires_s,
       (SELECT date_part('epoch', clock_timestamp())) AS claimed_s,
       opt_out.number IS NOT NULL AS opted_out, owners.sender_name
  FROM picked
  LEFT JOIN started ON started.id = picked.message_id
  LEFT JOIN texts ON texts.id = started.batch_id
  LEFT JOIN owners ON owners.account_id = started.account_id
                  AND owners.country = started.country
                  AND owners.network = coalesce(started.network, '')
  LEFT JOIN LATERAL (
       SELECT number
         FROM opt_outs
        WHERE owners.has_opt_outs
          AND account_id = started.account_id
          AND number = started.recipient
       OFFSET 0
       ) opt_out ON true
 ORDER BY picked.lane, picked.turn
"""

# In the order of the primary key, leaving out what another worker is taking. A floor above the turns that
# were claimed some seconds ago keeps the scan from walking over entries of rows that are long gone.
SQL_CLAIM: Final = Statement(
    """
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM unnest(%(queue)s::text[], %(small)s::integer[], %(bulk)s::integer[], %(bulk_max)s::integer[],
                  %(small_floor)s::bigint[], %(bulk_floor)s::bigint[], %(avoided)s::integer[])
           AS wanted (queue, small, bulk, bulk_max, small_floor, bulk_floor, avoided)
     -- The simulator takes nothing for a country that any other carrier in use serves, not even while that
     -- one is away. Routes know it too, but only since their last renewal.
     WHERE NOT EXISTS (
           SELECT
             FROM carriers own
            WHERE own.id = %(carrier_id)s
              AND own.simulator
              AND (own.removed_at IS NOT NULL
                   OR EXISTS (
                      SELECT
                        FROM carriers other
                       WHERE NOT other.simulator
                         AND other.removed_at IS NULL
                         AND (other.countries IS NULL OR left(wanted.queue, 2) = ANY(other.countries)))))
), small AS MATERIALIZED (
    SELECT first.*
      FROM wanted
     CROSS JOIN LATERAL (
           SELECT ctid AS place, country, lane, turn, message_id, again, avoid
             FROM queue
            WHERE country = wanted.queue
              AND lane = 0
              AND turn >= wanted.small_floor
              AND (avoid IS NULL
                   OR avoid IS DISTINCT FROM wanted.avoided
                   OR avoid_until < statement_timestamp())
            ORDER BY turn, message_id
            LIMIT wanted.small
              FOR UPDATE SKIP LOCKED
           ) AS first
     LIMIT %(small_total)s
), bulk AS MATERIALIZED (
    SELECT first.*
      FROM wanted
     CROSS JOIN LATERAL (
           SELECT ctid AS place, country, lane, turn, message_id, again, avoid
             FROM queue
            WHERE country = wanted.queue
              AND lane = 1
              AND turn >= wanted.bulk_floor
              AND (avoid IS NULL
                   OR avoid IS DISTINCT FROM wanted.avoided
                   OR avoid_until < statement_timestamp())
            ORDER BY turn, message_id
            LIMIT greatest(wanted.bulk, wanted.bulk_max
                           - (SELECT count(*) FROM small WHERE small.country = wanted.queue))
              FOR UPDATE SKIP LOCKED
           ) AS first
     LIMIT greatest(%(bulk_least)s, %(bulk_total)s - (SELECT count(*) FROM small))
), picked AS MATERIALIZED (
    SELECT * FROM small
     UNION ALL
    SELECT * FROM bulk
"""  # noqa: S608 - put together from constants
    + _START_PICKED
)

SQL_LET_GO: Final = Statement("DELETE FROM in_flight WHERE message_id = ANY(%(ids)s::uuid[])")


async def claim(
    connection: Connection,
    wanted: Sequence[ClaimRequest],
    total: Room,
    *,
    worker: str,
    bind: str,
    carrier_id: int,
) -> Sequence[ClaimedMessage] | None:
    """Claim the next messages, from all queues together at most `total`; None if nothing waits.

    The connection has the settings `KEY_LOOKUPS` and `IN_KEY_ORDER`. The caller commits before it submits any
    of them, and also when everything taken out of the queue turned out to be settled.
    """
    taken = await SQL_CLAIM.rows(
        connection,
        **columns(ClaimRequest, wanted),
        small_total=total.small,
        bulk_least=total.bulk,
        bulk_total=total.bulk_max,
        worker=worker,
        bind=bind,
        carrier_id=carrier_id,
    )
    return await _started(connection, taken) if taken else None


# There are few, and an index of their own has them.
SQL_CLAIM_AVOIDING: Final = Statement(
    """
WITH picked AS MATERIALIZED (
    SELECT ctid AS place, country, lane, turn, message_id, again, avoid
      FROM queue
     WHERE avoid IS NOT NULL
       AND avoid <> %(carrier_id)s
       AND country = ANY(%(queues)s::text[])
       -- The simulator takes nothing from real carriers, also while routes are a second old.
       AND NOT EXISTS (SELECT FROM carriers WHERE id = %(carrier_id)s AND simulator)
     ORDER BY lane, turn, message_id
     LIMIT %(total)s
       FOR UPDATE SKIP LOCKED
"""  # noqa: S608 - put together from constants
    + _START_PICKED
)


async def claim_avoiding(
    connection: Connection, queues: Sequence[str], total: int, *, worker: str, bind: str, carrier_id: int
) -> Sequence[ClaimedMessage] | None:
    """Claim messages that avoid another carrier, at most `total`; None if there are none. Commit as above."""
    taken = await SQL_CLAIM_AVOIDING.rows(
        connection, queues=queues, total=total, worker=worker, bind=bind, carrier_id=carrier_id
    )
    return await _started(connection, taken) if taken else None


SQL_AVOIDED: Final = Statement("SELECT DISTINCT country, avoid FROM queue WHERE avoid IS NOT NULL")


async def list_avoided(connection: Connection) -> Collection[tuple[str, int]]:
    """Return the queues in which messages wait that avoid a carrier, each with that carrier."""
    return {(row["country"], row["avoid"]) for row in await SQL_AVOIDED.rows(connection)}


async def _started(connection: Connection, taken: Sequence[asyncpg.Record]) -> Sequence[ClaimedMessage]:
    settled = [row[0] for row in taken if row[1] is None]
    if settled:
        await SQL_LET_GO.rows(connection, ids=settled)
    return [ClaimedMessage(*_with_times(row)) for row in taken if row[1] is not None]


def _with_times(row: asyncpg.Record) -> tuple[Any, ...]:
    return (*row[:14], _time(row[14]), _time(row[15]), _time(row[16]), *row[17:])


# Messages that were accepted or claimed together share their times, which take long to read. As seconds they
# are exact to the microsecond.
@lru_cache(maxsize=4096)
def _time(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)


SQL_LIST_CLAIMED: Final = Statement("""
SELECT message_id
  FROM in_flight
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND worker = %(worker)s
""")


async def list_claimed(connection: Connection, ids: Sequence[UUID], worker: str) -> frozenset[UUID]:
    return frozenset(row[0] for row in await SQL_LIST_CLAIMED.rows(connection, ids=ids, worker=worker))


def batch_low(message_id: UUID) -> UUID:
    return message_bounds(BatchId(message_id))[0]


def batch_high(message_id: UUID) -> UUID:
    return message_bounds(BatchId(message_id))[1]


class PastAttempts(Struct, frozen=True):
    """Earlier attempts to submit a message: the segments taken, and how often it was retried and resent."""

    taken: frozenset[int]
    reference: int | None
    retries: int
    resends: int


SQL_PARTS_BEFORE: Final = Statement("""
SELECT message_id, number, reference
  FROM parts
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND message_id BETWEEN %(low)s AND %(high)s
""")

SQL_INCIDENTS_BEFORE: Final = Statement("""
SELECT message_id, kind
  FROM incidents
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND message_id BETWEEN %(low)s AND %(high)s
""")


async def read_past_attempts(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, PastAttempts]:
    bounds = {"ids": ids, "low": min(ids), "high": max(ids)}
    parts = await SQL_PARTS_BEFORE.rows(connection, **bounds)
    incidents = await SQL_INCIDENTS_BEFORE.rows(connection, **bounds)
    taken: dict[UUID, dict[int, int | None]] = {identifier: {} for identifier in ids}
    for message_id, number, reference in parts:
        taken[message_id][number] = reference
    kinds: dict[UUID, Counter[str]] = {identifier: Counter() for identifier in ids}
    for message_id, kind in incidents:
        kinds[message_id][kind] += 1
    return {
        identifier: PastAttempts(
            taken=frozenset(taken[identifier]),
            reference=next((one for one in taken[identifier].values() if one is not None), None),
            retries=kinds[identifier]["retry"],
            resends=kinds[identifier]["resend"],
        )
        for identifier in ids
    }


# Never lowered, and never by much behind: a flow that was idle enters here.
SQL_PUBLISH: Final = Statement("""
INSERT INTO clocks (country, lane, turn)
SELECT queue, lane, turn
  FROM unnest(%(queues)s::text[], %(lanes)s::smallint[], %(turns)s::bigint[])
       AS clock (queue, lane, turn)
 ORDER BY queue, lane
    ON CONFLICT (country, lane) DO UPDATE SET turn = greatest(clocks.turn, excluded.turn)
RETURNING country, lane, turn
""")


async def publish_clocks(connection: Connection, turns: Mapping[LaneKey, int]) -> Mapping[LaneKey, int]:
    rows = await SQL_PUBLISH.rows(
        connection, **named_columns("queues lanes", turns), turns=list(turns.values())
    )
    return {(queue, lane): turn for queue, lane, turn in rows}


SQL_WAITING: Final = Statement("""
SELECT name
  FROM unnest(%(queues)s::text[]) AS name
 WHERE EXISTS (SELECT FROM queue WHERE queue.country = name)
""")


async def list_waiting_queues(connection: Connection, queues: Sequence[str]) -> Sequence[str]:
    """Return those of these queues that are not empty."""
    return [row["name"] for row in await SQL_WAITING.rows(connection, queues=queues)]
