"""What are customers told, and in which order? Each account's events are numbered without holes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from tumira.ids import AccountId, BatchId, EventId, MessageId
from tumira.store.sql import Connection, Statement


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
