"""The types of events, and the log of each account's events, numbered without gaps."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, structs

from tumira.core.ids import AccountId, BatchId, EventId, MessageId, new_id
from tumira.core.translation import mark
from tumira.postgres.columns import column
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
    "reply.received": mark("A recipient sent a reply."),
    "recipient.opted_out": mark("A recipient replied STOP. Further messages to this number are rejected."),
    "recipient.opted_in": mark("A recipient who had opted out replied START."),
    "balance.low": mark("The balance fell below the alert threshold of the account."),
    "webhook.test": mark("A test of the endpoint was requested."),
}
EVENT_TYPES: Final = tuple(MEANINGS)

# Their `data` names a reply, from which the payload is written.
REPLY_EVENTS: Final = frozenset({"reply.received", "recipient.opted_out", "recipient.opted_in"})

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
_RESERVE: Final = """
reserved AS (
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
       -- After the counters, in the lock order too.
       AND (SELECT count(*) FROM reserved) > 0
     ORDER BY id
        ON CONFLICT (endpoint_id) DO UPDATE SET endpoint_id = excluded.endpoint_id
)"""

# An event refers to its account and type by index into short arrays, and says how many of its account follow.
_TELL: Final = """
told AS (
    INSERT INTO events (id, account_id, sequence, type, message_id, batch_id, at, data)
    SELECT event.id, reserved.account_id, reserved.last - event.following, (%(types)s::text[])[event.type],
           event.message_id, event.batch_id, %(at)s, event.data
      FROM unnest(%(event_ids)s::uuid[], %(event_accounts)s::integer[], %(following)s::bigint[],
                  %(event_types)s::integer[], %(event_message_ids)s::uuid[], %(event_batch_ids)s::uuid[],
                  %(event_data)s::text[])
           AS event (id, account, following, type, message_id, batch_id, data)
      JOIN reserved ON reserved.account_id = (%(account_ids)s::uuid[])[event.account]
)"""

RECORD: Final = f"{_RESERVE}, {_TELL}"
# The condition of another clause that locks something after the counters.
AFTER_COUNTERS: Final = "(SELECT count(*) FROM reserved) > 0"
SQL_RECORD: Final = Statement(f"WITH {RECORD} SELECT 0")


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
    if new:
        await SQL_RECORD.value(connection, **parameters(new, at))


def parameters(new: Sequence[NewEvent], at: datetime) -> dict[str, Any]:
    """Return the parameters of `RECORD` for some events."""
    counts: dict[AccountId, int] = {}
    following: list[int] = []
    for event in reversed(new):
        count = counts.get(event.account_id, 0)
        counts[event.account_id] = count + 1
        following.append(count)
    following.reverse()
    accounts = {account_id: place for place, account_id in enumerate(counts, start=1)}
    types = {type_: place for place, type_ in enumerate({event.type for event in new}, start=1)}
    at_ms = int(at.timestamp() * 1000)
    return {
        "account_ids": list(counts),
        "counts": list(counts.values()),
        "types": list(types),
        "at": at,
        "event_ids": [new_id(at_ms) for _ in new],
        "event_accounts": [accounts[event.account_id] for event in new],
        "following": following,
        "event_types": [types[event.type] for event in new],
        "event_message_ids": [event.message_id for event in new],
        "event_batch_ids": [event.batch_id for event in new],
        "event_data": column([event.data for event in new]),
    }


SQL_INSERT: Final = Statement("""
INSERT INTO events (id, account_id, sequence, type, message_id, batch_id, at, data)
VALUES (%(id)s, %(account_id)s, %(sequence)s, %(type)s, %(message_id)s, %(batch_id)s, %(at)s, %(data)s)
""")


async def insert_event(connection: Connection, event: Event) -> None:
    """Write an event without a number of its own: a test, which goes to one endpoint."""
    await SQL_INSERT.rows(connection, **structs.asdict(event))


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
