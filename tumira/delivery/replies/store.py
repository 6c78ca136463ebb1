"""Parts of replies that were delivered, and the messages that a reply may answer."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.carriers.url import GSM_7
from tumira.core.ids import ReplyId
from tumira.delivery.replies.parts import ReplyPart
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# A long reply whose other parts do not come is taken as it is.
GIVE_UP_MINUTES: Final = 10
# A carrier that lost our acknowledgement delivers again within this time.
KEPT_DAYS: Final = 3

# Two workers may get the same part at the same time, on two connections of its carrier.
SQL_LOCK: Final = Statement("SELECT pg_advisory_xact_lock(hashtext('tumira replies'), %(carrier_id)s)")

SQL_INSERT: Final = Statement("""
INSERT INTO reply_parts (carrier_id, digest, number, destination, data_coding, payload, reference, total,
                         part, received_at, sure_at)
SELECT %(carrier_id)s, new.digest, number, destination, data_coding, payload, reference, total, part,
       received_at, sure_at
  FROM unnest(%(digests)s::bytea[], %(numbers)s::text[], %(destinations)s::text[],
              %(data_codings)s::smallint[], %(payloads)s::bytea[], %(references)s::integer[],
              %(totals)s::smallint[], %(parts)s::smallint[], %(received_at)s::timestamptz[],
              %(sure_at)s::timestamptz[])
       AS new (digest, number, destination, data_coding, payload, reference, total, part, received_at,
               sure_at)
 WHERE NOT EXISTS (
       SELECT
         FROM reply_parts old
        WHERE old.carrier_id = %(carrier_id)s
          AND old.digest = new.digest
          AND (old.sure_at IS NULL OR old.sure_at > new.received_at))
RETURNING 1
""")


async def insert_parts(
    connection: Connection,
    carrier_id: int,
    parts: Sequence[tuple[ReplyPart, datetime, datetime | None]],
) -> int:
    """Store parts that are not stored yet, each with the time it came and `sure_at`; return how many."""
    await SQL_LOCK.rows(connection, carrier_id=carrier_id)
    new: dict[bytes, tuple[ReplyPart, datetime, datetime | None]] = {}
    for one in parts:
        new.setdefault(one[0].digest, one)
    texts = [part for part, _, _ in new.values()]
    rows = await SQL_INSERT.rows(
        connection,
        carrier_id=carrier_id,
        digests=list(new),
        numbers=[one.number for one in texts],
        destinations=[one.destination for one in texts],
        data_codings=[one.data_coding for one in texts],
        payloads=[one.payload for one in texts],
        references=[one.reference for one in texts],
        totals=[one.total for one in texts],
        parts=[one.part for one in texts],
        received_at=[received_at for _, received_at, _ in new.values()],
        sure_at=[sure_at for _, _, sure_at in new.values()],
    )
    return len(rows)


SQL_MARK_SURE: Final = Statement("""
UPDATE reply_parts
   SET sure_at = clock_timestamp()
 WHERE carrier_id = %(carrier_id)s
   AND digest = ANY(%(digests)s::bytea[])
   AND sure_at IS NULL
""")


async def mark_sure(connection: Connection, carrier_id: int, digests: Sequence[bytes]) -> None:
    """Note that the carrier has our acknowledgement of these parts: the same again is another text."""
    await SQL_MARK_SURE.rows(connection, carrier_id=carrier_id, digests=digests)


class WaitingReply(Struct, frozen=True):
    """A reply of which all parts came, or the rest did not come in time; `id` is that of a single part."""

    carrier_id: int
    number: str
    destination: str
    reference: int
    total: int
    id: int | None


SQL_LIST_READY: Final = Statement(f"""
SELECT carrier_id, number, destination, reference, total, CASE WHEN total = 1 THEN id END AS id
  FROM reply_parts
 WHERE reply_id IS NULL
 GROUP BY 1, 2, 3, 4, 5, 6
HAVING total = 1
    OR count(DISTINCT part) = total
    OR min(received_at) < statement_timestamp() - interval '{GIVE_UP_MINUTES} minutes'
 ORDER BY min(reply_parts.id)
 LIMIT %(count_max)s
""")  # noqa: S608 - the one value put in is a constant


async def list_ready(connection: Connection, count_max: int) -> Sequence[WaitingReply]:
    """Return the replies that can be joined, in the order in which they came."""
    return [WaitingReply(*row) for row in await SQL_LIST_READY.rows(connection, count_max=count_max)]


class StoredPart(Struct, frozen=True):
    id: int
    part: int
    data_coding: int | None
    payload: bytes
    received_at: datetime


# Parts that another worker is joining are left out.
SQL_LOCK_PARTS: Final = Statement("""
SELECT id, part, data_coding, payload, received_at
  FROM reply_parts
 WHERE reply_id IS NULL
   AND carrier_id = %(carrier_id)s
   AND number = %(number)s
   AND destination = %(destination)s
   AND reference = %(reference)s
   AND total = %(total)s
   AND id = coalesce(%(id)s, id)
 ORDER BY id
   FOR UPDATE SKIP LOCKED
""")


async def lock_parts(connection: Connection, waiting: WaitingReply) -> Mapping[int, StoredPart]:
    """Lock the parts of a reply that no other worker is joining, by their numbers; the first of each."""
    rows = await SQL_LOCK_PARTS.rows(
        connection,
        carrier_id=waiting.carrier_id,
        number=waiting.number,
        destination=waiting.destination,
        reference=waiting.reference,
        total=waiting.total,
        id=waiting.id,
    )
    found: dict[int, StoredPart] = {}
    for row in rows:
        found.setdefault(row["part"], StoredPart(*row))
    return found


SQL_MARK_JOINED: Final = Statement("""
UPDATE reply_parts SET reply_id = %(reply_id)s WHERE id = ANY(%(ids)s::bigint[])
""")


async def mark_joined(connection: Connection, ids: Sequence[int], reply_id: ReplyId) -> None:
    await SQL_MARK_JOINED.rows(connection, ids=ids, reply_id=reply_id)


SQL_DELETE_OLD: Final = Statement(f"""
DELETE FROM reply_parts
 WHERE id = ANY(ARRAY(
       SELECT id
         FROM reply_parts
        WHERE reply_id IS NOT NULL
          AND received_at < statement_timestamp() - interval '{KEPT_DAYS} days'
        ORDER BY received_at
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING 1
""")  # noqa: S608 - the one value put in is a constant


async def delete_old(connection: Connection, count_max: int) -> int:
    """Delete parts that no carrier delivers again, and return how many."""
    return len(await SQL_DELETE_OLD.rows(connection, count_max=count_max))


SQL_DELETE_OF_NUMBER: Final = Statement("""
DELETE FROM reply_parts
 WHERE number = ANY(%(spellings)s::text[])
   AND reply_id IS NOT NULL
   AND received_at < %(before)s
RETURNING 1
""")


async def delete_of_number(connection: Connection, spellings: Sequence[str], before: datetime) -> int:
    """Delete the joined parts from a number, however the carrier wrote it, and return how many."""
    return len(await SQL_DELETE_OF_NUMBER.rows(connection, spellings=spellings, before=before))


class ReplyCarrier(Struct, frozen=True):
    name: str
    # None for every country.
    countries: Sequence[str] | None
    alphabet: str


SQL_FIND_CARRIER: Final = Statement("""
SELECT name, countries, alphabet FROM carriers WHERE id = %(carrier_id)s
""")


async def get_carrier(connection: Connection, carrier_id: int) -> ReplyCarrier:
    row = await SQL_FIND_CARRIER.row(connection, carrier_id=carrier_id)
    return ReplyCarrier(str(carrier_id), None, GSM_7) if row is None else ReplyCarrier(*row)


SQL_LIST_CARRIERS: Final = Statement("SELECT id, name FROM carriers")


async def list_carrier_names(connection: Connection) -> Mapping[int, str]:
    return {row["id"]: row["name"] for row in await SQL_LIST_CARRIERS.rows(connection)}


# A message under the number or name that was answered comes first. Networks put numbers of their own in place
# of a sender, so the latest of the others is the next best.
SQL_FIND_ANSWERED: Final = Statement("""
SELECT message_id
  FROM parts
 WHERE message_id = ANY(%(ids)s::uuid[])
   AND message_id BETWEEN %(low)s AND %(high)s
   AND carrier_id = %(carrier_id)s
 ORDER BY coalesce(lower(ltrim(sender, '+')) = lower(ltrim(%(destination)s, '+')), false) DESC,
          submitted_at DESC, message_id DESC
 LIMIT 1
""")


async def find_answered(
    connection: Connection, carrier_id: int, destination: str, ids: Sequence[UUID]
) -> UUID | None:
    """Return the message that this carrier took last under this sender, or else the last that it took."""
    found: UUID | None = await SQL_FIND_ANSWERED.value(
        connection, carrier_id=carrier_id, destination=destination, ids=ids, low=min(ids), high=max(ids)
    )
    return found
