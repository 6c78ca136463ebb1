"""The events that wait for an endpoint: retries after a failure, and replays that were requested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec import Struct

from tumira.core.ids import EndpointId, EventId
from tumira.postgres.columns import columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


class EventRetry(Struct, frozen=True, gc=False):
    """An event to send again. The columns of `webhook_retries`."""

    endpoint_id: EndpointId
    sequence: int
    event_id: EventId
    # The attempts so far; the column is `tries`.
    attempts: int
    first_at: datetime
    due_at: datetime


class Replay(Struct, frozen=True):
    """Events to send again: those with numbers above `position` and up to `until`."""

    id: int
    position: int
    until: int
    from_at: datetime | None
    until_at: datetime | None


SQL_LIST_DUE_RETRIES: Final = Statement("""
SELECT endpoint_id, sequence, event_id, tries, first_at, due_at
  FROM webhook_retries
 WHERE endpoint_id = %(endpoint_id)s
   AND due_at <= %(now)s
 ORDER BY sequence, event_id
 LIMIT %(count_max)s
""")


async def list_due_retries(
    connection: Connection, endpoint_id: EndpointId, now: datetime, count_max: int
) -> Sequence[EventRetry]:
    """Return the retries due at an endpoint by then, oldest event first.

    Tests, with the number 0, come first. Suspended retries are due never.
    """
    rows = await SQL_LIST_DUE_RETRIES.rows(connection, endpoint_id=endpoint_id, now=now, count_max=count_max)
    return [EventRetry(*row) for row in rows]


SQL_LIST_REPLAYS: Final = Statement("""
SELECT id, position, until, from_at, until_at
  FROM webhook_replays
 WHERE endpoint_id = %(endpoint_id)s
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_replays(connection: Connection, endpoint_id: EndpointId, count_max: int) -> Sequence[Replay]:
    rows = await SQL_LIST_REPLAYS.rows(connection, endpoint_id=endpoint_id, count_max=count_max)
    return [Replay(*row) for row in rows]


SQL_INSERT_REPLAY: Final = Statement("""
INSERT INTO webhook_replays (endpoint_id, position, until, from_at, until_at)
VALUES (%(endpoint_id)s, %(position)s, %(until)s, %(from_at)s, %(until_at)s)
""")


async def insert_replay(
    connection: Connection,
    endpoint_id: EndpointId,
    position: int,
    until: int,
    between: tuple[datetime, datetime] | None,
) -> None:
    from_at, until_at = between or (None, None)
    await SQL_INSERT_REPLAY.rows(
        connection,
        endpoint_id=endpoint_id,
        position=position,
        until=until,
        from_at=from_at,
        until_at=until_at,
    )


SQL_UPSERT_RETRIES: Final = Statement("""
INSERT INTO webhook_retries (endpoint_id, sequence, event_id, tries, first_at, due_at)
SELECT endpoint_id, sequence, event_id, tries, first_at, due_at
  FROM unnest(%(endpoint_id)s::uuid[], %(sequence)s::bigint[], %(event_id)s::uuid[],
              %(attempts)s::smallint[], %(first_at)s::timestamptz[], %(due_at)s::timestamptz[])
       AS retry (endpoint_id, sequence, event_id, tries, first_at, due_at)
    ON CONFLICT (endpoint_id, sequence, event_id) DO UPDATE
   SET tries = greatest(webhook_retries.tries, excluded.tries), due_at = excluded.due_at
""")


async def upsert_retries(connection: Connection, retries: Sequence[EventRetry]) -> None:
    """Schedule retries; no event may be in the list twice."""
    await SQL_UPSERT_RETRIES.rows(connection, **columns(EventRetry, retries))


SQL_DELETE_RETRIES: Final = Statement("""
DELETE FROM webhook_retries
 USING unnest(%(endpoint_ids)s::uuid[], %(sequences)s::bigint[], %(event_ids)s::uuid[])
       AS done (endpoint_id, sequence, event_id)
 WHERE webhook_retries.endpoint_id = done.endpoint_id
   AND webhook_retries.sequence = done.sequence
   AND webhook_retries.event_id = done.event_id
   AND webhook_retries.endpoint_id = ANY(%(endpoint_ids)s::uuid[])
   AND webhook_retries.sequence = ANY(%(sequences)s::bigint[])
""")


async def delete_retries(connection: Connection, done: Sequence[tuple[EndpointId, int, EventId]]) -> None:
    endpoint_ids, sequences, event_ids = zip(*done, strict=True)
    await SQL_DELETE_RETRIES.rows(
        connection, endpoint_ids=endpoint_ids, sequences=sequences, event_ids=event_ids
    )


SQL_MAKE_RETRIES_DUE: Final = Statement("""
UPDATE webhook_retries
   SET due_at = %(now)s
 WHERE endpoint_id = ANY(%(endpoint_ids)s::uuid[])
   AND due_at > %(now)s
""")


async def make_retries_due(connection: Connection, endpoint_ids: Sequence[EndpointId], now: datetime) -> None:
    await SQL_MAKE_RETRIES_DUE.rows(connection, endpoint_ids=endpoint_ids, now=now)


SQL_SUSPEND_RETRIES: Final = Statement("""
UPDATE webhook_retries SET due_at = 'infinity' WHERE endpoint_id = ANY(%(endpoint_ids)s::uuid[])
""")


async def suspend_retries(connection: Connection, endpoint_ids: Sequence[EndpointId]) -> None:
    """Stop the retries of these endpoints until `make_retries_due`."""
    await SQL_SUSPEND_RETRIES.rows(connection, endpoint_ids=endpoint_ids)


SQL_DELETE_BACKLOG: Final = Statement("""
WITH replays AS (
    DELETE FROM webhook_replays WHERE endpoint_id = %(endpoint_id)s
)
DELETE FROM webhook_retries WHERE endpoint_id = %(endpoint_id)s
""")


async def delete_backlog(connection: Connection, endpoint_id: EndpointId) -> None:
    await SQL_DELETE_BACKLOG.rows(connection, endpoint_id=endpoint_id)


SQL_SAVE_REPLAY_POSITIONS: Final = Statement("""
WITH moved AS (
    UPDATE webhook_replays r
       SET position = greatest(r.position, moved.position)
      FROM unnest(%(ids)s::bigint[], %(positions)s::bigint[]) AS moved (id, position)
     WHERE r.id = moved.id
       AND r.id = ANY(%(ids)s::bigint[])
)
DELETE FROM webhook_replays WHERE id = ANY(%(done)s::bigint[])
""")


async def save_replay_positions(
    connection: Connection, positions: Mapping[int, int], done: Sequence[int]
) -> None:
    """Write how far replays are, and delete those that are done."""
    await SQL_SAVE_REPLAY_POSITIONS.rows(
        connection, ids=list(positions), positions=list(positions.values()), done=done
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of events that wait for an endpoint."""

    retries: int
    replays: int
    behind: int

    @property
    def total(self) -> int:
        return self.behind + self.retries + self.replays


# Suspended retries, which are due never, belong to endpoints that are not active.
SQL_FIND_NEXT_DUE: Final = Statement("""
SELECT min(due_at)
  FROM webhook_retries
 WHERE endpoint_id = %(endpoint_id)s
   AND (event_id = %(event_id)s OR %(event_id)s::uuid IS NULL)
   AND due_at < 'infinity'
""")


async def find_next_due(
    connection: Connection, endpoint_id: EndpointId, event_id: EventId | None = None
) -> datetime | None:
    """Return when the next retry of an endpoint, or of one event, is due; None if there is none."""
    due: datetime | None = await SQL_FIND_NEXT_DUE.value(
        connection, endpoint_id=endpoint_id, event_id=event_id
    )
    return due


SQL_COUNT_BACKLOG: Final = Statement("""
SELECT (SELECT count(*) FROM webhook_retries r WHERE r.endpoint_id = e.id) AS retries,
       (SELECT coalesce(sum(r.until - r.position), 0)
          FROM webhook_replays r
         WHERE r.endpoint_id = e.id) AS replays,
       coalesce((SELECT c.last FROM event_counters c WHERE c.account_id = e.account_id), 0) - e.position
           AS behind
  FROM webhook_endpoints e
 WHERE e.id = %(endpoint_id)s
""")


async def count_backlog(connection: Connection, endpoint_id: EndpointId) -> Backlog:
    row = await SQL_COUNT_BACKLOG.row(connection, endpoint_id=endpoint_id)
    return Backlog(0, 0, 0) if row is None else Backlog(row["retries"], int(row["replays"]), row["behind"])


SQL_COUNT_WAITING_TESTS: Final = Statement("""
SELECT count(*) FROM webhook_retries WHERE endpoint_id = %(endpoint_id)s AND sequence = 0
""")


async def count_waiting_tests(connection: Connection, endpoint_id: EndpointId) -> int:
    """Return how many tests wait to be sent to an endpoint; the caller has locked its row."""
    return int(await SQL_COUNT_WAITING_TESTS.value(connection, endpoint_id=endpoint_id))
