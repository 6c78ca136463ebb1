"""Old weeks with batches, messages and events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from tumira.core.ids import BatchId, message_ids, new_id
from tumira.postgres import partitions
from tumira.postgres.connection import Connection

COST: Final = Decimal("0.0400")
MESSAGE_TABLES: Final = ("batches", "messages", "parts", "incidents")


@dataclass(frozen=True, slots=True)
class OldBatch:
    """A batch of two messages: the first was delivered, the second was not, and was paid back."""

    id: BatchId
    messages: Sequence[UUID]
    made_at: datetime


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


async def make_weeks(
    connection: Connection, weeks_ago: int, tables: Sequence[str] = tuple(partitions.TABLES)
) -> None:
    """Make the weeks of these tables from so long ago until now that are missing."""
    monday = await partitions.this_week(connection)
    for table in tables:
        fillfactor = partitions.TABLES[table]
        present = set(await partitions.names(connection, table))
        for weeks in range(1, weeks_ago + 1):
            start = monday - timedelta(weeks=weeks)
            name = partitions._name(table, start)
            if name not in present:
                await partitions._create(connection, table, name, start, fillfactor)


async def name_of(connection: Connection, table: str, weeks_ago: int) -> str:
    monday = await partitions.this_week(connection)
    return partitions._name(table, monday - timedelta(weeks=weeks_ago))


async def add_batch(
    connection: Connection, account_id: UUID, weeks_ago: int, into_week: timedelta = timedelta(days=2)
) -> OldBatch:
    at = await partitions.this_week(connection) - timedelta(weeks=weeks_ago) + into_week
    batch_id = BatchId(new_id(_ms(at)))
    first, second = message_ids(batch_id, 2)
    async with connection.transaction():
        await connection.execute(
            "INSERT INTO batches (id, account_id, created_at, completed_at, recipients, pending, segments,"
            " total_cost, refunded, status, channel)"
            " VALUES ($1, $2, $3, $3, 2, 0, 1, $4, $5, 'completed', 'sms')",
            batch_id,
            account_id,
            at,
            2 * COST,
            COST,
        )
        await connection.execute(
            "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost, status,"
            " refunded_at)"
            " VALUES ($1, $3, $4, 1, 'ZW', '+263•001', $5, 'delivered', NULL),"
            " ($2, $3, $4, 1, 'ZW', '+263•002', $5, 'undelivered', $6)",
            first,
            second,
            batch_id,
            account_id,
            COST,
            at,
        )
        await connection.execute(
            "INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key,"
            " claimed_at, submitted_at, answered_at)"
            " SELECT id, 1, 0, 1, '1', '1', $2, $2, $2 FROM unnest($1::uuid[]) AS id",
            [first, second],
            at,
        )
        await connection.execute("INSERT INTO incidents (message_id, kind) VALUES ($1, 'retry')", second)
        await connection.execute(
            "INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)"
            " VALUES ($1, 'customer', 'revenue', 2 * $2::numeric, $3, NULL),"
            " ($1, 'revenue', 'customer', $2, $3, $4)",
            account_id,
            COST,
            batch_id,
            second,
        )
        await connection.execute("UPDATE accounts SET balance = balance - $2 WHERE id = $1", account_id, COST)
        await tell(
            connection,
            account_id,
            at,
            [
                ("message.delivered", first, batch_id),
                ("message.undelivered", second, batch_id),
                ("message.refunded", second, batch_id),
                ("batch.completed", None, batch_id),
            ],
        )
    return OldBatch(batch_id, [first, second], at)


async def tell(
    connection: Connection,
    account_id: UUID,
    at: datetime,
    told: Sequence[tuple[str, UUID | None, UUID | None]],
) -> None:
    last = await connection.fetchval(
        "INSERT INTO event_counters VALUES ($1, $2) ON CONFLICT (account_id)"
        " DO UPDATE SET last = event_counters.last + excluded.last RETURNING last",
        account_id,
        len(told),
    )
    await connection.executemany(
        "INSERT INTO events (id, account_id, sequence, type, message_id, batch_id, at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7)",
        [
            (new_id(_ms(at)), account_id, sequence, kind, message_id, batch_id, at)
            for sequence, (kind, message_id, batch_id) in enumerate(told, start=last - len(told) + 1)
        ],
    )
