"""A worker believes its leases for half of their length, and gives up what it has lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from math import inf

from msgspec import structs

from tests.support.delivery.settling import WORKER, Owner, World
from tests.support.sending.batchers import until
from tumira.carriers import store as carriers
from tumira.carriers.store import Carrier
from tumira.delivery import supervisor as supervisors
from tumira.delivery.sender import Sender
from tumira.delivery.store import binds
from tumira.delivery.store.binds import BindHealth, BindState
from tumira.delivery.submission import SubmissionWriter
from tumira.delivery.supervisor import LEASE_S, Supervisor


@asynccontextmanager
async def supervising(world: World, worker: str = WORKER) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(world.engine.database, worker)
    try:
        yield supervisor
    finally:
        await supervisor._stop()


async def test_a_lease_is_believed_for_half_of_its_length_from_before_it_was_asked_for(world: World) -> None:
    clock = asyncio.get_running_loop().time
    async with supervising(world) as supervisor:
        before = clock()
        await supervisor._beat()
        after = clock()
        (held,) = supervisor._held.values()
        assert before + LEASE_S / 2 <= held.sender._lease_until <= after + LEASE_S / 2
        # The others believe it for the whole of it, by the clock of the database.
        (row,) = await world.rows(
            "SELECT leased_until - clock_timestamp() > make_interval(secs => $1) AS ends_later FROM binds",
            held.sender._lease_until - clock(),
        )
        assert row["ends_later"]


async def test_a_sender_with_room_wakes_its_own_dispatcher(world: World) -> None:
    async with supervising(world) as supervisor:
        await supervisor._beat()
        assert [row["id"] for row in await world.rows("SELECT id FROM workers")] == [WORKER]
        ((place, held),) = supervisor._held.items()
        asked: list[str] = []
        held.dispatcher.room = lambda: asked.append(held.sender.name)  # type: ignore[method-assign]
        supervisor._room(place)
        # One that was dropped may still say so.
        supervisor._room((place[0], place[1] + 1))
        assert asked == [held.sender.name]
    # A worker that has left is not looked for, and neither are its binds.
    assert await world.rows("SELECT FROM workers") == []
    assert await world.rows("SELECT FROM binds") == []


async def test_a_bind_whose_lease_another_worker_has_is_dropped_at_once(world: World) -> None:
    async with supervising(world) as supervisor:
        await supervisor._beat()
        (held,) = supervisor._held.values()
        await world.rows("UPDATE binds SET worker = 'another'")
        await supervisor._beat()
        assert supervisor._held == {}
        assert not held.sender.link.is_usable
        # Nobody takes it while the other one has it.
        await supervisor._beat()
        assert supervisor._held == {}
        await world.rows("UPDATE binds SET leased_until = clock_timestamp() - interval '1 second'")
        await supervisor._beat()
        assert len(supervisor._held) == 1


async def test_binds_are_shared_among_the_workers_that_live(world: World) -> None:
    await world.rows("UPDATE carriers SET binds = 3")
    async with supervising(world) as first:
        await first._beat()
        assert sorted(number for _, number in first._held) == [1, 2, 3]
        async with world.engine.database.connection() as connection:
            assert await binds.heartbeat(connection, "another", LEASE_S) == 2
        await first._beat()
        (leaving,) = [place for place, held in first._held.items() if held.leaving is not None]
        assert leaving[1] == 3


async def test_claims_that_no_sender_has_are_put_in_doubt_at_the_second_look(world: World) -> None:
    await world.send(2)
    await world.claim(2)
    async with supervising(world) as supervisor:
        await supervisor._beat()
        for statuses in ({}, {"doubt": 2}):
            # Too early to look.
            await supervisor._find_lost_claims()
            supervisor._lost_looked_at -= supervisors.LOST_CLAIM_S
            await supervisor._find_lost_claims()
            assert await world.incidents() == statuses


async def test_a_carrier_that_was_removed_or_changed_is_left(world: World) -> None:
    async with supervising(world) as supervisor:

        async def beat() -> list[Sender]:
            """Return the senders that are held after a beat, once those that leave have left."""
            await supervisor._beat()
            leaving = [held.leaving for held in supervisor._held.values() if held.leaving is not None]
            await asyncio.gather(*leaving)
            return [held.sender for held in supervisor._held.values()]

        (first,) = await beat()
        assert await beat() == [first]
        await world.rows("UPDATE carriers SET changed_at = clock_timestamp()")
        senders = [*await beat(), *await beat()]
        # It is bound again with its new settings.
        assert senders
        assert first not in senders
        await world.rows("UPDATE carriers SET removed_at = clock_timestamp()")
        await beat()
        assert await beat() == []


async def test_leases_are_renewed_while_a_worker_that_leaves_waits_for_answers(world: World) -> None:
    supervisor = Supervisor(world.engine.database, WORKER)
    await supervisor._beat()
    (held,) = supervisor._held.values()
    # Answers that take a few beats.
    held.leaving = asyncio.create_task(asyncio.sleep(3 * supervisors.BEAT_S))
    await world.rows("UPDATE binds SET leased_until = clock_timestamp() + interval '1 second'")
    await supervisor._stop()
    (row,) = await world.rows(
        "SELECT leased_until - clock_timestamp() > make_interval(secs => $1) AS is_renewed FROM binds",
        LEASE_S / 2,
    )
    assert row["is_renewed"]
    await held.dispatcher.close()


async def test_the_rate_of_a_carrier_is_shared_among_the_binds_that_are_up(world: World) -> None:
    await world.rows("UPDATE carriers SET binds = 4, tps = 40")
    async with supervising(world) as supervisor:
        await supervisor._beat()
        rates: list[float | None] = []
        for states in (
            ["down", "down", "down", "down"],
            ["bound", "down", "down", "down"],
            ["bound", "bound", "throttled", "failing"],
        ):
            async with world.engine.database.connection() as connection:
                active = await carriers.list_active(connection)
                health = [
                    structs.replace(one, state=BindState(state))
                    for one, state in zip(await binds.list_binds(connection), states, strict=True)
                ]
                # One whose lease has ended counts for nobody, and neither does another carrier's.
                ended = structs.replace(health[0], number=9, state=BindState.BOUND, lease_valid=False)
                foreign = structs.replace(health[0], carrier_id=world.carrier_id + 1, state=BindState.BOUND)
            supervisor._pass_on(active, [*health, ended, foreign], ["ZW"], (), (), 0.0)
            held = supervisor._held[world.carrier_id, 1]
            rates.append(held.sender._throttle._tps)
        assert rates == [40, 40, 10]


async def test_a_carrier_is_well_where_another_worker_is_bound_to_it(world: World) -> None:
    await world.engine.add_carrier("two", 2776, priority=200)
    async with supervising(world) as supervisor:
        await supervisor._beat()
        async with world.engine.database.connection() as connection:
            first, second = sorted(await carriers.list_active(connection), key=lambda one: one.priority)
            (example, *_) = await binds.list_binds(connection)

        def served(*health: BindHealth) -> list[list[str]]:
            supervisor._pass_on([first, second], health, ["ZW"], (), (), 0.0)
            return [list(supervisor._routes.queues_of(one, trying=False)) for one in (first, second)]

        def bind(carrier: Carrier, state: BindState, *, lease_valid: bool = True) -> BindHealth:
            return structs.replace(
                example, carrier_id=carrier.id, worker="another", state=state, lease_valid=lease_valid
            )

        # While none is well each tries what it covers.
        assert served() == [["ZW"], ["ZW"]]
        assert served(bind(second, BindState.BOUND)) == [[], ["ZW"]]
        assert served(bind(first, BindState.BOUND), bind(second, BindState.BOUND)) == [["ZW"], []]
        assert served(bind(first, BindState.FAILING), bind(second, BindState.BOUND)) == [[], ["ZW"]]
        assert served(bind(first, BindState.BOUND, lease_valid=False), bind(second, BindState.BOUND)) == [
            [],
            ["ZW"],
        ]


async def test_a_worker_takes_its_share_of_what_is_free_and_no_more(world: World) -> None:
    await world.rows("UPDATE carriers SET binds = 5")
    async with supervising(world) as supervisor:
        async with world.engine.database.connection() as connection:
            (carrier,) = await carriers.list_active(connection)
            await binds.lease(connection, carrier.id, "another", [1, 3], LEASE_S)
            health = await binds.list_binds(connection)
        assert [list(supervisor._share(carrier, health, workers)) for workers in (1, 2, 5)] == [
            [2, 4, 5],
            [2, 4, 5],
            [2],
        ]
        ended = [structs.replace(one, lease_valid=False) for one in health]
        assert list(supervisor._share(carrier, ended, 2)) == [1, 2, 3]
        foreign = [structs.replace(one, carrier_id=carrier.id + 1) for one in health]
        assert list(supervisor._share(carrier, foreign, 1)) == [1, 2, 3, 4, 5]
        await supervisor._beat()
        assert sorted(number for _, number in supervisor._held) == [2, 4, 5]
        assert list(supervisor._share(carrier, health, 1)) == []


async def test_a_worker_follows_the_clock_of_the_database(world: World) -> None:
    clock = world.engine.database.clock
    async with supervising(world) as supervisor:
        await supervisor._beat()
        assert clock._offset_s is not None
        clock._offset_s += 3600
        await supervisor._beat()
    (row,) = await world.rows("SELECT clock_timestamp() AS now")
    assert abs(clock.now() - row["now"]) < timedelta(minutes=1)


async def test_a_bind_that_is_left_is_released_when_its_answers_are_on_disk(world: World) -> None:
    claimed = await world.claim_one()
    async with supervising(world) as supervisor:
        await supervisor._beat()
        ((place, held),) = supervisor._held.items()
        async with world.engine.database.transaction() as holder:
            await holder.execute("SELECT FROM messages FOR UPDATE")
            supervisor._recorders[place[0]].put(world.taken(claimed), claimed.recipient, Owner())
            supervisor._part(place)
            await asyncio.sleep(0.2)
            assert len(await world.rows("SELECT FROM binds")) == 1
            assert held.leaving is not None
            assert not held.leaving.done()
        await held.leaving
        assert await world.rows("SELECT FROM binds") == []
        assert await world.status(claimed.id) == "sent"


async def test_claims_that_never_came_go_into_the_queue_and_those_that_came_are_in_doubt(
    world: World,
) -> None:
    """Both were claimed with their accepts, and no sender has them."""
    await world.send(2)
    ids = sorted(one.id for one in await world.claim(2))
    await world.rows("UPDATE in_flight SET is_direct = true")
    async with supervising(world) as supervisor:
        await supervisor._beat()
        supervisor._offers.came.add(ids[0])
        for _ in range(2):
            supervisor._lost_looked_at -= supervisors.LOST_CLAIM_S
            await supervisor._find_lost_claims()
        rows = await world.rows("SELECT message_id, again FROM queue")
        assert [(row["message_id"], row["again"]) for row in rows] == [(ids[1], False)]
        assert await world.incidents() == {"doubt": 1}
        statuses = await world.rows("SELECT status FROM messages ORDER BY id")
        assert [row["status"] for row in statuses] == ["sending", "queued"]
        # What comes after all is refused, and what came is forgotten once it is settled.
        assert supervisor._offers._given_back == {ids[1]}
        supervisor._lost_looked_at -= supervisors.LOST_CLAIM_S
        await supervisor._find_lost_claims()
        assert supervisor._offers.came == set()


async def test_a_worker_closes_what_its_senders_left_open(world: World) -> None:
    claimed = await world.claim_one()
    supervisor = Supervisor(world.engine.database, WORKER)
    await supervisor._beat()
    (held,) = supervisor._held.values()
    submission = SubmissionWriter("Tumira", "gsm7").prepare(claimed, None)
    submission.touched_at = -inf
    held.sender.claimed[claimed.id] = submission
    running = asyncio.create_task(supervisor.run())
    try:
        await until(lambda: not held.sender.claimed)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert await world.status(claimed.id) == "queued"
