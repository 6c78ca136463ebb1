"""Messages of any account as an operator finds them: status, carrier, times, refund and doubt."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId, BatchId, MessageId, made_at_ms
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending import recipients
from tumira.sending.search import LOWEST

# A search reads summaries of whole weeks. Where they are not in memory it may take long, and gives up.
SEARCH_S: Final = 5


@dataclass(frozen=True, slots=True)
class FoundMessage:
    id: MessageId
    batch_id: BatchId
    account_id: AccountId
    business: str
    recipient: str
    country: str
    network: str | None
    status: str
    failure_reason: str | None
    cost: Decimal
    refunded_at: datetime | None
    # Of the last submission that a carrier took.
    carrier: str | None
    submitted_at: datetime | None
    received_at: datetime | None
    # Whether a carrier may have it, and we wait for a sign of it.
    is_in_doubt: bool

    @property
    def accepted_at(self) -> datetime:
        return datetime.fromtimestamp(made_at_ms(self.id) / 1000, UTC)


# Each row is found by its key, in the weeks between the bounds.
SQL_LIST: Final = Statement("""
SELECT message.*, part.carrier, part.submitted_at, part.received_at, coalesce(retry.in_doubt, false)
  FROM unnest(%(ids)s::uuid[]) AS wanted (id)
 CROSS JOIN LATERAL (
       SELECT m.id, m.batch_id, m.account_id, a.business, m.recipient, m.country, m.network, m.status,
              m.failure_reason, m.cost, m.refunded_at
         FROM messages m
        CROSS JOIN LATERAL (SELECT business FROM accounts WHERE id = m.account_id OFFSET 0) AS a
        WHERE m.id = wanted.id
          AND m.id BETWEEN %(low)s AND %(high)s
       OFFSET 0
       ) AS message
  LEFT JOIN LATERAL (
       SELECT coalesce(c.name, p.carrier_id::text) AS carrier, p.submitted_at, p.received_at
         FROM (SELECT carrier_id, submitted_at, received_at
                 FROM parts
                WHERE message_id = wanted.id
                  AND message_id BETWEEN %(low)s AND %(high)s
                ORDER BY message_id DESC, number DESC, attempt DESC
                LIMIT 1) AS p
         LEFT JOIN carriers c ON c.id = p.carrier_id
       ) AS part ON true
  LEFT JOIN LATERAL (SELECT in_doubt FROM retries WHERE message_id = wanted.id OFFSET 0) AS retry ON true
""")


async def list_found(connection: Connection, ids: Sequence[MessageId]) -> Sequence[FoundMessage]:
    """Return these messages in their order, those of dropped weeks left out."""
    if not ids:
        return []
    rows = await SQL_LIST.rows(connection, ids=ids, low=min(ids), high=max(ids))
    found = {row["id"]: FoundMessage(*row) for row in rows}
    return [found[one] for one in ids if one in found]


SQL_FIND_OWNER: Final = Statement("SELECT account_id FROM batches WHERE id = %(batch_id)s")


async def find_owner(connection: Connection, batch_id: BatchId) -> AccountId | None:
    """Return the account of a batch, for operators; None for an unknown batch."""
    owner = await SQL_FIND_OWNER.value(connection, batch_id=batch_id)
    return None if owner is None else AccountId(owner)


async def list_to_numbers(
    connection: Connection, numbers: Sequence[str], before: UUID, count_max: int
) -> Sequence[FoundMessage]:
    """Return the newest messages to these numbers with ids below `before`, in a transaction of their own."""
    await connection.execute(f"SET LOCAL statement_timeout = '{SEARCH_S}s'")
    sent = [
        one.id
        for number in numbers
        for one in await recipients.list_sent(connection, number, (LOWEST, before), count_max)
    ]
    return await list_found(connection, sorted(sent, reverse=True)[:count_max])
