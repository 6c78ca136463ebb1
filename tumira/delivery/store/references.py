"""References under which messages were handed to carriers over HTTP, and when to ask about them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import MessageId
from tumira.postgres.columns import columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


class SubmissionReference(Struct, frozen=True):
    """How a provider knows a message: by our reference, or by a number that it has seen once."""

    reference: str
    sequence: int


class NewReference(Struct, frozen=True):
    message_id: MessageId
    reference: str
    attempt: int


# The time is that of the claim in the same transaction, by which a doubt is found again.
SQL_INSERT: Final = Statement("""
INSERT INTO submission_references (carrier_id, reference, message_id, attempt, claimed_at, poll_at)
SELECT %(carrier_id)s, given.reference, given.message_id, given.attempt, in_flight.claimed_at,
       in_flight.claimed_at + make_interval(secs => %(poll_s)s)
  FROM unnest(%(message_id)s::uuid[], %(reference)s::text[], %(attempt)s::smallint[])
       AS given (message_id, reference, attempt)
  JOIN in_flight USING (message_id)
RETURNING message_id, reference, sequence
""")


async def insert(
    connection: Connection, carrier_id: int, new: Sequence[NewReference], poll_s: float | None
) -> Mapping[UUID, SubmissionReference]:
    """Store references of messages that were just claimed; they are asked about after `poll_s`, if given."""
    rows = await SQL_INSERT.rows(
        connection, carrier_id=carrier_id, poll_s=poll_s, **columns(NewReference, new)
    )
    return {row[0]: SubmissionReference(row[1], row[2]) for row in rows}


SQL_NEXT_SEQUENCE: Final = Statement("SELECT nextval('submission_sequence')")


async def next_sequence(connection: Connection) -> int:
    """Return a number for a message that is stored nowhere."""
    return int(await SQL_NEXT_SEQUENCE.value(connection))


# Only one of which it is unknown whether the carrier took the message: any other is used up.
SQL_REUSE: Final = Statement("""
UPDATE submission_references AS kept
   SET attempt = given.attempt
  FROM unnest(%(ids)s::uuid[], %(attempts)s::smallint[]) AS given (message_id, attempt)
 WHERE kept.message_id = given.message_id
   AND kept.message_id = ANY(%(ids)s::uuid[])
   AND kept.carrier_id = %(carrier_id)s
   AND kept.claimed_at > clock_timestamp() - make_interval(secs => %(age_max_s)s)
   AND EXISTS (SELECT
                 FROM incidents
                WHERE incidents.message_id = kept.message_id
                  AND incidents.message_id BETWEEN %(low)s AND %(high)s
                  AND incidents.kind = 'doubt'
                  AND incidents.carrier_id = kept.carrier_id
                  AND incidents.claimed_at = kept.claimed_at)
RETURNING kept.message_id, kept.reference, kept.sequence, kept.claimed_at
""")


async def reuse(
    connection: Connection, carrier_id: int, attempts: Mapping[UUID, int], age_max_s: float
) -> Mapping[UUID, SubmissionReference]:
    """Return the references under which messages are in doubt at a carrier, for their next attempts."""
    ids = list(attempts)
    rows = await SQL_REUSE.rows(
        connection,
        carrier_id=carrier_id,
        ids=ids,
        attempts=list(attempts.values()),
        age_max_s=age_max_s,
        low=min(ids),
        high=max(ids),
    )
    # The first of several: a message that was in doubt under it may be there.
    return {
        row["message_id"]: SubmissionReference(row["reference"], row["sequence"])
        for row in sorted(rows, key=lambda row: row["claimed_at"], reverse=True)
    }


class ReferencedMessage(Struct, frozen=True):
    reference: str
    message_id: MessageId
    attempt: int
    claimed_at: datetime
    recipient: str


SQL_FIND: Final = Statement("""
SELECT kept.reference, kept.message_id, kept.attempt, kept.claimed_at, message.recipient
  FROM submission_references AS kept
 CROSS JOIN LATERAL (
       SELECT recipient
         FROM messages
        WHERE id = kept.message_id
        OFFSET 0
       ) AS message
 WHERE kept.carrier_id = %(carrier_id)s
   AND kept.reference = ANY(%(references)s::text[])
""")


async def find(
    connection: Connection, carrier_id: int, references: Collection[str]
) -> Mapping[str, ReferencedMessage]:
    rows = await SQL_FIND.rows(connection, carrier_id=carrier_id, references=sorted(set(references)))
    return {row[0]: ReferencedMessage(*row) for row in rows}


# To be called after the messages are locked, as all writers of this table do.
SQL_ASK_NOW: Final = Statement("""
UPDATE submission_references
   SET poll_at = clock_timestamp()
 WHERE carrier_id = %(carrier_id)s
   AND message_id = ANY(%(ids)s::uuid[])
""")


async def ask_now(connection: Connection, carrier_id: int, ids: Collection[UUID]) -> None:
    """Have the carrier asked about messages as soon as possible."""
    await SQL_ASK_NOW.rows(connection, carrier_id=carrier_id, ids=sorted(ids))


class DueQuestion(Struct, frozen=True):
    """A message that a carrier is asked about; `carrier_ref` is None until its answer is recorded."""

    reference: str
    message_id: MessageId
    polls: int
    claimed_at: datetime
    status: str | None
    carrier_ref: str | None


# Each is asked about again after a while if we die meanwhile.
SQL_CLAIM_DUE: Final = Statement("""
WITH due AS MATERIALIZED (
    SELECT carrier_id, reference
      FROM submission_references
     WHERE carrier_id = %(carrier_id)s
       AND poll_at <= statement_timestamp()
     ORDER BY poll_at
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE submission_references AS kept
       SET poll_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
      FROM due
     WHERE kept.carrier_id = due.carrier_id
       AND kept.reference = due.reference
 RETURNING kept.reference, kept.message_id, kept.polls, kept.claimed_at, kept.attempt
)
SELECT claimed.reference, claimed.message_id, claimed.polls, claimed.claimed_at,
       (SELECT status FROM messages WHERE id = claimed.message_id) AS status,
       (SELECT carrier_ref
          FROM parts
         WHERE message_id = claimed.message_id
           AND number = 0
           AND attempt = claimed.attempt
           AND carrier_id = %(carrier_id)s) AS carrier_ref
  FROM claimed
""")


async def claim_due(
    connection: Connection, carrier_id: int, count_max: int, lease_s: float
) -> Sequence[DueQuestion]:
    rows = await SQL_CLAIM_DUE.rows(connection, carrier_id=carrier_id, count_max=count_max, lease_s=lease_s)
    return [DueQuestion(*row) for row in rows]


# By the age of the claim; NULL ends it.
SQL_ASK_LATER: Final = Statement("""
UPDATE submission_references
   SET polls = polls + 1, poll_at = claimed_at + make_interval(secs => %(age_s)s)
 WHERE carrier_id = %(carrier_id)s
   AND reference = %(reference)s
""")


async def ask_later(connection: Connection, carrier_id: int, reference: str, age_s: float | None) -> None:
    """Have the carrier asked again when the claim is `age_s` old; never again for None."""
    await SQL_ASK_LATER.rows(connection, carrier_id=carrier_id, reference=reference, age_s=age_s)


class DueDoubt(Struct, frozen=True):
    message_id: MessageId
    reference: str | None


# The last reference under which the message is in doubt; NULL if the carrier had another protocol then.
SQL_LIST_DOUBTS: Final = Statement("""
SELECT retries.message_id,
       (SELECT kept.reference
          FROM submission_references AS kept
         WHERE kept.message_id = retries.message_id
           AND kept.carrier_id = %(carrier_id)s
           AND EXISTS (SELECT
                         FROM incidents
                        WHERE incidents.message_id = retries.message_id
                          AND incidents.kind = 'doubt'
                          AND incidents.carrier_id = kept.carrier_id
                          AND incidents.claimed_at = kept.claimed_at)
         ORDER BY kept.claimed_at DESC
         LIMIT 1) AS reference
  FROM retries
 WHERE retries.in_doubt
   AND retries.carrier_id = %(carrier_id)s
   AND retries.due_at <= statement_timestamp()
 ORDER BY retries.due_at
 LIMIT %(count_max)s
""")


async def list_doubts(connection: Connection, carrier_id: int, count_max: int) -> Sequence[DueDoubt]:
    rows = await SQL_LIST_DOUBTS.rows(connection, carrier_id=carrier_id, count_max=count_max)
    return [DueDoubt(*row) for row in rows]


SQL_POSTPONE_DOUBTS: Final = Statement("""
UPDATE retries
   SET due_at = clock_timestamp() + make_interval(secs => %(wait_s)s)
 WHERE in_doubt
   AND message_id = ANY(%(ids)s::uuid[])
""")


async def postpone_doubts(connection: Connection, ids: Sequence[UUID], wait_s: float) -> None:
    await SQL_POSTPONE_DOUBTS.rows(connection, ids=ids, wait_s=wait_s)


SQL_DELETE_OLD: Final = Statement("""
WITH deleted AS (
    DELETE FROM submission_references
     WHERE ctid = ANY(ARRAY(
           SELECT ctid
             FROM submission_references
            WHERE message_id < %(before)s
            ORDER BY message_id
            LIMIT %(count_max)s
              FOR UPDATE SKIP LOCKED))
 RETURNING 1
)
SELECT count(*) FROM deleted
""")


async def delete_old(connection: Connection, before: UUID, count_max: int) -> int:
    """Delete references of messages that no receipt can be about any more, and return how many."""
    return int(await SQL_DELETE_OLD.value(connection, before=before, count_max=count_max))
