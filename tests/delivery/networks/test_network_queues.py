"""A network with routes of its own has a queue of its own, with clocks that no other network moves."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.delivery.settling import World
from tumira.carriers import store as carriers
from tumira.carriers.manage import remove_carrier
from tumira.carriers.routes import manage, store
from tumira.delivery.lanes import BOTTOM, Room
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.operations.maintenance import _fail_unroutable
from tumira.sending.system_text import send_text

ECONET: Final = numbers(3)
NETONE: Final = [f"+26371200000{place}" for place in range(3)]
VODACOM: Final = "+27821230001"


async def add_route(
    engine: Engine, network: str | None, carrier: str = "one", cost: str | None = None, priority: int = 10
) -> None:
    amount = None if cost is None else Decimal(cost)
    await manage.add_route(
        engine.database, country="ZW", network=network, carrier=carrier, priority=priority, cost=amount
    )


async def claim(world: World, *queues: str, count: int = 10) -> Sequence[ClaimedMessage]:
    wanted = [ClaimRequest(name, count, 0, count, BOTTOM, BOTTOM) for name in queues]
    async with world.engine.database.transaction() as connection:
        claimed = await queue.claim(
            connection,
            wanted,
            Room(count, 0, count),
            worker="one",
            bind="one/1",
            carrier_id=world.carrier_id,
        )
    return claimed or ()


async def waiting(world: World) -> dict[str, int]:
    rows = await world.rows("SELECT country, count(*) FROM queue GROUP BY country")
    return {row["country"]: row["count"] for row in rows}


async def test_without_routes_the_networks_of_a_country_share_its_queue(world: World) -> None:
    await world.send(to=[*ECONET, *NETONE, VODACOM])
    assert await waiting(world) == {"ZW": 6, "ZA": 1}
    rows = await world.rows("SELECT network, count(*) FROM messages GROUP BY network")
    assert dict(map(tuple, rows)) == {"econet": 3, "netone": 3, "vodacom": 1}


async def test_a_routed_network_has_its_own_queue_from_the_next_call_on(world: World) -> None:
    await world.send(to=[*ECONET, *NETONE])
    await add_route(world.engine, "econet")
    await world.send(to=[*ECONET, *NETONE])
    assert await waiting(world) == {"ZW": 9, "ZW-econet": 3}
    claimed = await claim(world, "ZW-econet")
    assert {(one.queue, one.country, one.network) for one in claimed} == {("ZW-econet", "ZW", "econet")}
    assert {one.recipient for one in claimed} == set(ECONET)
    assert {one.cost for one in claimed} == {Decimal("0.04")}


async def test_codes_of_the_gateway_itself_enter_the_queue_of_their_network(world: World) -> None:
    await add_route(world.engine, "netone")
    async with world.engine.database.transaction() as connection:
        await send_text(connection, NETONE[0], "Your code is 493817.")
        await send_text(connection, ECONET[0], "Your code is 493817.")
    assert await waiting(world) == {"ZW": 1, "ZW-netone": 1}


async def test_another_node_learns_of_a_route_with_its_next_call(world: World) -> None:
    async with open_engine(world.engine.url) as other:
        await other.send(world.caller, ECONET)
        await add_route(world.engine, "econet")
        await other.send(world.caller, ECONET)
        assert await waiting(world) == {"ZW": 3, "ZW-econet": 3}


async def test_a_claim_of_several_queues_takes_each_message_once_and_no_more_than_asked(world: World) -> None:
    await add_route(world.engine, "econet")
    await add_route(world.engine, "netone")
    await world.send(to=[*ECONET, *NETONE, "+263731200001"])
    assert await waiting(world) == {"ZW": 1, "ZW-econet": 3, "ZW-netone": 3}
    shares = await asyncio.gather(*(claim(world, "ZW-econet", "ZW-netone", "ZW", count=4) for _ in range(3)))
    assert max(len(share) for share in shares) <= 4
    claimed = [one.id for share in shares for one in share]
    assert len(claimed) == len(set(claimed)) == 7


async def test_a_slow_network_shares_no_clock_with_a_fast_one(world: World) -> None:
    await add_route(world.engine, "econet")
    await world.send(to=[*ECONET, *NETONE])
    (first, *_) = await claim(world, "ZW-econet")
    async with world.engine.database.connection() as connection:
        await queue.publish_clocks(connection, {("ZW-econet", 0): 5_000_000})
    other = await world.engine.open_account()
    await world.engine.send(other, [ECONET[0], NETONE[0]])
    rows = await world.rows(
        "SELECT country, max(turn) FROM queue WHERE message_id IN"
        " (SELECT id FROM messages WHERE account_id = $1) GROUP BY country",
        other.id,
    )
    # It enters the fast queue at its clock, and the other one at the beginning.
    assert dict(map(tuple, rows)) == {"ZW-econet": 5_000_000, "ZW": 0}
    assert first.queue == "ZW-econet"


async def test_what_is_tried_again_returns_to_the_queue_of_its_network(world: World) -> None:
    await add_route(world.engine, "econet")
    await world.send(to=ECONET)
    released, put_off, doubtful = await claim(world, "ZW-econet")
    await world.settle(world.returned(released), world.put_off(put_off), world.doubtful(doubtful))
    assert await waiting(world) == {"ZW-econet": 1}
    await world.resume_due()
    assert await waiting(world) == {"ZW-econet": 3}
    async with world.engine.database.connection() as connection:
        assert await queue.list_avoided(connection) == {("ZW-econet", world.carrier_id)}
    # Without its route a network has no queue of its own, and the next try is in the country's.
    (first,) = await claim(world, "ZW-econet", count=1)
    await manage.remove_route(world.engine.database, country="ZW", network="econet", carrier="one")
    await world.settle(world.put_off(first))
    await world.resume_due()
    assert await waiting(world) == {"ZW-econet": 2, "ZW": 1}


async def fail(world: World) -> int:
    async with world.engine.database.transaction() as connection:
        return await _fail_unroutable(connection)


async def test_messages_in_a_queue_without_a_carrier_move_to_that_of_their_network_or_fail(
    world: World,
) -> None:
    await world.send(to=[*ECONET, *NETONE])
    # From now on the only carrier takes one network alone; what waits for it is moved, and the rest fails.
    await add_route(world.engine, "econet")
    assert await fail(world) == 6
    assert await waiting(world) == {"ZW-econet": 3}
    rows = await world.rows("SELECT DISTINCT status, failure_reason, network FROM messages ORDER BY status")
    assert [tuple(row) for row in rows] == [("failed", "NO_ROUTE", "netone"), ("queued", None, "econet")]
    # And back, when the route is gone.
    await manage.remove_route(world.engine.database, country="ZW", network="econet", carrier="one")
    assert await fail(world) == 3
    assert await waiting(world) == {"ZW": 3}
    assert await fail(world) == 0
    assert len(await claim(world, "ZW")) == 3


async def test_a_message_that_is_being_claimed_is_not_moved(world: World) -> None:
    await world.send(to=ECONET)
    await add_route(world.engine, "econet")
    async with world.engine.database.connection() as connection:
        await connection.execute("BEGIN")
        await connection.execute("SELECT FROM queue ORDER BY message_id LIMIT 1 FOR UPDATE")
        assert await fail(world) == 2
        await connection.execute("ROLLBACK")
    assert await waiting(world) == {"ZW-econet": 2, "ZW": 1}
    assert await fail(world) == 1
    assert await waiting(world) == {"ZW-econet": 3}


async def test_settled_messages_leave_whichever_queue_they_are_in(world: World) -> None:
    await add_route(world.engine, "econet")
    await world.send(to=ECONET)
    (claimed,) = await claim(world, "ZW-econet", count=1)
    await world.settle(world.returned(claimed))
    # A receipt says that the carrier has it, although it waits: it is searched in all queues of its country.
    await world.settle(world.taken(claimed, late=True), world.reported(claimed))
    assert await world.status(claimed.id) == "delivered"
    assert await waiting(world) == {"ZW-econet": 2}


async def test_the_routes_of_a_carrier_go_with_it(world: World) -> None:
    await add_route(world.engine, "econet", cost="0.011")
    await add_route(world.engine, None)
    await remove_carrier(world.engine.database, "one")
    async with world.engine.database.connection() as connection:
        assert await store.list_routes(connection) == []
        assert await carriers.list_active(connection) == []
    await world.send(to=ECONET)
    assert await waiting(world) == {"ZW": 3}
