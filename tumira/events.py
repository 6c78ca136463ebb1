"""Events: their types, and the log of each account's events, numbered without gaps."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from tumira.core.ids import AccountId, BatchId, EventId, MessageId, new_id
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Each with when it happens, in the order in which they are listed everywhere.
MEANINGS: Final[Mapping[str, str]] = {
    "message.sent": "A carrier took the message; its receipt is awaited.",
    "message.delivered": "The handset has the message.",
    "message.undelivered": "The carrier reports that the message did not arrive.",
    "message.expired": "The message's validity ended before it arrived.",
    "message.failed": "The message could not be handed to a carrier.",
    "message.unconfirmed": "A carrier may have the message, and no receipt came. A late receipt may still "
    "bring one of the other outcomes.",
    "message.refunded": "The message's cost was given back.",
    "batch.completed": "Every message of the batch is final.",
    "balance.low": "The balance fell below the account's threshold.",
    "webhook.test": "Somebody asked for a test of the endpoint.",
}
EVENT_TYPES: Final = tuple(MEANINGS)

WEBHOOK_TEST: Final = "webhook.test"

# A test goes to the endpoint that it is for, whatever that takes, so nobody chooses it.
SUBSCRIBABLE: Final = tuple(type_ for type_ in EVENT_TYPES if type_ != WEBHOOK_TEST)

_ALL: Final = frozenset({"", "all"})


def parse_types(text: str) -> Sequence[str] | None:
    """Read types parted by commas; None stands for all of them, also those that will be added.

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


def takes(types: Sequence[str] | None, type_: str) -> bool:
    """Tell whether an endpoint that chose these types is told of an event of this type."""
    return types is None or type_ in types or type_ == WEBHOOK_TEST


class Event(Struct, frozen=True, gc=False):
    """Something that an account is told. The columns of `events`."""

    id: EventId
    account_id: AccountId
    sequence: int
    type: str
    message_id: MessageId | None
    batch_id: BatchId | None
    at: datetime
    # What it tells, as JSON, where that stands in no message and no batch.
    data: str | None = None


# Sorted, so that two groups that tell the same accounts never wait for each other in a circle. The counters
# stay locked until the end of the transaction: events become visible in the order of their numbers.
# The bell is rung for whoever delivers; it is an update where it rings already, so that nobody takes it for
# heard before this is committed.
SQL_COUNT: Final = Statement("""
WITH counted AS (
    INSERT INTO event_counters (account_id, last)
    SELECT account_id, count
      FROM unnest(%(account_ids)s::uuid[], %(counts)s::bigint[]) AS told (account_id, count)
     ORDER BY account_id
        ON CONFLICT (account_id) DO UPDATE SET last = event_counters.last + excluded.last
    RETURNING account_id, last
), rung AS (
    INSERT INTO webhook_bells (endpoint_id)
    SELECT id
      FROM webhook_endpoints
     WHERE account_id = ANY(%(account_ids)s::uuid[])
       AND state = 'active'
     ORDER BY id
        ON CONFLICT (endpoint_id) DO UPDATE SET endpoint_id = excluded.endpoint_id
)
SELECT account_id, last FROM counted
""")


async def count(connection: Connection, counts: Mapping[AccountId, int]) -> Mapping[AccountId, int]:
    """Reserve so many numbers per account, and return the last number of each."""
    rows = await SQL_COUNT.rows(connection, account_ids=list(counts), counts=list(counts.values()))
    return {row["account_id"]: row["last"] for row in rows}


async def tell(connection: Connection, events: Sequence[Event]) -> None:
    """Write events, numbered by `count`."""
    await connection.copy_records_to_table(
        "events", records=map(structs.astuple, events), columns=Event.__struct_fields__
    )


class News(Struct, frozen=True, gc=False):
    """Something to tell an account, not numbered yet."""

    account_id: AccountId
    type: str
    message_id: MessageId | None = None
    batch_id: BatchId | None = None
    data: str | None = None


async def tell_events(connection: Connection, news: Sequence[News], at: datetime) -> None:
    """Write events with the next numbers of their accounts; only traffic is locked after their counters."""
    if not news:
        return
    counts: dict[AccountId, int] = {}
    for one in news:
        counts[one.account_id] = counts.get(one.account_id, 0) + 1
    last = await count(connection, counts)
    numbers = {account_id: last[account_id] - count for account_id, count in counts.items()}
    at_ms = int(at.timestamp() * 1000)
    numbered = []
    for one in news:
        numbers[one.account_id] += 1
        numbered.append(
            Event(
                EventId(new_id(at_ms)),
                one.account_id,
                numbers[one.account_id],
                one.type,
                one.message_id,
                one.batch_id,
                at,
                one.data,
            )
        )
    await tell(connection, numbered)


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

# A bigint has no larger one.
_LAST: Final = 2**63 - 1


async def list_after(
    connection: Connection, account_id: AccountId, after: int, until: int | None, count_max: int
) -> Sequence[Event]:
    """Return an account's events above one number, up to another if one is given, in order."""
    rows = await SQL_LIST_AFTER.rows(
        connection,
        account_id=account_id,
        after=after,
        until=_LAST if until is None else until,
        count_max=count_max,
    )
    return [Event(*row) for row in rows]


SQL_LIST_NUMBERED: Final = Statement(
    _EVENT + "WHERE account_id = %(account_id)s AND sequence = ANY(%(sequences)s::bigint[])"
)


async def list_numbered(
    connection: Connection, account_id: AccountId, sequences: Sequence[int]
) -> Sequence[Event]:
    """Return an account's events with these numbers, in no order."""
    rows = await SQL_LIST_NUMBERED.rows(connection, account_id=account_id, sequences=sequences)
    return [Event(*row) for row in rows]


SQL_FIND: Final = Statement(_EVENT + "WHERE id = %(event_id)s AND account_id = %(account_id)s")


async def find(connection: Connection, account_id: AccountId, event_id: EventId) -> Event | None:
    """Return an account's event; None for an unknown one and for somebody else's."""
    row = await SQL_FIND.row(connection, event_id=event_id, account_id=account_id)
    return None if row is None else Event(*row)


SQL_LAST: Final = Statement("SELECT last FROM event_counters WHERE account_id = %(account_id)s")


async def last(connection: Connection, account_id: AccountId) -> int:
    """Return the number of an account's latest event, 0 when there is none."""
    return int(await SQL_LAST.value(connection, account_id=account_id) or 0)
