"""What became of each try to deliver an event, what is tried again, and what is sent once more?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from tumira.core.ids import AccountId, EndpointId, EventId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.webhooks.health import Health


class Attempt(Struct, frozen=True, gc=False):
    """One try, and what was answered. The columns of `webhook_attempts`."""

    id: UUID
    endpoint_id: EndpointId
    event_id: EventId
    sequence: int
    type: str
    number: int
    at: datetime
    duration_ms: int
    status: int | None
    problem: str | None
    answer: str
    next_at: datetime | None


class Retry(Struct, frozen=True, gc=False):
    """An event that is tried again. The columns of `webhook_retries`."""

    endpoint_id: EndpointId
    sequence: int
    event_id: EventId
    tries: int
    first_at: datetime
    due_at: datetime


class Replay(Struct, frozen=True):
    """A stretch of the sequence that is sent once more: above `position`, up to `until`."""

    id: int
    position: int
    until: int
    from_at: datetime | None
    until_at: datetime | None


SQL_LIST_RETRIES: Final = Statement("""
SELECT endpoint_id, sequence, event_id, tries, first_at, due_at
  FROM webhook_retries
 WHERE endpoint_id = %(endpoint_id)s
   AND due_at <= %(now)s
 ORDER BY sequence, event_id
 LIMIT %(count_max)s
""")


async def list_retries(
    connection: Connection, endpoint_id: EndpointId, now: datetime, count_max: int
) -> Sequence[Retry]:
    """Return what is due again at an endpoint, the oldest first; tests, which have no number, before."""
    rows = await SQL_LIST_RETRIES.rows(connection, endpoint_id=endpoint_id, now=now, count_max=count_max)
    return [Retry(*row) for row in rows]


SQL_FIND_RETRY: Final = Statement("""
SELECT endpoint_id, sequence, event_id, tries, first_at, due_at
  FROM webhook_retries
 WHERE endpoint_id = %(endpoint_id)s
   AND due_at < 'infinity'
 ORDER BY sequence, event_id
 LIMIT 1
""")


async def list_oldest_retry(connection: Connection, endpoint_id: EndpointId) -> Sequence[Retry]:
    """Return the oldest event that waits to be tried again at an endpoint, due or not, if there is one."""
    return [Retry(*row) for row in await SQL_FIND_RETRY.rows(connection, endpoint_id=endpoint_id)]


SQL_LIST_REPLAYS: Final = Statement("""
SELECT id, position, until, from_at, until_at
  FROM webhook_replays
 WHERE endpoint_id = %(endpoint_id)s
 ORDER BY id
 LIMIT %(count_max)s
""")


async def list_replays(connection: Connection, endpoint_id: EndpointId, count_max: int) -> Sequence[Replay]:
    """Return the stretches that an endpoint wants once more, in the order in which they were asked for."""
    rows = await SQL_LIST_REPLAYS.rows(connection, endpoint_id=endpoint_id, count_max=count_max)
    return [Replay(*row) for row in rows]


SQL_ADD_REPLAY: Final = Statement("""
INSERT INTO webhook_replays (endpoint_id, position, until, from_at, until_at)
VALUES (%(endpoint_id)s, %(position)s, %(until)s, %(from_at)s, %(until_at)s)
""")


async def add_replay(
    connection: Connection,
    endpoint_id: EndpointId,
    position: int,
    until: int,
    from_at: datetime | None,
    until_at: datetime | None,
) -> None:
    """Have a stretch of the sequence sent once more."""
    await SQL_ADD_REPLAY.rows(
        connection,
        endpoint_id=endpoint_id,
        position=position,
        until=until,
        from_at=from_at,
        until_at=until_at,
    )


SQL_HOLD: Final = Statement("""
SELECT id FROM webhook_endpoints WHERE id = ANY(%(endpoint_ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE
""")


async def hold(connection: Connection, endpoint_ids: Sequence[EndpointId]) -> frozenset[EndpointId]:
    """Hold these endpoints until the end of the transaction; those that were removed are left out."""
    rows = await SQL_HOLD.rows(connection, endpoint_ids=endpoint_ids)
    return frozenset(EndpointId(row["id"]) for row in rows)


async def add_attempts(connection: Connection, attempts: Sequence[Attempt]) -> None:
    """Record tries."""
    await connection.copy_records_to_table(
        "webhook_attempts", records=map(structs.astuple, attempts), columns=Attempt.__struct_fields__
    )


SQL_ADD_ATTEMPT_ONCE: Final = Statement("""
INSERT INTO webhook_attempts (id, endpoint_id, event_id, sequence, type, number, at, duration_ms, status,
                              problem, answer, next_at)
VALUES (%(id)s, %(endpoint_id)s, %(event_id)s, %(sequence)s, %(type)s, %(number)s, %(at)s, %(duration_ms)s,
        %(status)s, %(problem)s, %(answer)s, %(next_at)s)
    ON CONFLICT (endpoint_id, id) DO NOTHING
""")


async def add_attempts_once(connection: Connection, attempts: Sequence[Attempt]) -> None:
    """Record tries that may have been recorded already."""
    await SQL_ADD_ATTEMPT_ONCE.each(connection, [structs.asdict(attempt) for attempt in attempts])


SQL_PUT_RETRIES: Final = Statement("""
INSERT INTO webhook_retries (endpoint_id, sequence, event_id, tries, first_at, due_at)
SELECT endpoint_id, sequence, event_id, tries, first_at, due_at
  FROM unnest(%(endpoint_ids)s::uuid[], %(sequences)s::bigint[], %(event_ids)s::uuid[],
              %(tries)s::smallint[], %(first_ats)s::timestamptz[], %(due_ats)s::timestamptz[])
       AS retry (endpoint_id, sequence, event_id, tries, first_at, due_at)
    ON CONFLICT (endpoint_id, sequence, event_id) DO UPDATE
   SET tries = greatest(webhook_retries.tries, excluded.tries), due_at = excluded.due_at
""")


async def put_retries(connection: Connection, retries: Sequence[Retry]) -> None:
    """Have events tried again; each is named once."""
    await SQL_PUT_RETRIES.rows(
        connection,
        endpoint_ids=[retry.endpoint_id for retry in retries],
        sequences=[retry.sequence for retry in retries],
        event_ids=[retry.event_id for retry in retries],
        tries=[retry.tries for retry in retries],
        first_ats=[retry.first_at for retry in retries],
        due_ats=[retry.due_at for retry in retries],
    )


SQL_DROP_RETRIES: Final = Statement("""
DELETE FROM webhook_retries
 USING unnest(%(endpoint_ids)s::uuid[], %(sequences)s::bigint[], %(event_ids)s::uuid[])
       AS done (endpoint_id, sequence, event_id)
 WHERE webhook_retries.endpoint_id = done.endpoint_id
   AND webhook_retries.sequence = done.sequence
   AND webhook_retries.event_id = done.event_id
   AND webhook_retries.endpoint_id = ANY(%(endpoint_ids)s::uuid[])
   AND webhook_retries.sequence = ANY(%(sequences)s::bigint[])
""")


async def drop_retries(connection: Connection, done: Sequence[tuple[EndpointId, int, EventId]]) -> None:
    """Forget events that are not tried again."""
    await SQL_DROP_RETRIES.rows(
        connection,
        endpoint_ids=[endpoint_id for endpoint_id, _, _ in done],
        sequences=[sequence for _, sequence, _ in done],
        event_ids=[event_id for _, _, event_id in done],
    )


SQL_HURRY_RETRIES: Final = Statement("""
UPDATE webhook_retries
   SET due_at = %(now)s
 WHERE endpoint_id = ANY(%(endpoint_ids)s::uuid[])
   AND due_at > %(now)s
""")


async def hurry_retries(connection: Connection, endpoint_ids: Sequence[EndpointId], now: datetime) -> None:
    """Have all that waits for these endpoints tried now."""
    await SQL_HURRY_RETRIES.rows(connection, endpoint_ids=endpoint_ids, now=now)


SQL_PARK_RETRIES: Final = Statement("""
UPDATE webhook_retries SET due_at = 'infinity' WHERE endpoint_id = ANY(%(endpoint_ids)s::uuid[])
""")


async def park_retries(connection: Connection, endpoint_ids: Sequence[EndpointId]) -> None:
    """Let what is to be tried again at these endpoints wait until they are resumed."""
    await SQL_PARK_RETRIES.rows(connection, endpoint_ids=endpoint_ids)


SQL_FORGET_WAITING: Final = Statement("""
WITH replays AS (
    DELETE FROM webhook_replays WHERE endpoint_id = %(endpoint_id)s
)
DELETE FROM webhook_retries WHERE endpoint_id = %(endpoint_id)s
""")


async def forget_waiting(connection: Connection, endpoint_id: EndpointId) -> None:
    """Forget what is to be tried again at an endpoint, and what it wanted once more."""
    await SQL_FORGET_WAITING.rows(connection, endpoint_id=endpoint_id)


class Progress(Struct, frozen=True):
    """How far an endpoint is, and how it is; `disabled_for` is why it shall get nothing more, if so."""

    endpoint_id: EndpointId
    # The endpoint as it was when this was learnt.
    changed_at: datetime
    position: int
    health: Health
    disabled_for: str | None


# What its owner changed meanwhile stays: a position that was moved forward, a pause, a new start. What was
# passed over since then may be what the endpoint takes by now, so it is looked at again.
SQL_ADVANCE: Final = Statement("""
WITH progress AS MATERIALIZED (
    SELECT learnt.*, e.changed_at = learnt.changed_at AS holds
      FROM unnest(%(endpoint_ids)s::uuid[], %(changed_ats)s::timestamptz[], %(positions)s::bigint[],
                  %(failures)s::integer[], %(failing_sinces)s::timestamptz[],
                  %(rest_untils)s::timestamptz[], %(warnings)s::smallint[],
                  %(succeeded_ats)s::timestamptz[], %(disabled_fors)s::text[])
           AS learnt (id, changed_at, position, failures, failing_since, rest_until, warnings, succeeded_at,
                      disabled_for)
      JOIN webhook_endpoints e ON e.id = learnt.id
     WHERE e.id = ANY(%(endpoint_ids)s::uuid[])
), held AS (
    UPDATE webhook_endpoints e
       SET failures = progress.failures,
           failing_since = progress.failing_since,
           rest_until = progress.rest_until,
           warnings = progress.warnings,
           succeeded_at = progress.succeeded_at,
           state = CASE WHEN progress.disabled_for IS NULL THEN e.state ELSE 'disabled' END,
           reason = progress.disabled_for,
           position = greatest(e.position, progress.position)
      FROM progress
     WHERE e.id = progress.id
       AND e.id = ANY(%(endpoint_ids)s::uuid[])
       AND e.worker = %(worker)s
       AND progress.holds
)
UPDATE webhook_endpoints e
   SET position = greatest(e.position, least(progress.position, e.changed_after))
  FROM progress
 WHERE e.id = progress.id
   AND e.id = ANY(%(endpoint_ids)s::uuid[])
   AND e.worker = %(worker)s
   AND NOT progress.holds
""")


async def advance(connection: Connection, worker: str, progress: Sequence[Progress]) -> None:
    """Write how far the endpoints are that are still ours."""
    await SQL_ADVANCE.rows(
        connection,
        worker=worker,
        endpoint_ids=[one.endpoint_id for one in progress],
        changed_ats=[one.changed_at for one in progress],
        positions=[one.position for one in progress],
        failures=[one.health.failures for one in progress],
        failing_sinces=[one.health.failing_since for one in progress],
        rest_untils=[one.health.rest_until for one in progress],
        warnings=[one.health.warnings for one in progress],
        succeeded_ats=[one.health.succeeded_at for one in progress],
        disabled_fors=[one.disabled_for for one in progress],
    )


SQL_ADVANCE_REPLAYS: Final = Statement("""
WITH moved AS (
    UPDATE webhook_replays r
       SET position = greatest(r.position, moved.position)
      FROM unnest(%(ids)s::bigint[], %(positions)s::bigint[]) AS moved (id, position)
     WHERE r.id = moved.id
       AND r.id = ANY(%(ids)s::bigint[])
)
DELETE FROM webhook_replays WHERE id = ANY(%(done)s::bigint[])
""")


async def advance_replays(connection: Connection, positions: Mapping[int, int], done: Sequence[int]) -> None:
    """Write how far stretches are that are sent once more, and forget those that are done."""
    await SQL_ADVANCE_REPLAYS.rows(
        connection, ids=list(positions), positions=list(positions.values()), done=done
    )


SQL_BOUNDS_BETWEEN: Final = Statement("""
SELECT min(sequence) AS first, max(sequence) AS last
  FROM events
 WHERE account_id = %(account_id)s
   AND sequence > 0
   AND at BETWEEN %(from_at)s AND %(until_at)s
""")


async def bounds_between(
    connection: Connection, account_id: AccountId, from_at: datetime, until_at: datetime
) -> tuple[int, int] | None:
    """Return the first and last number of an account's events of some time, None when there was none."""
    row = await SQL_BOUNDS_BETWEEN.row(connection, account_id=account_id, from_at=from_at, until_at=until_at)
    return None if row is None or row["first"] is None else (row["first"], row["last"])


@dataclass(frozen=True, slots=True)
class Waiting:
    """How much waits for an endpoint."""

    retries: int
    replays: int
    behind: int


SQL_COUNT_WAITING: Final = Statement("""
SELECT (SELECT count(*) FROM webhook_retries r WHERE r.endpoint_id = e.id) AS retries,
       (SELECT coalesce(sum(r.until - r.position), 0)
          FROM webhook_replays r
         WHERE r.endpoint_id = e.id) AS replays,
       coalesce((SELECT c.last FROM event_counters c WHERE c.account_id = e.account_id), 0) - e.position
           AS behind
  FROM webhook_endpoints e
 WHERE e.id = %(endpoint_id)s
""")


async def count_waiting(connection: Connection, endpoint_id: EndpointId) -> Waiting:
    """Return how much waits for an endpoint."""
    row = await SQL_COUNT_WAITING.row(connection, endpoint_id=endpoint_id)
    return Waiting(0, 0, 0) if row is None else Waiting(row["retries"], int(row["replays"]), row["behind"])


SQL_LIST_ATTEMPTS: Final = Statement("""
SELECT id, endpoint_id, event_id, sequence, type, number, at, duration_ms, status, problem, answer, next_at
  FROM webhook_attempts
 WHERE endpoint_id = %(endpoint_id)s
   AND (event_id = %(event_id)s OR %(event_id)s::uuid IS NULL)
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_attempts(
    connection: Connection, endpoint_id: EndpointId, event_id: EventId | None, count_max: int
) -> Sequence[Attempt]:
    """Return the latest tries at an endpoint, of one event or of all, newest first."""
    rows = await SQL_LIST_ATTEMPTS.rows(
        connection, endpoint_id=endpoint_id, event_id=event_id, count_max=count_max
    )
    return [Attempt(*row) for row in rows]
