"""Routes are checked before they are added, and wait for an upgrade."""

from decimal import Decimal

import pytest

from tests.support.delivery.engine import Engine
from tests.support.delivery.settling import World
from tumira.carriers.manage import add_carrier
from tumira.carriers.routes import manage
from tumira.core.errors import FieldError, OperatorError


async def add_route(engine: Engine, network: str | None) -> None:
    await manage.add_route(
        engine.database, country="ZW", network=network, carrier="one", priority=10, cost=None
    )


async def test_a_route_is_checked(world: World) -> None:
    database = world.engine.database
    await add_carrier(database, "za-only", "smpp://a:b@127.0.0.1:2775", ["ZA"], 10)

    async def refused(field: str, **changed: object) -> None:
        route = {"country": "ZW", "network": "econet", "carrier": "one", "priority": 1, "cost": Decimal(1)}
        with pytest.raises(FieldError) as error:
            await manage.add_route(database, **route | changed)  # type: ignore[arg-type]
        assert error.value.field == field

    await refused("country", country="ZM")
    await refused("network", network="vodacom")
    await refused("network", network="Econet")
    await refused("carrier", carrier="nobody")
    await refused("carrier", carrier="za-only")
    await refused("priority", priority=-1)
    await refused("cost", cost=Decimal("0.0000001"))
    await refused("cost", cost=Decimal(-1))
    await refused("currency", currency="ZAR")
    for currency, usd in (("USD", 1), ("ZA", 1), ("ZAR", 0)):
        with pytest.raises(FieldError):
            await manage.set_rate(database, currency, Decimal(usd))
    await manage.set_rate(database, "ZAR", Decimal("0.055"))
    assert await manage.add_route(
        database,
        country="ZW",
        network="econet",
        carrier="one",
        priority=1,
        cost=Decimal("0.2"),
        currency="ZAR",
    )
    assert not await manage.add_route(
        database, country="ZW", network="econet", carrier="one", priority=2, cost=None
    )
    with pytest.raises(OperatorError, match="no such route"):
        await manage.remove_route(database, country="ZW", network="netone", carrier="one")


async def test_routes_to_networks_wait_until_the_upgrade_is_done(world: World) -> None:
    await world.rows("INSERT INTO workers (id, version, last_step) VALUES ('old', '0.0.9', 9)")
    with pytest.raises(OperatorError, match=r"older version still runs \(old\)"):
        await add_route(world.engine, "econet")
    # A route to a whole country changes no queue.
    await add_route(world.engine, None)
    await world.rows("DELETE FROM workers")
    await add_route(world.engine, "econet")
