"""The timeline of a message."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import asyncpg

from tumira.core import money
from tumira.core.ids import AccountId, BatchId, MessageId
from tumira.delivery.receipt_rules import without_quote
from tumira.delivery.store.queue import batch_high, batch_low
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending import lifecycle


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An event in the life of a message; `at` is None where the time was not recorded.

    While the message waits, `at` is the end of the wait. `attempt` counts earlier submissions of the segment;
    `state` and `error` are those of the receipt, `sender` is what a segment was sent under.
    """

    at: datetime | None
    event: str
    carrier: str | None = None
    part: int | None = None
    attempt: int | None = None
    state: str | None = None
    error: str | None = None
    detail: str | None = None
    sender: str | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    message_id: MessageId
    batch_id: BatchId
    account_id: AccountId
    recipient: str
    country: str
    # None for a message from before networks were stored.
    network: str | None
    status: str
    failure_reason: str | None
    segments: int
    cost: Decimal
    created_at: datetime
    # When it stops being worth delivering.
    expires_at: datetime
    reference: str | None
    entries: Sequence[TimelineEntry]

    @property
    def senders(self) -> Sequence[str]:
        """Return the senders that the message was submitted under, the first one first."""
        return list(dict.fromkeys(entry.sender for entry in self.entries if entry.sender is not None))


_ENTRY_FIELDS: Final = tuple(field.name for field in fields(TimelineEntry))
_MESSAGE_FIELDS: Final = tuple(
    field.name for field in fields(Timeline) if field.name not in {"message_id", "entries"}
)

# Of events at the same moment, the cause comes before its effect.
_ORDER: Final[Mapping[str, int]] = {
    event: place
    for place, event in enumerate(
        [
            "queued",
            "claimed",
            "submitted",
            "sent",
            "answered",
            "retry",
            "doubt",
            "resend",
            "hold",
            "receipt",
            *(name for name, status in lifecycle.MESSAGE_STATUSES.items() if status.final),
            "refunded",
            "late_receipt",
            "waiting",
        ]
    )
}

# One statement, so that it sees one moment. Each part names the message itself, which selects the week
# to look in. The queue is not searched: it has no way from a message to its place there, and a message that
# is `queued` and waits nowhere else is in it.
_READ: Final = """
WITH happened AS (
    SELECT claimed_at AS at, 'claimed' AS event, min(carrier_id) AS carrier_id, NULL::smallint AS part,
           NULL::smallint AS attempt, NULL AS state, NULL AS error, NULL AS detail,
           NULL AS sender
      FROM parts
     WHERE message_id = %(message_id)s
     GROUP BY claimed_at
     UNION ALL
    SELECT submitted_at, 'submitted', carrier_id, number, attempt, NULL, NULL, NULL, sender
      FROM parts
     WHERE message_id = %(message_id)s
     UNION ALL
    SELECT answered_at, 'answered', carrier_id, number, attempt, NULL, NULL, carrier_ref, NULL
      FROM parts
     WHERE message_id = %(message_id)s
     UNION ALL
    SELECT received_at, 'receipt', carrier_id, number, attempt, state, error, receipt, NULL
      FROM parts
     WHERE message_id = %(message_id)s
       AND state IS NOT NULL
     UNION ALL
    SELECT at, kind, carrier_id, part, NULL, NULL, NULL, detail, NULL
      FROM incidents
     WHERE message_id = %(message_id)s
     UNION ALL
    SELECT created_at, 'refunded', NULL, NULL, NULL, NULL, NULL, amount::text, NULL
      FROM transfers
     WHERE message_id = %(message_id)s
     UNION ALL
    SELECT claimed_at, 'claimed', carrier_id, NULL, NULL, NULL, NULL,
           'by ' || worker || ', connection ' || bind, NULL
      FROM in_flight
     WHERE message_id = %(message_id)s
     UNION ALL
    SELECT due_at, 'waiting', carrier_id, NULL, NULL, NULL, NULL,
           CASE WHEN in_doubt THEN 'for a receipt, in doubt' ELSE 'for another try' END, NULL
      FROM retries
     WHERE message_id = %(message_id)s
)
SELECT m.id, m.batch_id, m.account_id, m.recipient, m.country, m.network, m.status, m.failure_reason,
       m.segments, m.cost, b.created_at,
       coalesce(b.expires_at, b.created_at + interval '24 hours') AS expires_at, b.reference,
       m.sent_at, m.delivered_at, m.refunded_at,
       h.at, h.event, c.name AS carrier, h.part, h.attempt, h.state, h.error, h.detail, h.sender
  FROM messages m
  JOIN batches b ON b.id = m.batch_id AND b.id BETWEEN %(batch_low)s AND %(batch_high)s
  LEFT JOIN happened h ON true
  LEFT JOIN carriers c ON c.id = h.carrier_id
 WHERE m.id = %(message_id)s
"""

SQL_READ: Final = Statement(_READ)


async def read(connection: Connection, message_id: MessageId) -> Timeline | None:
    return _timeline(await SQL_READ.rows(connection, **_named(message_id)))


SQL_READ_FOR: Final = Statement(_READ + "   AND m.account_id = %(account_id)s")


async def read_for(connection: Connection, account_id: AccountId, message_id: MessageId) -> Timeline | None:
    return _timeline(await SQL_READ_FOR.rows(connection, **_named(message_id), account_id=account_id))


def _named(message_id: MessageId) -> Mapping[str, Any]:
    return {
        "message_id": message_id,
        "batch_low": batch_low(message_id),
        "batch_high": batch_high(message_id),
    }


def _timeline(rows: Sequence[asyncpg.Record]) -> Timeline | None:
    if not rows:
        return None
    message = rows[0]
    entries = [_entry(row) for row in rows if row["event"] is not None]
    entries.extend(_known_from_the_message(message, entries))
    entries.sort(key=_moment)
    known = {name: message[name] for name in _MESSAGE_FIELDS}
    return Timeline(message_id=message["id"], entries=entries, **known)


def _entry(row: asyncpg.Record) -> TimelineEntry:
    detail = row["detail"]
    if row["event"] in {"receipt", "late_receipt"} and detail is not None:
        detail = without_quote(detail)
    elif row["event"] == "refunded":
        detail = f"{money.write(Decimal(detail))} USD"
    return TimelineEntry(**{name: row[name] for name in _ENTRY_FIELDS} | {"detail": detail})


def _known_from_the_message(
    message: asyncpg.Record, entries: Sequence[TimelineEntry]
) -> Iterator[TimelineEntry]:
    yield TimelineEntry(message["created_at"], "queued")
    if message["sent_at"] is not None:
        yield TimelineEntry(message["sent_at"], "sent")
    status = message["status"]
    if lifecycle.is_final(status):
        yield TimelineEntry(_ended_at(message, entries), status, detail=message["failure_reason"])
    elif status == "queued" and not any(entry.event == "waiting" for entry in entries):
        yield TimelineEntry(None, "waiting", detail="for its turn")


def _ended_at(message: asyncpg.Record, entries: Sequence[TimelineEntry]) -> datetime | None:
    # Money goes back in the transaction that settles the message.
    written: datetime | None = message["delivered_at"] or message["refunded_at"]
    if written is None and message["status"] in {"undelivered", "expired"}:
        # It was settled by a receipt, or it waited until its validity ended, and then there is none.
        received = [entry.at for entry in entries if entry.event == "receipt" and entry.at is not None]
        return max(received, default=None)
    return written


def _moment(entry: TimelineEntry) -> tuple[bool, bool, float, int, int]:
    return (
        entry.event == "waiting",
        entry.at is None,
        0 if entry.at is None else entry.at.timestamp(),
        _ORDER[entry.event],
        entry.part or 0,
    )
