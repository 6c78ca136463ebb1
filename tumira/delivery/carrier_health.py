"""Carriers with the binds that workers hold, and how well each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tumira.carriers import store as carriers
from tumira.carriers.store import Carrier
from tumira.delivery.store import binds
from tumira.delivery.store.binds import BindHealth, BindState
from tumira.postgres.pool import Database


class CarrierHealth(StrEnum):
    WELL = "well"
    THROTTLED = "throttled"
    SILENT = "silent"
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
    carrier: Carrier
    binds: Sequence[BindHealth]
    health: CarrierHealth


async def list_carriers(database: Database) -> Sequence[CarrierState]:
    async with database.connection() as connection:
        active = await carriers.list_active(connection)
        held = [bind for bind in await binds.list_binds(connection) if bind.lease_valid]
    states = []
    for carrier in active:
        own = [bind for bind in held if bind.carrier_id == carrier.id]
        states.append(CarrierState(carrier, own, _health(own)))
    return states


def _health(binds: Sequence[BindHealth]) -> CarrierHealth:
    states = {bind.state for bind in binds}
    health = next((health for state, health in _BEST_FIRST if state in states), CarrierHealth.NO_WORKER)
    if health is CarrierHealth.FAILING and all(one.silent for one in binds if one.state is BindState.FAILING):
        return CarrierHealth.SILENT
    return health
