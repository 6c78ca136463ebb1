"""Accepted batches and messages, and the erasure of their texts."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.accounts.store import SYSTEM
from tumira.core.ids import AccountId, BatchId, MessageId, UploadId, first_id, message_bounds
from tumira.postgres.clock import read_now
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.destinations import RECIPIENTS_MAX
from tumira.sending.lifecycle import MESSAGE_STATUSES, TEXT_KEPT

MESSAGES_MAX: Final = RECIPIENTS_MAX
HIGHEST_ID: Final = UUID(int=(1 << 128) - 1)


class Batch(Struct, frozen=True):
    id: BatchId
    status: str
    channel: str
    reference: str | None
    recipients: int
    segments: int
    total_cost: Decimal
    refunded: Decimal
    created_at: datetime
    pending: int
    completed_at: datetime | None


# In the order of the fields.
BATCH_COLUMNS: Final = (
    "id, status, channel, reference, recipients, segments, total_cost, refunded, created_at, pending,"
    " completed_at"
)


class BatchDetails(Batch, frozen=True):
    """A batch with its text, which is None once erased."""

    body: str | None
    # When its messages stop being worth delivering.
    expires_at: datetime
    # Whether a text of it passed near the line, for operators.
    near_line: bool
    # The file that it came from, as long as that is kept, and whether its rows have their own texts.
    upload_id: UploadId | None
    file_name: str | None
    has_places: bool


class Message(Struct, frozen=True):
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


SQL_FIND: Final = Statement(f"""
SELECT {BATCH_COLUMNS}, body, coalesce(expires_at, created_at + interval '24 hours') AS expires_at,
       coalesce(near_line, false) AS near_line, file.upload_id, file.file_name,
       coalesce(file.has_places, false) AS has_places
  FROM (SELECT {BATCH_COLUMNS}, body, expires_at, near_line
          FROM batches
         WHERE id = %(batch_id)s
           AND account_id = %(account_id)s) AS batch
  LEFT JOIN LATERAL (
       SELECT u.id AS upload_id, u.file_name, c.bodies IS NOT NULL AS has_places
         FROM upload_chunks c
         JOIN uploads u ON u.id = c.upload_id
        WHERE c.batch_id = batch.id
       ) AS file ON true
""")  # noqa: S608 - only constants are put in


async def find(connection: Connection, account_id: AccountId, batch_id: BatchId) -> BatchDetails | None:
    """Return an account's batch; None for an unknown one and for another account's."""
    row = await SQL_FIND.row(connection, account_id=account_id, batch_id=batch_id)
    return None if row is None else BatchDetails(*row)


SQL_LIST_NAMED: Final = Statement(f"""
SELECT {BATCH_COLUMNS}
  FROM batches
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
   AND account_id = coalesce(%(account_id)s::uuid, account_id)
""")  # noqa: S608 - only constants are put in


async def list_named(
    connection: Connection, ids: Sequence[BatchId], account_id: AccountId | None = None
) -> Mapping[BatchId, Batch]:
    """Return these batches, those of dropped weeks left out.

    Of any account only for events, which name only batches of their own account.
    """
    if not ids:
        return {}
    rows = await SQL_LIST_NAMED.rows(connection, ids=ids, low=min(ids), high=max(ids), account_id=account_id)
    return {row["id"]: Batch(*row) for row in rows}


_MESSAGE: Final = """
SELECT id, recipient, country, status, segments, cost, sent_at, delivered_at, failure_reason, refunded_at
  FROM messages
"""

# The bounds limit the search to one week and to neighbouring entries of the primary key.
SQL_COUNT: Final = Statement("""
SELECT status, count(*) AS count
  FROM messages
 WHERE id BETWEEN %(low)s AND %(high)s
   AND batch_id = %(batch_id)s
   AND account_id = %(account_id)s
 GROUP BY status
""")


async def count_messages(
    connection: Connection, account_id: AccountId, batch_id: BatchId
) -> Mapping[str, int]:
    """Count the messages of an account's batch by status."""
    low, high = message_bounds(batch_id)
    rows = await SQL_COUNT.rows(connection, low=low, high=high, batch_id=batch_id, account_id=account_id)
    return dict.fromkeys(MESSAGE_STATUSES, 0) | {row["status"]: row["count"] for row in rows}


# A batch has a thousand messages at most, so skipping other statuses is cheap.
SQL_LIST_MESSAGES: Final = Statement(
    _MESSAGE
    + """
 WHERE id BETWEEN %(low)s AND %(high)s
   AND batch_id = %(batch_id)s
   AND account_id = %(account_id)s
   AND status = ANY(%(statuses)s::text[])
 ORDER BY id
 LIMIT %(count_max)s
"""
)


async def list_messages(
    connection: Connection,
    account_id: AccountId,
    batch_id: BatchId,
    count_max: int = MESSAGES_MAX,
    *,
    status: str | None = None,
    after: MessageId | None = None,
) -> tuple[Sequence[Message], bool]:
    """Return messages of an account's batch in the order of its recipients, and whether there are more."""
    assert 0 < count_max <= MESSAGES_MAX
    low, high = message_bounds(batch_id)
    if after is not None:
        low = max(low, UUID(int=min(after.int + 1, HIGHEST_ID.int)))
    rows = await SQL_LIST_MESSAGES.rows(
        connection,
        low=low,
        high=high,
        batch_id=batch_id,
        account_id=account_id,
        statuses=[*MESSAGE_STATUSES] if status is None else [status],
        count_max=count_max + 1,
    )
    return [Message(*row) for row in rows[:count_max]], len(rows) > count_max


SQL_FIND_MESSAGE: Final = Statement(_MESSAGE + "WHERE id = %(message_id)s AND account_id = %(account_id)s")


async def find_message(
    connection: Connection, account_id: AccountId, message_id: MessageId
) -> Message | None:
    """Return an account's message; None for an unknown one and for another account's."""
    row = await SQL_FIND_MESSAGE.row(connection, account_id=account_id, message_id=message_id)
    return None if row is None else Message(*row)


SQL_LIST_NAMED_MESSAGES: Final = Statement(
    _MESSAGE
    + """
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
   AND account_id = coalesce(%(account_id)s::uuid, account_id)
"""
)


async def list_named_messages(
    connection: Connection, ids: Sequence[MessageId], account_id: AccountId | None = None
) -> Mapping[MessageId, Message]:
    """Return these messages; of any account only for events, as above."""
    if not ids:
        return {}
    rows = await SQL_LIST_NAMED_MESSAGES.rows(
        connection, ids=ids, low=min(ids), high=max(ids), account_id=account_id
    )
    return {row["id"]: Message(*row) for row in rows}


# Only the messages of a text with places, which contains a brace, have their own texts. statement_timestamp()
# is constant, so the index finds old rows; else every text would be read.
SQL_LIST_OLD_TEXTS: Final = Statement("""
SELECT id, strpos(body, '{') > 0 AS has_places
  FROM batches
 WHERE completed_at < statement_timestamp() - make_interval(days => %(days)s)
   AND body IS NOT NULL
 ORDER BY completed_at
 LIMIT %(count_max)s
""")

# LockedAccount in their order, because a late receipt may be settling one of them.
SQL_ERASE_MESSAGE_TEXTS: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id
      FROM messages
     WHERE id BETWEEN %(low)s AND %(high)s
       AND batch_id = %(batch_id)s
       AND body IS NOT NULL
     ORDER BY id
       FOR NO KEY UPDATE
)
UPDATE messages
   SET body = NULL
 WHERE id = ANY(ARRAY(SELECT id FROM old))
   AND id BETWEEN %(low)s AND %(high)s
""")

# A locked batch is erased the next time.
SQL_ERASE_TEXTS: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id
      FROM batches
     WHERE id = ANY(%(ids)s::uuid[])
       AND id BETWEEN %(low)s AND %(high)s
     ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
), erased AS (
    UPDATE batches
       SET body = NULL
     WHERE id = ANY(ARRAY(SELECT id FROM old))
       AND id BETWEEN %(low)s AND %(high)s
)
SELECT count(*) FROM old
""")


async def erase_texts(connection: Connection, count_max: int) -> int:
    """Erase the texts of batches that were completed long ago, and return how many."""
    rows = await SQL_LIST_OLD_TEXTS.rows(connection, days=TEXT_KEPT.days, count_max=count_max)
    if not rows:
        return 0
    ids = sorted(row["id"] for row in rows)
    # Messages before batches: the lock order everywhere.
    for batch_id in sorted(row["id"] for row in rows if row["has_places"]):
        low, high = message_bounds(batch_id)
        await SQL_ERASE_MESSAGE_TEXTS.rows(connection, low=low, high=high, batch_id=batch_id)
    return int(await SQL_ERASE_TEXTS.value(connection, ids=ids, low=ids[0], high=ids[-1]))


# The text contains a code, which expires after ten minutes, delivered or not.
SQL_ERASE_CODES: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT id
      FROM batches
     WHERE account_id = %(account_id)s
       AND id > %(first_id)s
       AND completed_at < clock_timestamp() - %(lifetime)s::interval
       AND body IS NOT NULL
     ORDER BY id
     LIMIT %(count_max)s
       FOR NO KEY UPDATE SKIP LOCKED
), erased AS (
    UPDATE batches
       SET body = NULL
     WHERE id = ANY(ARRAY(SELECT id FROM old))
       AND id > %(first_id)s
)
SELECT count(*) FROM old
""")


async def erase_codes(connection: Connection, lifetime: timedelta, count_max: int) -> int:
    """Erase the texts of our own messages that ended longer than `lifetime` ago, and return how many."""
    now = await read_now(connection)
    return int(
        await SQL_ERASE_CODES.value(
            connection,
            account_id=SYSTEM,
            first_id=first_id(int((now - TEXT_KEPT).timestamp() * 1000)),
            lifetime=lifetime,
            count_max=count_max,
        )
    )


SQL_FIND_RESENT: Final = Statement("""
SELECT batch_id
  FROM resent_batches
 WHERE account_id = %(account_id)s
   AND key = %(key)s
""")


async def find_resent(connection: Connection, account_id: AccountId, key: str) -> BatchId | None:
    """Return the batch that was sent again with this Idempotency-Key, also when the key has expired."""
    batch_id: BatchId | None = await SQL_FIND_RESENT.value(connection, account_id=account_id, key=key)
    return batch_id


SQL_DELETE_OLD_RESENT: Final = Statement("""
DELETE FROM resent_batches
 WHERE (account_id, key) IN (
       SELECT account_id, key
         FROM resent_batches
        WHERE sent_at < statement_timestamp() - make_interval(days => %(days)s)
        ORDER BY sent_at
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED)
RETURNING 1
""")


async def delete_old_resent(connection: Connection, count_max: int) -> int:
    """Delete records of batches that nobody can send again any more, and return how many."""
    days = 2 * TEXT_KEPT.days
    return len(await SQL_DELETE_OLD_RESENT.rows(connection, days=days, count_max=count_max))
