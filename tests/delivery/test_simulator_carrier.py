"""The simulator takes no messages of real carriers, and the settings of a removed carrier still apply."""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import pytest
import pytest_asyncio

from tests.support.delivery.engine import Engine
from tests.support.delivery.settling import World
from tumira.audit_log import OPERATOR
from tumira.carriers import store as carriers
from tumira.carriers.manage import add_carrier, change_carrier, keep_simulator, list_simulated, remove_carrier
from tumira.carriers.routes.rules import Routes
from tumira.carriers.url import parse
from tumira.delivery.lanes import Room
from tumira.delivery.store import binds, queue
from tumira.delivery.store.binds import BindReport, BindState
from tumira.delivery.store.queue import ClaimRequest
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task

PORT: Final = 2775
REAL: Final = "smpp://user:hushhush@smpp.example.com"
NUMBERS: Final = ("+263771200001", "+27821230001")
RESUME: Final = next(task for task in MAINTENANCE_TASKS if task.name == "resume due messages")


@pytest_asyncio.fixture
async def engine(engine: Engine) -> Engine:
    await keep_simulator(engine.database, PORT)
    return engine


async def marked(engine: Engine) -> dict[str, bool]:
    async with engine.database.connection() as connection:
        return {carrier.name: carrier.simulator for carrier in await carriers.list_active(connection)}


async def number_of(engine: Engine, name: str) -> int:
    (row,) = await engine.rows("SELECT id FROM carriers WHERE name = $1", name)
    return int(row["id"])


async def claim(engine: Engine, name: str) -> Sequence[UUID]:
    async with engine.database.transaction() as connection:
        claimed = await queue.claim(
            connection,
            [ClaimRequest(country, 10, 10, 10, 0, 0) for country in ("ZA", "ZW")],
            Room(10, 10, 10),
            worker="one",
            bind=f"{name}/1",
            carrier_id=await number_of(engine, name),
        )
        await connection.execute("ROLLBACK; BEGIN")
    return [one.id for one in claimed or ()]


async def test_the_simulator_is_known_by_its_place_and_not_by_its_name(engine: Engine) -> None:
    assert await marked(engine) == {"simulator": True}
    await add_carrier(engine.database, "trial", f"smpp://a:b@localhost:{PORT}", None, 5)
    await add_carrier(engine.database, "main", f"smpp://a:b@127.0.0.1:{PORT + 1}", None, 5)
    await add_carrier(engine.database, "other", f"smpp://a:b@smpp.example.com:{PORT}", None, 5)
    assert await marked(engine) == {"simulator": True, "trial": True, "main": False, "other": False}

    await add_carrier(engine.database, "simulator", REAL, None, 5)
    assert not (await marked(engine))["simulator"]

    await keep_simulator(engine.database, PORT + 2)
    async with engine.database.connection() as connection:
        active = {one.name: one.settings for one in await carriers.list_active(connection)}
    # One that the operator moved elsewhere stays there.
    ports = {name: settings.port for name, settings in active.items()}
    assert ports == {"simulator": PORT, "trial": PORT + 2, "main": PORT + 1, "other": PORT}
    assert active["simulator"] == parse(f"{REAL}:{PORT}")


async def test_the_simulator_is_made_once_and_stays_removed(engine: Engine) -> None:
    await asyncio.gather(*(keep_simulator(engine.database, PORT) for _ in range(4)))
    async with engine.database.connection() as connection:
        (made,) = await carriers.list_active(connection)
    assert (made.name, made.countries, made.priority) == ("simulator", None, 1000)
    assert (made.settings.host, made.settings.window_size, made.settings.tps) == ("127.0.0.1", 1000, 0)
    await remove_carrier(engine.database, "simulator")
    await keep_simulator(engine.database, PORT + 1)
    assert await marked(engine) == {}
    # No password is kept, and it is known again by its port.
    assert await engine.rows("SELECT FROM carriers WHERE password <> ''") == []
    await add_carrier(engine.database, "simulator", f"smpp://a:b@127.0.0.1:{PORT + 1}", None, 100)
    assert await marked(engine) == {"simulator": True}


async def test_the_simulator_takes_nothing_that_any_other_carrier_can(engine: Engine) -> None:
    await engine.send(await engine.open_account(), NUMBERS)
    assert len(await claim(engine, "simulator")) == 2

    # Nobody has ever been bound to it.
    await add_carrier(engine.database, "main", REAL, ["ZW"], 5000)
    (left,) = await claim(engine, "simulator")
    assert (await engine.message(NUMBERS[1]))["id"] == left
    assert len(await claim(engine, "main")) == 2

    await change_carrier(
        engine.database, "main", priority=1, countries=None, window_size=10, tps=0, actor=OPERATOR
    )
    assert await claim(engine, "simulator") == []
    await remove_carrier(engine.database, "main")
    assert len(await claim(engine, "simulator")) == 2
    await remove_carrier(engine.database, "simulator")
    assert await claim(engine, "simulator") == []


async def test_routes_lead_to_the_simulator_only_where_nobody_else_serves(engine: Engine) -> None:
    await add_carrier(engine.database, "main", REAL, ["ZW"], 5000)
    async with engine.database.connection() as connection:
        main, simulator = sorted(await carriers.list_active(connection), key=lambda one: one.name)
    routes = Routes()
    for well in ([simulator.id], [main.id, simulator.id], []):
        routes.renew([main, simulator], well, ["ZA", "ZW"])
        for trying in (True, False):
            assert routes.queues_of(simulator, trying=trying) == ["ZA"]
            assert routes.queues_of(main, trying=trying) == ["ZW"]


async def test_it_is_known_which_countries_are_left_to_the_simulator(engine: Engine) -> None:
    assert await list_simulated(engine.database) == {"ZA": "South Africa", "ZW": "Zimbabwe"}
    await add_carrier(engine.database, "main", REAL, ["ZW"], 5000)
    assert await list_simulated(engine.database) == {"ZA": "South Africa"}
    await add_carrier(engine.database, "other", REAL, None, 5000)
    assert await list_simulated(engine.database) == {}
    await remove_carrier(engine.database, "other")
    await remove_carrier(engine.database, "simulator")
    assert await list_simulated(engine.database) == {}


async def test_a_simulator_at_work_does_not_hide_that_a_real_carrier_is_away(engine: Engine) -> None:
    simulator = await number_of(engine, "simulator")
    bound = BindReport(simulator, 1, "one", BindState.BOUND, problem=None, outstanding=0, pace=None)
    async with engine.database.connection() as connection:
        await binds.lease(connection, simulator, "one", [1], 60)
        await binds.report(connection, [bound], 60)
        assert await binds.countries_without_carrier(connection) == set()
        await add_carrier(engine.database, "main", REAL, ["ZW"], 5000)
        assert await binds.countries_without_carrier(connection) == {"ZW"}


@pytest.mark.parametrize(("in_doubt", "status"), [("hold", "unconfirmed"), ("resend", "queued")])
async def test_a_removed_carrier_still_says_what_becomes_of_its_messages_in_doubt(
    world: World, in_doubt: str, status: str
) -> None:
    await world.engine.add_carrier("one", PORT, in_doubt=in_doubt)
    await world.engine.add_carrier("two", PORT + 1)
    claimed = await world.claim_one()
    await world.settle(world.doubtful(claimed))
    await remove_carrier(world.engine.database, "one")
    await world.rows("UPDATE retries SET due_at = clock_timestamp() - interval '1 second'")

    assert await run_task(world.engine.database, RESUME) == 1

    assert await world.status(claimed.id) == status
