"""A worker believes its leases for half of their length, and gives up what it has lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.delivery.settling import WORKER, World
from tumira.delivery import supervisor as supervisors
from tumira.delivery.sender import Sender
from tumira.delivery.store import binds
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
