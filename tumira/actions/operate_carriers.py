"""How does the operator add, remove and watch carriers?"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import asyncpg

from tumira.errors import Trouble
from tumira.rules import carrier_urls
from tumira.rules.carrier_urls import CarrierSettings
from tumira.store import carriers, prices
from tumira.store.carriers import BindState, Carrier, Health
from tumira.store.database import Database
from tumira.store.sql import Connection

PRIORITY_DEFAULT: Final = 100
PRIORITY_MAX: Final = 2**31 - 1
SIMULATOR: Final = "simulator"

# After every carrier of the operator's own.
_SIMULATOR_PRIORITY: Final = 1000
_SIMULATOR_HOST: Final = "127.0.0.1"
_SIMULATOR_URL: Final = (
    "smpp://simulator:simulate@{host}:{port}?window=1000&tps=0&source=Tumira&doubt_wait=30"
)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")

_COUNTRY: Final = re.compile(r"[A-Z]{2}")


class CarrierHealth(StrEnum):
    """How a carrier is, in a word."""

    WELL = "well"
    THROTTLED = "throttled"
    FAILING = "failing"
    DOWN = "down"
    NO_WORKER = "no worker"


# The best of a carrier's binds speaks for it, because messages go there.
_BEST_FIRST: Final = (
    (BindState.BOUND, CarrierHealth.WELL),
    (BindState.THROTTLED, CarrierHealth.THROTTLED),
    (BindState.FAILING, CarrierHealth.FAILING),
    (BindState.CONNECTING, CarrierHealth.DOWN),
    (BindState.DOWN, CarrierHealth.DOWN),
)


@dataclass(frozen=True, slots=True)
class CarrierState:
    """A carrier with those of its binds that a worker holds now, and its health."""

    carrier: Carrier
    binds: Sequence[Health]
    health: CarrierHealth


async def add_carrier(
    database: Database, name: str, url: str, countries: Sequence[str] | None, priority: int
) -> bool:
    """Add a carrier, or change the one of this name, and tell whether it is new; it may be away."""
    if not _NAME.fullmatch(name):
        # Not repeated: where name and URL are swapped, it holds the password.
        raise Trouble("A carrier's name is up to 32 small letters, digits, - and _, as in main-1.")
    if not 0 <= priority <= PRIORITY_MAX:
        raise Trouble(f"The priority {priority} is out of bounds; give a number from 0 to {PRIORITY_MAX}.")
    settings = _read(url)
    try:
        async with database.transaction() as connection:
            known = None if countries is None else await _known(connection, countries)
            return await carriers.put(connection, name, settings, known, priority)
    except asyncpg.IntegrityConstraintViolationError:
        # Not passed on, because PostgreSQL quotes the whole row, with the password.
        raise Trouble("The database does not take these settings; check the URL's parameters.") from None


async def remove_carrier(database: Database, name: str) -> None:
    """Take a carrier out of use; receipts that still come find their messages."""
    async with database.transaction() as connection:
        if await carriers.remove(connection, name):
            return
        if await carriers.exists_ever(connection, name):
            raise Trouble(f"The carrier {name} was removed before; `tumira carrier list` shows those in use.")
    raise _unknown(name)


async def get_carrier(database: Database, name: str) -> Carrier:
    """Return a carrier in use."""
    async with database.connection() as connection:
        found = await carriers.find(connection, name)
    if found is None:
        raise _unknown(name)
    return found


async def list_carriers(database: Database) -> Sequence[CarrierState]:
    """Return the carriers in use, those to be used first in front, and how each is."""
    async with database.connection() as connection:
        active = await carriers.list_active(connection)
        held = [bind for bind in await carriers.list_binds(connection) if bind.lease_valid]
    binds = {carrier.id: [bind for bind in held if bind.carrier_id == carrier.id] for carrier in active}
    return [CarrierState(carrier, binds[carrier.id], _health(binds[carrier.id])) for carrier in active]


async def keep_simulator(database: Database, port: int) -> None:
    """Make the simulator a carrier, once; removed stays removed, and one that is there follows the port."""
    settings = _read(_SIMULATOR_URL.format(host=_SIMULATOR_HOST, port=port))
    async with database.transaction() as connection:
        if not await carriers.insert(connection, SIMULATOR, settings, None, _SIMULATOR_PRIORITY):
            # Whatever else the operator changed about it stays, and one that was moved elsewhere is theirs.
            await carriers.set_port(connection, SIMULATOR, _SIMULATOR_HOST, port)


def _unknown(name: str) -> Trouble:
    # Somebody may give the URL instead of the name, and that is not repeated.
    named = f"no carrier {name}" if _NAME.fullmatch(name) else "no carrier of this name"
    return Trouble(f"There is {named}; `tumira carrier list` shows them.")


def _read(url: str) -> CarrierSettings:
    try:
        return carrier_urls.parse(url)
    except ValueError as error:
        raise Trouble(str(error)) from None


async def _known(connection: Connection, countries: Sequence[str]) -> Sequence[str]:
    """Return the countries, each once; all of them must be destinations."""
    destinations = {one.country for one in (await prices.get_tariff(connection)).destinations}
    if not countries:
        raise Trouble("Name at least one country, as in ZW,ZA, or none at all for every country.")
    for country in countries:
        if country not in destinations:
            named = country if _COUNTRY.fullmatch(country) else "One of the countries"
            raise Trouble(f"{named} is not a destination; `tumira destination list` shows them.")
    return list(dict.fromkeys(countries))


def _health(binds: Sequence[Health]) -> CarrierHealth:
    states = {bind.state for bind in binds}
    return next((health for state, health in _BEST_FIRST if state in states), CarrierHealth.NO_WORKER)
