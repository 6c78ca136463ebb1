"""Carriers and their settings."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from tumira.carriers.url import CarrierSettings
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """How a carrier over HTTP is reached; `profile_text` is that of a profile of the operator's own."""

    profile: str
    profile_text: str | None
    url: str
    options: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)
    # The unguessable part of the address that the provider calls.
    hook_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Carrier:
    id: int
    name: str
    settings: CarrierSettings
    countries: tuple[str, ...] | None
    priority: int
    changed_at: datetime
    # The one that `tumira serve` runs: it takes no message that another carrier can.
    simulator: bool = False
    # None for a carrier that speaks SMPP.
    http: HttpAccess | None = None

    def covers(self, country: str) -> bool:
        return self.countries is None or country in self.countries


_SETTINGS: Final = """
host, port, tls, system_id, password, bind_mode, binds, window_size, tps, source, in_doubt, doubt_wait_s,
refund, sender_fallback, alphabet
"""
_CARRIER: Final = f"""
SELECT id, name, countries, priority, changed_at, simulator, {_SETTINGS}, profile, profile_text, url, options,
       secrets, hook_token
  FROM carriers
  LEFT JOIN http_carriers ON http_carriers.carrier_id = carriers.id
"""  # noqa: S608 - a constant

SQL_LIST_ACTIVE: Final = Statement(_CARRIER + "WHERE removed_at IS NULL ORDER BY priority, name")


async def list_active(connection: Connection) -> Sequence[Carrier]:
    return [_carrier(row) for row in await SQL_LIST_ACTIVE.rows(connection)]


_FIND: Final = _CARRIER + "WHERE name = %(name)s AND removed_at IS NULL"
SQL_FIND: Final = Statement(_FIND)
SQL_LOCK: Final = Statement(_FIND + " FOR NO KEY UPDATE OF carriers")


async def find(connection: Connection, name: str, *, lock: bool = False) -> Carrier | None:
    """Return a carrier in use; with `lock`, it is locked until the end of the transaction."""
    row = await (SQL_LOCK if lock else SQL_FIND).row(connection, name=name)
    return None if row is None else _carrier(row)


# Every active carrier over HTTP; tokens are compared in Python, in constant time.
SQL_LIST_HOOKED: Final = Statement(_CARRIER + "WHERE removed_at IS NULL AND profile IS NOT NULL")


async def list_hooked(connection: Connection) -> Sequence[Carrier]:
    """Return the carriers that may call us."""
    return [_carrier(row) for row in await SQL_LIST_HOOKED.rows(connection)]


def _carrier(row: asyncpg.Record) -> Carrier:
    return Carrier(
        row["id"],
        row["name"],
        _settings(row),
        None if row["countries"] is None else tuple(row["countries"]),
        row["priority"],
        row["changed_at"],
        row["simulator"],
        None if row["profile"] is None else _http(row),
    )


def _http(row: asyncpg.Record) -> HttpAccess:
    return HttpAccess(
        row["profile"],
        row["profile_text"],
        row["url"],
        _texts(row["options"]),
        _texts(row["secrets"]),
        row["hook_token"],
    )


def _texts(written: str) -> Mapping[str, str]:
    return msgspec.json.decode(written, type=dict[str, str])


def _settings(row: asyncpg.Record) -> CarrierSettings:
    known = {field.name: row[field.name] for field in fields(CarrierSettings)}
    return CarrierSettings(**known | {"refund": tuple(row["refund"])})


SQL_LIST_SETTINGS: Final = Statement(f"SELECT id, {_SETTINGS} FROM carriers")  # noqa: S608 - a constant


async def list_settings(connection: Connection) -> Mapping[int, CarrierSettings]:
    """Return the settings of every carrier by id, removed ones included.

    The settings of a removed carrier still decide about its messages in doubt.
    """
    return {row["id"]: _settings(row) for row in await SQL_LIST_SETTINGS.rows(connection)}


_INSERT: Final = f"""
INSERT INTO carriers (name, countries, priority, simulator, {_SETTINGS})
VALUES (%(name)s, %(countries)s, %(priority)s, %(simulator)s, %(host)s, %(port)s, %(tls)s,
        %(system_id)s, %(password)s, %(bind_mode)s, %(binds)s, %(window_size)s, %(tps)s, %(source)s,
        %(in_doubt)s, %(doubt_wait_s)s, %(refund)s, %(sender_fallback)s, %(alphabet)s)
"""  # noqa: S608 - a constant

# A row without an xmax was inserted. The look at `carriers` sees the row as it was before.
SQL_UPSERT: Final = Statement(
    _INSERT
    + """
    ON CONFLICT (name) DO UPDATE
   SET countries = excluded.countries, priority = excluded.priority, simulator = excluded.simulator,
       host = excluded.host, port = excluded.port, tls = excluded.tls, system_id = excluded.system_id,
       password = excluded.password, bind_mode = excluded.bind_mode, binds = excluded.binds,
       window_size = excluded.window_size, tps = excluded.tps, source = excluded.source,
       in_doubt = excluded.in_doubt, doubt_wait_s = excluded.doubt_wait_s, refund = excluded.refund,
       sender_fallback = excluded.sender_fallback, alphabet = excluded.alphabet,
       changed_at = clock_timestamp(), removed_at = NULL
RETURNING xmax = 0
       OR EXISTS (SELECT FROM carriers before
                   WHERE before.name = carriers.name AND before.removed_at IS NOT NULL)
"""
)


async def upsert(
    connection: Connection,
    name: str,
    settings: CarrierSettings,
    countries: Sequence[str] | None,
    priority: int,
    *,
    simulator: bool = False,
) -> bool:
    is_new = await SQL_UPSERT.value(
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
    """Add the simulator unless a carrier of its name exists or ever did, and tell whether it was added."""
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
    await SQL_MOVE_SIMULATOR.rows(connection, port=port)


SQL_IS_SIMULATOR_PORT: Final = Statement(
    "SELECT EXISTS (SELECT FROM carriers WHERE simulator AND port = %(port)s)"
)


async def is_simulator_port(connection: Connection, port: int) -> bool:
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
    """Return the countries, with their names, that only the simulator serves."""
    return {row["country"]: row["name"] for row in await SQL_LIST_SIMULATED.rows(connection)}


# The carrier that messages go to while all carriers are healthy.
SQL_LIST_SENDERS: Final = Statement("""
SELECT DISTINCT ON (d.country) d.country, coalesce(r.sender, c.source) AS source
  FROM destinations d
  JOIN carriers c ON c.countries IS NULL OR d.country = ANY(c.countries)
  LEFT JOIN routes r ON r.carrier_id = c.id AND r.country = d.country AND r.network IS NULL
 WHERE c.removed_at IS NULL
 ORDER BY d.country, c.simulator, coalesce(r.priority, c.priority), c.name
""")


async def list_senders(connection: Connection) -> Mapping[str, str]:
    """Return the sender where an account has no name, by country; none where the provider chooses."""
    rows = await SQL_LIST_SENDERS.rows(connection)
    return {row["country"]: row["source"] for row in rows if row["source"]}


# A worker that holds a lease may still submit what it claimed before the carrier was removed.
SQL_SIMULATOR_USE: Final = Statement("""
SELECT EXISTS (SELECT FROM carriers WHERE simulator AND removed_at IS NULL) AS is_active,
       EXISTS (SELECT FROM carriers
                 JOIN binds ON binds.carrier_id = carriers.id
                WHERE carriers.simulator
                  AND binds.leased_until > clock_timestamp()) AS is_bound
""")


async def simulator_use(connection: Connection) -> tuple[bool, bool]:
    row = await SQL_SIMULATOR_USE.row(connection)
    assert row is not None
    return row["is_active"], row["is_bound"]


# Workers bind again to a carrier that was changed.
SQL_UPDATE: Final = Statement("""
UPDATE carriers
   SET priority = %(priority)s, countries = %(countries)s, window_size = %(window_size)s, tps = %(tps)s,
       changed_at = clock_timestamp()
 WHERE id = %(carrier_id)s
""")


async def update(
    connection: Connection,
    carrier_id: int,
    *,
    priority: int,
    countries: Sequence[str] | None,
    window_size: int,
    tps: int,
) -> None:
    await SQL_UPDATE.rows(
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
    """Mark a carrier as removed, and tell whether it was in use; the row stays, without password."""
    return await SQL_REMOVE.value(connection, name=name) is not None


SQL_EXISTS_EVER: Final = Statement("SELECT EXISTS (SELECT FROM carriers WHERE name = %(name)s)")


async def exists_ever(connection: Connection, name: str) -> bool:
    return bool(await SQL_EXISTS_EVER.value(connection, name=name))


SQL_REFUND_RULES: Final = Statement("SELECT id, refund FROM carriers")


async def list_refund_rules(connection: Connection) -> Mapping[int, frozenset[str]]:
    return {row["id"]: frozenset(row["refund"]) for row in await SQL_REFUND_RULES.rows(connection)}
