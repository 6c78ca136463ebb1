"""The workers that are alive, and the connections to carriers that each holds by a lease.

All times are the database's, so that workers whose clocks differ agree on when a lease has ended.
Statements that write several binds lock them by key, because two workers may want the same ones.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from tumira import VERSION
from tumira.postgres import migrate
from tumira.postgres.columns import columns, named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.pool import SESSION_NAME_MAX
from tumira.postgres.statement import Statement

PROBLEM_MAX: Final = 200


DEAD_MAX: Final = 100


class BindState(StrEnum):
    CONNECTING = "connecting"
    BOUND = "bound"
    THROTTLED = "throttled"
    FAILING = "failing"
    DOWN = "down"


class BindReport(Struct, frozen=True):
    """The state of a bind as its worker reports it; `pace` is None for no limit.

    `silent`: the session is bound and submits are not answered.
    """

    carrier_id: int
    number: int
    worker: str
    state: BindState
    problem: str | None
    outstanding: int
    pace: int | None
    silent: bool = False


class BindHealth(BindReport, frozen=True, kw_only=True):
    """The state of one bind; after its lease has ended, as its last holder reported it."""

    since: datetime
    lease_valid: bool


SQL_LIST_BINDS: Final = Statement("""
SELECT carrier_id, number, worker, state, problem, outstanding, pace, silent, since,
       leased_until > clock_timestamp() AS lease_valid
  FROM binds
 ORDER BY carrier_id, number
""")


async def list_binds(connection: Connection) -> Sequence[BindHealth]:
    rows = await SQL_LIST_BINDS.rows(connection)
    return [BindHealth(**{**row, "state": BindState(row["state"])}) for row in rows]


# Counts the others, because the row just written is not visible here.
SQL_HEARTBEAT: Final = Statement("""
WITH seen AS (
    INSERT INTO workers (id, version, last_step)
    VALUES (%(worker)s, %(version)s, %(last_step)s)
        ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp()
)
SELECT 1 + count(*)
  FROM workers
 WHERE id <> %(worker)s
   AND seen_at > clock_timestamp() - make_interval(secs => %(lease_s)s)
""")


async def heartbeat(connection: Connection, worker: str, lease_s: float) -> int:
    count = await SQL_HEARTBEAT.value(
        connection, worker=worker, lease_s=lease_s, version=VERSION, last_step=migrate.last_step()
    )
    return int(count)


# A row in the way is locked and looked at again as it then is, so of two workers only one finds it free.
SQL_LEASE: Final = Statement("""
INSERT INTO binds (carrier_id, number, worker, leased_until, state)
SELECT %(carrier_id)s, wanted.number, %(worker)s,
       clock_timestamp() + make_interval(secs => %(lease_s)s), 'connecting'
  FROM (SELECT DISTINCT number FROM unnest(%(numbers)s::smallint[]) AS number ORDER BY number) wanted
    ON CONFLICT (carrier_id, number) DO UPDATE
   SET worker = excluded.worker,
       leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s),
       state = CASE WHEN binds.worker = excluded.worker THEN binds.state ELSE 'connecting' END,
       since = CASE WHEN binds.worker = excluded.worker THEN binds.since ELSE clock_timestamp() END,
       problem = CASE WHEN binds.worker = excluded.worker THEN binds.problem END,
       outstanding = CASE WHEN binds.worker = excluded.worker THEN binds.outstanding ELSE 0 END,
       pace = CASE WHEN binds.worker = excluded.worker THEN binds.pace END,
       silent = binds.worker = excluded.worker AND binds.silent
 WHERE binds.worker = excluded.worker
    OR binds.leased_until <= clock_timestamp()
RETURNING number
""")


async def lease(
    connection: Connection, carrier_id: int, worker: str, numbers_wanted: Sequence[int], lease_s: float
) -> Sequence[int]:
    rows = await SQL_LEASE.rows(
        connection, carrier_id=carrier_id, worker=worker, numbers=numbers_wanted, lease_s=lease_s
    )
    return sorted(row["number"] for row in rows)


SQL_REPORT: Final = Statement("""
WITH reported AS (
    SELECT *
      FROM unnest(%(carrier_id)s::integer[], %(number)s::smallint[], %(worker)s::text[],
                  %(state)s::text[], %(problem)s::text[], %(outstanding)s::integer[], %(pace)s::integer[],
                  %(silent)s::boolean[])
        AS reported (carrier_id, number, worker, state, problem, outstanding, pace, silent)
), held AS (
    SELECT binds.carrier_id, binds.number
      FROM binds
      JOIN reported USING (carrier_id, number, worker)
     ORDER BY binds.carrier_id, binds.number
       FOR NO KEY UPDATE OF binds
)
UPDATE binds
   SET leased_until = clock_timestamp() + make_interval(secs => %(lease_s)s),
       state = reported.state,
       since = CASE WHEN binds.state = reported.state THEN binds.since ELSE clock_timestamp() END,
       problem = left(reported.problem, %(problem_max)s),
       outstanding = reported.outstanding,
       pace = reported.pace,
       silent = reported.silent
  FROM reported
  JOIN held USING (carrier_id, number)
 WHERE binds.carrier_id = reported.carrier_id
   AND binds.number = reported.number
   AND binds.worker = reported.worker
RETURNING binds.carrier_id, binds.number
""")


async def report(
    connection: Connection, reports: Sequence[BindReport], lease_s: float
) -> set[tuple[int, int]]:
    """Record the state of binds, renew their leases, and return (carrier, number) of those still held."""
    rows = await SQL_REPORT.rows(
        connection, **columns(BindReport, reports), lease_s=lease_s, problem_max=PROBLEM_MAX
    )
    return {(row["carrier_id"], row["number"]) for row in rows}


SQL_RELEASE: Final = Statement("""
WITH held AS (
    SELECT binds.carrier_id, binds.number
      FROM binds
      JOIN unnest(%(carrier_ids)s::integer[], %(numbers)s::smallint[]) AS given (carrier_id, number)
     USING (carrier_id, number)
     WHERE binds.worker = %(worker)s
     ORDER BY binds.carrier_id, binds.number
       FOR UPDATE OF binds
)
DELETE FROM binds
 USING held
 WHERE binds.carrier_id = held.carrier_id
   AND binds.number = held.number
   AND binds.worker = %(worker)s
""")


async def release(connection: Connection, worker: str, binds: Sequence[tuple[int, int]]) -> None:
    await SQL_RELEASE.rows(connection, worker=worker, **named_columns("carrier_ids numbers", binds))


# Locked, so that of several workers one buries it, and one that is not dead after all waits to say so.
SQL_LOCK_DEAD_WORKERS: Final = Statement("""
SELECT id
  FROM workers
 WHERE seen_at <= clock_timestamp() - make_interval(secs => %(lease_s)s)
 ORDER BY id
 LIMIT %(count_max)s
   FOR UPDATE SKIP LOCKED
""")


async def lock_dead_workers(connection: Connection, lease_s: float) -> Sequence[str]:
    """Lock the workers without a heartbeat for `lease_s`; delete them in the same transaction."""
    rows = await SQL_LOCK_DEAD_WORKERS.rows(connection, lease_s=lease_s, count_max=DEAD_MAX)
    return [row["id"] for row in rows]


# A process that froze while the server read a statement from it, or wrote rows to it, holds its locks for as
# long as it is frozen: the server's own time limits are for sessions that are idle.
SQL_END_SESSIONS: Final = Statement("""
SELECT count(*) FILTER (WHERE pg_terminate_backend(sessions.pid)) AS ended
  FROM workers
  JOIN pg_stat_activity sessions ON sessions.application_name = 'tumira ' || right(workers.id, %(name_max)s)
 WHERE workers.seen_at <= clock_timestamp() - make_interval(secs => %(lease_s)s)
   AND sessions.datname = current_database()
   AND sessions.pid <> pg_backend_pid()
""")


async def end_sessions_of_dead_workers(connection: Connection, lease_s: float) -> int:
    """End the database sessions of workers without a heartbeat for `lease_s`; return how many there were."""
    ended = await SQL_END_SESSIONS.value(connection, lease_s=lease_s, name_max=SESSION_NAME_MAX)
    assert isinstance(ended, int)
    return ended


SQL_DELETE_BINDS: Final = Statement("""
WITH held AS (
    SELECT carrier_id, number
      FROM binds
     WHERE worker = ANY(%(workers)s::text[])
     ORDER BY carrier_id, number
       FOR UPDATE
)
DELETE FROM binds
 USING held
 WHERE binds.carrier_id = held.carrier_id
   AND binds.number = held.number
   AND binds.worker = ANY(%(workers)s::text[])
""")


SQL_DELETE_WORKERS: Final = Statement("DELETE FROM workers WHERE id = ANY(%(workers)s::text[])")


async def delete_workers(connection: Connection, workers: Sequence[str]) -> None:
    """Delete locked workers and their binds, in the order of the key of the binds."""
    await SQL_DELETE_BINDS.rows(connection, workers=workers)
    await SQL_DELETE_WORKERS.rows(connection, workers=workers)


SQL_WITHOUT_CARRIER: Final = Statement("""
SELECT country
  FROM destinations
 WHERE NOT EXISTS (
       SELECT
         FROM carriers
         JOIN binds ON binds.carrier_id = carriers.id
        WHERE carriers.removed_at IS NULL
          AND (carriers.countries IS NULL OR destinations.country = ANY(carriers.countries))
          AND binds.state = 'bound'
          AND binds.leased_until > clock_timestamp()
          AND (NOT carriers.simulator
               OR NOT EXISTS (
                  SELECT
                    FROM carriers other
                   WHERE NOT other.simulator
                     AND other.removed_at IS NULL
                     AND (other.countries IS NULL OR destinations.country = ANY(other.countries)))))
""")


async def countries_without_carrier(connection: Connection) -> set[str]:
    """Return the countries that no bound carrier serves now."""
    return {row["country"] for row in await SQL_WITHOUT_CARRIER.rows(connection)}
