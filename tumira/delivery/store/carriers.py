"""Which carriers are there, and who holds which connection to them?

A worker holds a bind by a lease that it keeps renewing. All times are the database's, so that workers whose
clocks differ agree on when a lease has ended. Statements that write several binds lock them in the order of
their key, because two workers may want the same ones at the same time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import asyncpg

from tumira import VERSION
from tumira.delivery.carrier_url import CarrierSettings
from tumira.postgres import migrate
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

PROBLEM_MAX: Final = 200
DEAD_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Carrier:
    """A carrier that messages may go to; `countries` is None for all of them."""

    id: int
    name: str
    settings: CarrierSettings
    countries: tuple[str, ...] | None
    priority: int
    changed_at: datetime
    # The one that `tumira serve` runs: it takes no message that another carrier can.
    simulator: bool = False

    def covers(self, country: str) -> bool:
        """Tell whether it may be used for a country."""
        return self.countries is None or country in self.countries


class BindState(StrEnum):
    """How a connection to a carrier is."""

    CONNECTING = "connecting"
    BOUND = "bound"
    THROTTLED = "throttled"
    FAILING = "failing"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of one bind; with a lease that has ended, it is what its last holder said."""

    carrier_id: int
    number: int
    worker: str
    state: BindState
    since: datetime
    problem: str | None
    outstanding: int
    pace: int | None
    lease_valid: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class BindReport:
    """What a worker says of a bind that it holds; `pace` is None for no limit.

    `silent`: the line is there and submits are not answered.
    """

    carrier_id: int
    number: int
    worker: str
    state: BindState
    problem: str | None
    outstanding: int
    pace: int | None
    silent: bool = False


_SETTINGS: Final = """
host, port, tls, system_id, password, bind_mode, binds, window_size, tps, source, in_doubt, doubt_wait_s,
refund
"""
_CARRIER: Final = f"""
SELECT id, name, countries, priority, changed_at, simulator, {_SETTINGS}
  FROM carriers
"""  # noqa: S608 - a constant

SQL_LIST_ACTIVE: Final = Statement(_CARRIER + "WHERE removed_at IS NULL ORDER BY priority, name")


async def list_active(connection: Connection) -> Sequence[Carrier]:
    """Return the carriers that were not removed, those to be used first in front."""
    return [_carrier(row) for row in await SQL_LIST_ACTIVE.rows(connection)]


SQL_FIND: Final = Statement(_CARRIER + "WHERE name = %(name)s AND removed_at IS NULL")


async def find(connection: Connection, name: str) -> Carrier | None:
    """Return the carrier of this name, or None when there is none or it was removed."""
    row = await SQL_FIND.row(connection, name=name)
    return None if row is None else _carrier(row)


def _carrier(row: asyncpg.Record) -> Carrier:
    identifier, name, countries, priority, changed_at, simulator, *settings, refund = row
    return Carrier(
        id=identifier,
        name=name,
        settings=CarrierSettings(*(*settings, tuple(refund))),
        countries=None if countries is None else tuple(countries),
        priority=priority,
        changed_at=changed_at,
        simulator=simulator,
    )


SQL_LIST_SETTINGS: Final = Statement(f"SELECT id, {_SETTINGS} FROM carriers")  # noqa: S608 - a constant


async def list_settings(connection: Connection) -> Mapping[int, CarrierSettings]:
    """Return the settings of every carrier by its number, also of those that were removed.

    The settings of a removed carrier still say what becomes of its messages in doubt.
    """
    rows = await SQL_LIST_SETTINGS.rows(connection)
    return {
        identifier: CarrierSettings(*(*settings, tuple(refund))) for identifier, *settings, refund in rows
    }


_INSERT: Final = f"""
INSERT INTO carriers (name, countries, priority, simulator, {_SETTINGS})
VALUES (%(name)s, %(countries)s, %(priority)s, %(simulator)s, %(host)s, %(port)s, %(tls)s,
        %(system_id)s, %(password)s, %(bind_mode)s, %(binds)s, %(window_size)s, %(tps)s, %(source)s,
        %(in_doubt)s, %(doubt_wait_s)s, %(refund)s)
"""  # noqa: S608 - a constant

# A row without an xmax was inserted. The look at `carriers` sees the row as it was before.
SQL_PUT: Final = Statement(
    _INSERT
    + """
    ON CONFLICT (name) DO UPDATE
   SET countries = excluded.countries, priority = excluded.priority, simulator = excluded.simulator,
       host = excluded.host, port = excluded.port, tls = excluded.tls, system_id = excluded.system_id,
       password = excluded.password, bind_mode = excluded.bind_mode, binds = excluded.binds,
       window_size = excluded.window_size, tps = excluded.tps, source = excluded.source,
       in_doubt = excluded.in_doubt, doubt_wait_s = excluded.doubt_wait_s, refund = excluded.refund,
       changed_at = clock_timestamp(), removed_at = NULL
RETURNING xmax = 0
       OR EXISTS (SELECT FROM carriers before
                   WHERE before.name = carriers.name AND before.removed_at IS NOT NULL)
"""
)


async def put(
    connection: Connection,
    name: str,
    settings: CarrierSettings,
    countries: Sequence[str] | None,
    priority: int,
    *,
    simulator: bool = False,
) -> bool:
    """Add a carrier, or change the one of this name; tell whether it was not there or had been removed."""
    is_new = await SQL_PUT.value(
        connection,
        name=name,
        countries=countries,
        priority=priority,
        simulator=simulator,
        **asdict(settings),
    )
    return bool(is_new)


SQL_INSERT: Final = Statement(_INSERT + "ON CONFLICT (name) DO NOTHING RETURNING id")


async def insert_simulator(
    connection: Connection, name: str, settings: CarrierSettings, priority: int
) -> bool:
    """Add the simulator unless a carrier of its name is there or ever was, and tell whether it was added."""
    inserted = await SQL_INSERT.value(
        connection, name=name, countries=None, priority=priority, simulator=True, **asdict(settings)
    )
    return inserted is not None


# Removed ones too, so that they are known by their port when they are added again.
SQL_MOVE_SIMULATOR: Final = Statement("""
UPDATE carriers
   SET port = %(port)s, changed_at = clock_timestamp()
 WHERE simulator
   AND port <> %(port)s
""")


async def move_simulator(connection: Connection, port: int) -> None:
    """Let the carriers that are the simulator follow it to another port."""
    await SQL_MOVE_SIMULATOR.rows(connection, port=port)


SQL_IS_SIMULATOR_PORT: Final = Statement(
    "SELECT EXISTS (SELECT FROM carriers WHERE simulator AND port = %(port)s)"
)


async def is_simulator_port(connection: Connection, port: int) -> bool:
    """Tell whether the simulator listens on a port of this machine."""
    return bool(await SQL_IS_SIMULATOR_PORT.value(connection, port=port))


# The same rule as in `queue.claim`, which no message gets past.
SQL_LIST_SIMULATED: Final = Statement("""
SELECT country, name
  FROM destinations
 WHERE EXISTS (
       SELECT
         FROM carriers
        WHERE simulator
          AND removed_at IS NULL
          AND (countries IS NULL OR destinations.country = ANY(countries)))
   AND NOT EXISTS (
       SELECT
         FROM carriers
        WHERE NOT simulator
          AND removed_at IS NULL
          AND (countries IS NULL OR destinations.country = ANY(countries)))
 ORDER BY country
""")


async def list_simulated(connection: Connection) -> Mapping[str, str]:
    """Return the countries, with their names, that no carrier but the simulator serves."""
    return {row["country"]: row["name"] for row in await SQL_LIST_SIMULATED.rows(connection)}


# A worker that holds a lease may still hand over what it claimed before the carrier was removed.
SQL_SIMULATOR_USE: Final = Statement("""
SELECT EXISTS (SELECT FROM carriers WHERE simulator AND removed_at IS NULL) AS is_active,
       EXISTS (SELECT FROM carriers
                 JOIN binds ON binds.carrier_id = carriers.id
                WHERE carriers.simulator
                  AND binds.leased_until > clock_timestamp()) AS is_bound
""")


async def simulator_use(connection: Connection) -> tuple[bool, bool]:
    """Tell whether the simulator is a carrier in use, and whether a worker is bound to it."""
    row = await SQL_SIMULATOR_USE.row(connection)
    assert row is not None
    return row["is_active"], row["is_bound"]


SQL_HOLD: Final = Statement(_CARRIER + "WHERE name = %(name)s AND removed_at IS NULL FOR NO KEY UPDATE")


async def hold(connection: Connection, name: str) -> Carrier | None:
    """Hold a carrier in use until the end of the transaction; None when there is none of this name."""
    row = await SQL_HOLD.row(connection, name=name)
    return None if row is None else _carrier(row)


# Workers bind anew to a carrier that was changed.
SQL_CHANGE: Final = Statement("""
UPDATE carriers
   SET priority = %(priority)s, countries = %(countries)s, window_size = %(window_size)s, tps = %(tps)s,
       changed_at = clock_timestamp()
 WHERE id = %(carrier_id)s
""")


async def change(
    connection: Connection,
    carrier_id: int,
    *,
    priority: int,
    countries: Sequence[str] | None,
    window_size: int,
    tps: int,
) -> None:
    """Change when a carrier is used, and how much is handed over to it."""
    await SQL_CHANGE.rows(
        connection,
        carrier_id=carrier_id,
        priority=priority,
        countries=countries,
        window_size=window_size,
        tps=tps,
    )


SQL_REMOVE: Final = Statement("""
UPDATE carriers
   SET removed_at = clock_timestamp(), password = ''
 WHERE name = %(name)s
   AND removed_at IS NULL
RETURNING id
""")


async def remove(connection: Connection, name: str) -> bool:
    """Take a carrier out of use, and tell whether it was; its row stays for receipts, without password."""
    return await SQL_REMOVE.value(connection, name=name) is not None


SQL_EXISTS_EVER: Final = Statement("SELECT EXISTS (SELECT FROM carriers WHERE name = %(name)s)")


async def exists_ever(connection: Connection, name: str) -> bool:
    """Tell whether there is or was a carrier of this name."""
    return bool(await SQL_EXISTS_EVER.value(connection, name=name))


SQL_LIST_BINDS: Final = Statement("""
SELECT carrier_id, number, worker, state, since, problem, outstanding, pace,
       leased_until > clock_timestamp() AS lease_valid, silent
  FROM binds
 ORDER BY carrier_id, number
""")


async def list_binds(connection: Connection) -> Sequence[Health]:
    """Return all binds that somebody holds, or held and did not give back."""
    rows = await SQL_LIST_BINDS.rows(connection)
    return [
        Health(carrier_id, number, worker, BindState(state), *rest)
        for carrier_id, number, worker, state, *rest in rows
    ]


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
    """Say that a worker lives, and return how many do, this one among them."""
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
    """Take or keep those of a carrier's binds that are free or ours, and return which are ours now."""
    rows = await SQL_LEASE.rows(
        connection, carrier_id=carrier_id, worker=worker, numbers=numbers_wanted, lease_s=lease_s
    )
    return sorted(row["number"] for row in rows)


SQL_REPORT: Final = Statement("""
WITH reported AS (
    SELECT *
      FROM unnest(%(carrier_ids)s::integer[], %(numbers)s::smallint[], %(workers)s::text[],
                  %(states)s::text[], %(problems)s::text[], %(outstandings)s::integer[], %(paces)s::integer[],
                  %(silents)s::boolean[])
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
       problem = reported.problem,
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
    """Write down how binds are, renew their leases, and return (carrier, number) of those still held."""
    rows = await SQL_REPORT.rows(
        connection,
        carrier_ids=[one.carrier_id for one in reports],
        numbers=[one.number for one in reports],
        workers=[one.worker for one in reports],
        states=[one.state for one in reports],
        problems=[None if one.problem is None else one.problem[:PROBLEM_MAX] for one in reports],
        outstandings=[one.outstanding for one in reports],
        paces=[one.pace for one in reports],
        silents=[one.silent for one in reports],
        lease_s=lease_s,
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
    """Give back the binds, as (carrier, number), that are this worker's."""
    await SQL_RELEASE.rows(
        connection,
        worker=worker,
        carrier_ids=[carrier_id for carrier_id, _ in binds],
        numbers=[number for _, number in binds],
    )


# Locked, so that of several workers one buries it, and one that is not dead after all waits to say so.
SQL_BURY_DEAD: Final = Statement("""
SELECT id
  FROM workers
 WHERE seen_at <= clock_timestamp() - make_interval(secs => %(lease_s)s)
 ORDER BY id
 LIMIT %(count_max)s
   FOR UPDATE SKIP LOCKED
""")


async def bury_dead(connection: Connection, lease_s: float) -> Sequence[str]:
    """Lock the workers that were not seen for so long, and return them: forget them in the transaction."""
    rows = await SQL_BURY_DEAD.rows(connection, lease_s=lease_s, count_max=DEAD_MAX)
    return [row["id"] for row in rows]


SQL_FORGET_BINDS: Final = Statement("""
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

SQL_FORGET_WORKERS: Final = Statement("DELETE FROM workers WHERE id = ANY(%(workers)s::text[])")


async def forget_workers(connection: Connection, workers: Sequence[str]) -> None:
    """Delete workers that we hold and give back their binds, all in the order of the binds' key."""
    await SQL_FORGET_BINDS.rows(connection, workers=workers)
    await SQL_FORGET_WORKERS.rows(connection, workers=workers)


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
    """Return the countries for which no carrier is at work now."""
    return {row["country"] for row in await SQL_WITHOUT_CARRIER.rows(connection)}
