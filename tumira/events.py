"""The types of events, and the log of each account's events, numbered without gaps."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from tumira.core.ids import AccountId, BatchId, EventId, MessageId, new_id
from tumira.core.translation import mark
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# When each type of event happens, in the order in which all lists show them.
MEANINGS: Final[Mapping[str, str]] = {
    "message.sent": mark("A carrier accepted the message. Its delivery receipt is awaited."),
    "message.delivered": mark("The message is on the phone."),
    "message.undelivered": mark("The carrier reports that the message was not delivered."),
    "message.expired": mark("The message could not be delivered in time."),
    "message.failed": mark("The message could not be handed to a carrier."),
    "message.unconfirmed": mark(
        "A carrier may have the message, but no receipt came. A late receipt can still change the status."
    ),
    "message.refunded": mark("The cost of the message was refunded."),
    "batch.completed": mark("Every message of the batch has its final status."),
    "balance.low": mark("The balance fell below the alert threshold of the account."),
    "webhook.test": mark("A test of the endpoint was requested."),
}
EVENT_TYPES: Final = tuple(MEANINGS)

WEBHOOK_TEST: Final = "webhook.test"

# A test goes to its endpoint whatever types that endpoint subscribes to, so it cannot be chosen.
SUBSCRIBABLE: Final = tuple(type_ for type_ in EVENT_TYPES if type_ != WEBHOOK_TEST)

_ALL: Final = frozenset({"", "all"})


def parse_types(text: str) -> Sequence[str] | None:
    """Read types separated by commas; None stands for all, types added later included.

    Raises ValueError with a sentence that names the choices.
    """
    if text.strip() in _ALL:
        return None
    named = {name.strip() for name in text.split(",")}
    unknown = sorted(named.difference(SUBSCRIBABLE))
    if unknown:
        raise ValueError(
            f"There is no event {unknown[0]!r} to choose: name some of {', '.join(SUBSCRIBABLE)}, or all."
        )
    return [type_ for type_ in SUBSCRIBABLE if type_ in named]


def is_subscribed(types: Sequence[str] | None, type_: str) -> bool:
    return types is None or type_ in types or type_ == WEBHOOK_TEST


class Event(Struct, frozen=True, gc=False):
    """The columns of `events`."""

    id: EventId
    account_id: AccountId
    sequence: int
    type: str
    message_id: MessageId | None
    batch_id: BatchId | None
    at: datetime
    # The payload as JSON, for an event that is not about a message or a batch.
    data: str | None = None


# Sorted, so that two transactions that write events of the same accounts cannot deadlock. The counters stay
# locked until the end of the transaction: events become visible in the order of their numbers.
# A wake-up row tells the workers that an endpoint has new events. An existing row is updated, which locks it:
# no worker can consume it before this transaction commits.
SQL_RESERVE_SEQUENCES: Final = Statement("""
WITH reserved AS (
    INSERT INTO event_counters (account_id, last)
    SELECT account_id, count
      FROM unnest(%(account_ids)s::uuid[], %(counts)s::bigint[]) AS wanted (account_id, count)
     ORDER BY account_id
        ON CONFLICT (account_id) DO UPDATE SET last = event_counters.last + excluded.last
    RETURNING account_id, last
), woken AS (
    INSERT INTO webhook_bells (endpoint_id)
    SELECT id
      FROM webhook_endpoints
     WHERE account_id = ANY(%(account_ids)s::uuid[])
       AND state = 'active'
     ORDER BY id
        ON CONFLICT (endpoint_id) DO UPDATE SET endpoint_id = excluded.endpoint_id
)
SELECT account_id, last FROM reserved
""")


async def reserve_sequences(
    connection: Connection, counts: Mapping[AccountId, int]
) -> Mapping[AccountId, int]:
    """Reserve the next numbers of each account, and return the last number of each."""
    rows = await SQL_RESERVE_SEQUENCES.rows(
        connection, account_ids=list(counts), counts=list(counts.values())
    )
    return {row["account_id"]: row["last"] for row in rows}


async def insert_events(connection: Connection, events: Sequence[Event]) -> None:
    """Write events, numbered by `reserve_sequences`."""
    await connection.copy_records_to_table(
        "events", records=map(structs.astuple, events), columns=Event.__struct_fields__
    )


class NewEvent(Struct, frozen=True, gc=False):
    """An event without its number, id and time."""

    account_id: AccountId
    type: str
    message_id: MessageId | None = None
    batch_id: BatchId | None = None
    data: str | None = None


async def record_events(connection: Connection, new: Sequence[NewEvent], at: datetime) -> None:
    """Write events with the next numbers of their accounts.

    Lock order: only rows of `traffic` are locked after the event counters.
    """
    if not new:
        return
    counts = Counter(event.account_id for event in new)
    lasts = await reserve_sequences(connection, counts)
    sequences = {
        account_id: iter(range(lasts[account_id] - count + 1, lasts[account_id] + 1))
        for account_id, count in counts.items()
    }
    at_ms = int(at.timestamp() * 1000)
    await insert_events(
        connection,
        [
            Event(
                EventId(new_id(at_ms)),
                event.account_id,
                next(sequences[event.account_id]),
                event.type,
                event.message_id,
                event.batch_id,
                at,
                event.data,
            )
            for event in new
        ],
    )


_EVENT: Final = """
SELECT id, account_id, sequence, type, message_id, batch_id, at, data FROM events
"""

SQL_LIST_AFTER: Final = Statement(
    _EVENT
    + """
 WHERE account_id = %(account_id)s
   AND sequence > %(after)s
   AND sequence <= %(until)s
 ORDER BY sequence
 LIMIT %(count_max)s
"""
)

# The largest bigint.
_SEQUENCE_MAX: Final = 2**63 - 1


async def list_after(
    connection: Connection, account_id: AccountId, after: int, until: int | None, count_max: int
) -> Sequence[Event]:
    """Return an account's events with numbers above `after` and up to `until`, in order."""
    rows = await SQL_LIST_AFTER.rows(
        connection,
        account_id=account_id,
        after=after,
        until=_SEQUENCE_MAX if until is None else until,
        count_max=count_max,
    )
    return [Event(*row) for row in rows]


SQL_LIST_BY_SEQUENCE: Final = Statement(
    _EVENT + "WHERE account_id = %(account_id)s AND sequence = ANY(%(sequences)s::bigint[])"
)


async def list_by_sequence(
    connection: Connection, account_id: AccountId, sequences: Sequence[int]
) -> Sequence[Event]:
    rows = await SQL_LIST_BY_SEQUENCE.rows(connection, account_id=account_id, sequences=sequences)
    return [Event(*row) for row in rows]


SQL_FIND: Final = Statement(_EVENT + "WHERE id = %(event_id)s AND account_id = %(account_id)s")


async def find(connection: Connection, account_id: AccountId, event_id: EventId) -> Event | None:
    """Return an account's event; None for an unknown id and for another account's event."""
    row = await SQL_FIND.row(connection, event_id=event_id, account_id=account_id)
    return None if row is None else Event(*row)


SQL_LAST_SEQUENCE: Final = Statement("SELECT last FROM event_counters WHERE account_id = %(account_id)s")


async def last_sequence(connection: Connection, account_id: AccountId) -> int:
    """Return the number of an account's latest event; 0 before the first."""
    return int(await SQL_LAST_SEQUENCE.value(connection, account_id=account_id) or 0)


SQL_FIND_RANGE: Final = Statement("""
SELECT min(sequence) AS first, max(sequence) AS last
  FROM events
 WHERE account_id = %(account_id)s
   AND sequence > 0
   AND at BETWEEN %(from_at)s AND %(until_at)s
""")


async def find_range(
    connection: Connection, account_id: AccountId, from_at: datetime, until_at: datetime
) -> tuple[int, int] | None:
    """Return the first and last number of an account's events between two times, None if there are none."""
    row = await SQL_FIND_RANGE.row(connection, account_id=account_id, from_at=from_at, until_at=until_at)
    return None if row is None or row["first"] is None else (row["first"], row["last"])
