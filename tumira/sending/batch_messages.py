"""The messages of several batches at once, for lists and files."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from tumira.core.ids import AccountId, BatchId, MessageId, message_bounds
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending.batches import HIGHEST_ID, MESSAGES_MAX, Message
from tumira.sending.lifecycle import MESSAGE_STATUSES

# Of all batches of the largest file.
LISTED_MAX: Final = 10 * MESSAGES_MAX

# The bounds of each batch find its messages by the primary key, and the bounds of all find the weeks.
_OF_BATCHES: Final = """
  FROM unnest(%(batch_ids)s::uuid[], %(lows)s::uuid[], %(highs)s::uuid[]) AS batch (id, low, high)
 CROSS JOIN LATERAL (
       SELECT id, recipient, country, status, segments, cost, sent_at, delivered_at, failure_reason,
              refunded_at
         FROM messages
        WHERE id BETWEEN batch.low AND batch.high
          AND id BETWEEN %(low)s AND %(high)s
          AND batch_id = batch.id
          AND account_id = %(account_id)s
       OFFSET 0
       ) AS message
"""

SQL_COUNT_EACH: Final = Statement(f"""
SELECT batch.id, message.status, count(*) AS count
{_OF_BATCHES}
 GROUP BY batch.id, message.status
""")


async def count_each(
    connection: Connection, account_id: AccountId, batch_ids: Sequence[BatchId]
) -> Mapping[BatchId, Mapping[str, int]]:
    """Count the messages of each of an account's batches by status."""
    counts = {batch_id: dict.fromkeys(MESSAGE_STATUSES, 0) for batch_id in batch_ids}
    if batch_ids:
        rows = await SQL_COUNT_EACH.rows(connection, account_id=account_id, **_bounds(batch_ids))
        for batch_id, status, count in rows:
            counts[batch_id][status] = count
    return counts


SQL_LIST_OF_BATCHES: Final = Statement(f"""
SELECT message.*
{_OF_BATCHES}
 WHERE message.status = ANY(%(statuses)s::text[])
 ORDER BY message.id
 LIMIT %(count_max)s
""")


async def list_messages_of(
    connection: Connection,
    account_id: AccountId,
    batch_ids: Sequence[BatchId],
    count_max: int,
    *,
    statuses: Sequence[str] = tuple(MESSAGE_STATUSES),
    after: MessageId | None = None,
) -> tuple[Sequence[Message], bool]:
    """Return messages of some of an account's batches, the oldest first, and whether there are more."""
    assert len(batch_ids) * MESSAGES_MAX <= LISTED_MAX
    if not batch_ids:
        return [], False
    bounds = _bounds(batch_ids)
    if after is not None:
        bounds["low"] = max(bounds["low"], UUID(int=min(after.int + 1, HIGHEST_ID.int)))
    rows = await SQL_LIST_OF_BATCHES.rows(
        connection, account_id=account_id, **bounds, statuses=statuses, count_max=count_max + 1
    )
    return [Message(*row) for row in rows[:count_max]], len(rows) > count_max


def _bounds(batch_ids: Sequence[BatchId]) -> dict[str, Any]:
    bounds = [message_bounds(batch_id) for batch_id in batch_ids]
    return {
        "batch_ids": batch_ids,
        "lows": [low for low, _ in bounds],
        "highs": [high for _, high in bounds],
        "low": min(low for low, _ in bounds),
        "high": max(high for _, high in bounds),
    }


SQL_HAS_OWN_TEXTS: Final = Statement("""
SELECT EXISTS (SELECT
                 FROM messages
                WHERE id BETWEEN %(low)s AND %(high)s
                  AND batch_id = %(batch_id)s
                  AND account_id = %(account_id)s
                  AND body IS NOT NULL)
""")


async def has_own_texts(connection: Connection, account_id: AccountId, batch_id: BatchId) -> bool:
    """Tell whether messages of a batch have texts of their own, and that of the batch is only a pattern."""
    low, high = message_bounds(batch_id)
    return bool(
        await SQL_HAS_OWN_TEXTS.value(
            connection, low=low, high=high, batch_id=batch_id, account_id=account_id
        )
    )
