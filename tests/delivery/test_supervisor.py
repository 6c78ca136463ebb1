"""A worker believes its leases for half of their length, and gives up what it has lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from math import inf
from typing import Final

import pytest
from msgspec import structs

from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.server import run_carrier
from tests.support.delivery.settling import WORKER, Owner, World
from tests.support.sending.batchers import PATIENCE_S, until
from tests.support.sending.peers import Notes, meeting
from tumira.carriers import store as carriers
from tumira.carriers.store import Carrier
from tumira.delivery import dispatcher, recorder
from tumira.delivery import supervisor as supervisors
from tumira.delivery.recorder import Recorder
from tumira.delivery.sender import Sender
from tumira.delivery.store import binds
from tumira.delivery.store.binds import BindHealth, BindState
from tumira.delivery.submission import SubmissionWriter
from tumira.delivery.supervisor import LEASE_S, Supervisor
from tumira.sending.direct.wire import Finished, ToWeb, Withdrawal
from tumira.simulator.smsc import Smsc, run_smsc
from tumira.webhooks.manage import add_endpoint

NEVER_S: Final = 1000.0


@asynccontextmanager
async def supervising(world: World, worker: str = WORKER) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(world.engine.database, worker)
    try:
        yield supervisor
    finally:
        await supervisor._stop()


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(supervisor.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def reached(world: World) -> AsyncIterator[Smsc]:
    """Put a carrier where the first one of the world is looked for."""
    async with run_smsc() as smsc:
        await world.rows("UPDATE carriers SET port = $1 WHERE id = $2", smsc.port, world.carrier_id)
        yield smsc


async def look_for_lost_claims(supervisor: Supervisor) -> None:
    supervisor._lost_looked_at -= supervisors.LOST_CLAIM_S
    await supervisor._find_lost_claims()


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
        # The third is on its way, or has left already.
        staying = [number for (_, number), held in first._held.items() if held.leaving is None]
        assert sorted(staying) == [1, 2]


async def test_claims_that_no_sender_has_are_put_in_doubt_at_the_second_look(world: World) -> None:
    await world.send(2)
    await world.claim(2)
    async with supervising(world) as supervisor:
        await supervisor._beat()
        for statuses in ({}, {"doubt": 2}):
            # Too early to look.
            await supervisor._find_lost_claims()
            assert await world.incidents() == {}
            await look_for_lost_claims(supervisor)
            assert await world.incidents() == statuses


async def test_a_claim_that_a_sender_has_is_not_lost(world: World) -> None:
    claimed = await world.claim_one()
    async with supervising(world) as supervisor:
        await supervisor._beat()
        (held,) = supervisor._held.values()
        held.sender.claimed[claimed.id] = SubmissionWriter("Tumira", "gsm7").prepare(claimed, None)
        for _ in range(2):
            await look_for_lost_claims(supervisor)
        assert await world.incidents() == {}
        assert await world.status(claimed.id) == "sending"


async def test_no_claim_is_missed_before_all_answers_are_on_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that waits to be written may be to any message in flight."""
    # Behind as soon as there is something to write.
    monkeypatch.setattr(recorder, "BEHIND_S", -1.0)
    await world.engine.add_carrier("two", 2776, priority=200)
    await world.send(2)
    answered, lost = await world.claim(2)
    async with supervising(world) as supervisor:
        await supervisor._beat()
        async with world.engine.database.transaction() as holder:
            await holder.execute("SELECT FROM messages WHERE id = $1 FOR UPDATE", answered.id)
            writing = supervisor._recorders[world.carrier_id]
            writing.put(world.taken(answered), answered.recipient, Owner())
            # This look does not count.
            await look_for_lost_claims(supervisor)
        await until(lambda: not writing.is_behind)
        await look_for_lost_claims(supervisor)
        assert await world.incidents() == {}
        await look_for_lost_claims(supervisor)
        assert await world.incidents() == {"doubt": 1}
        assert await world.status(answered.id) == "sent"
        assert await world.status(lost.id) == "sending"


async def test_what_came_is_remembered_while_not_all_that_is_in_flight_was_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "LOST_CLAIMS_MAX", 1)
    await world.send(2)
    ids = {one.id for one in await world.claim(2)}
    await world.rows("UPDATE in_flight SET is_direct = true")
    async with supervising(world) as supervisor:
        await supervisor._beat()
        supervisor._offers.came.update(ids)
        await look_for_lost_claims(supervisor)
        assert supervisor._offers.came == ids


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
        # The others are free by now, but three are its share.
        assert list(supervisor._share(carrier, (), 2)) == []
        assert list(supervisor._share(carrier, (), 1)) == [1, 3]


async def test_no_bind_is_taken_while_one_of_the_same_carrier_is_left(world: World) -> None:
    """A carrier that was changed may allow fewer of them than old and new ones together."""
    async with supervising(world) as supervisor:
        await supervisor._beat()
        (held,) = supervisor._held.values()
        has_left = asyncio.Event()

        async def leave() -> None:
            await has_left.wait()

        held.leaving = asyncio.create_task(leave())
        await world.rows("UPDATE carriers SET binds = 2")
        await supervisor._beat()
        assert [number for _, number in supervisor._held] == [1]
        has_left.set()
        await held.leaving
        held.leaving = None


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
    await world.rows("UPDATE carriers SET binds = 2")
    claimed = await world.claim_one()
    async with supervising(world) as supervisor:
        await supervisor._beat()
        place = (world.carrier_id, 2)
        held = supervisor._held[place]
        async with world.engine.database.transaction() as holder:
            await holder.execute("SELECT FROM messages FOR UPDATE")
            supervisor._recorders[place[0]].put(world.taken(claimed), claimed.recipient, Owner())
            supervisor._part(place)
            await asyncio.sleep(0.2)
            assert len(await world.rows("SELECT FROM binds")) == 2
            assert held.leaving is not None
            assert not held.leaving.done()
        await held.leaving
        assert [row["number"] for row in await world.rows("SELECT number FROM binds")] == [1]
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
            await look_for_lost_claims(supervisor)
        rows = await world.rows("SELECT message_id, again FROM queue")
        assert [(row["message_id"], row["again"]) for row in rows] == [(ids[1], False)]
        assert await world.incidents() == {"doubt": 1}
        statuses = await world.rows("SELECT status FROM messages ORDER BY id")
        assert [row["status"] for row in statuses] == ["sending", "queued"]
        # What comes after all is refused, and what came is forgotten once it is settled.
        assert supervisor._offers._given_back == {ids[1]}
        await look_for_lost_claims(supervisor)
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


async def test_a_worker_hears_at_once_of_what_was_accepted_and_parts_when_it_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "LEASE_S", NEVER_S)
    async with reached(world) as smsc:
        async with running(Supervisor(world.engine.database, WORKER)):
            for place in range(3):
                number = f"+26377120010{place}"
                await world.send(to=[number])
                await until(partial(smsc.texts.to, number))
                # From the look after this one on nothing is looked for without a word of it.
                monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
        await until(lambda: not smsc.lines)
    assert await world.rows("SELECT FROM workers") == []


async def test_nothing_of_a_worker_goes_on_after_it_has_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "BEAT_S", PATIENCE_S)
    claimed = await world.claim_one()
    async with reached(world) as smsc:
        before = asyncio.all_tasks()
        async with supervising(world) as supervisor:
            await supervisor._beat()
            (held,) = supervisor._held.values()
            await until(lambda: held.sender.is_healthy)
            # What a bind that was lost had to write is written before the end.
            await world.rows("UPDATE binds SET worker = 'another'")
            await supervisor._beat()
            assert supervisor._held == {}
            writing = supervisor._recorders[world.carrier_id]
            writing.put(world.taken(claimed), claimed.recipient, Owner())
        assert await world.status(claimed.id) == "sent"
        await until(lambda: not smsc.lines and asyncio.all_tasks() <= before)


async def test_a_bind_that_is_left_takes_its_offers_back(world: World) -> None:
    web = Notes[ToWeb]()
    async with supervising(world) as supervisor, meeting(web, supervisor._offers) as (near, _):
        await supervisor._beat()
        (held,) = supervisor._held.values()
        await world.rows("UPDATE carriers SET removed_at = clock_timestamp()")
        await supervisor._beat()
        assert held.leaving is not None
        await until(lambda: web.said and isinstance(web.said[-1], Withdrawal))
        (withdrawal,) = [frame for frame in web.said if isinstance(frame, Withdrawal)]
        near.send(Finished(withdrawal.token))
        await asyncio.wait_for(held.leaving, PATIENCE_S)
        assert supervisor._held == {}


async def test_a_worker_whose_recorder_has_died_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisors, "RECORD_S", 0.05)

    async def broken(_: Recorder) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Recorder, "_breathe", broken)
    claimed = await world.claim_one()
    supervisor = Supervisor(world.engine.database, WORKER)
    await supervisor._beat()
    supervisor._recorders[world.carrier_id].put(world.taken(claimed), claimed.recipient, Owner())
    async with running(supervisor) as task:
        with pytest.raises(RuntimeError, match="a bug"):
            await asyncio.wait_for(task, PATIENCE_S)


async def test_a_carrier_is_well_as_soon_as_a_bind_of_this_worker_is(world: World) -> None:
    await world.engine.add_carrier("two", 2776, priority=200)
    async with reached(world), supervising(world) as supervisor:
        await supervisor._beat()
        held = supervisor._held[world.carrier_id, 1]
        await until(lambda: held.sender.is_healthy)
        async with world.engine.database.connection() as connection:
            active = sorted(await carriers.list_active(connection), key=lambda one: one.priority)
        # Before any bind was reported.
        supervisor._pass_on(active, (), ["ZW"], (), (), 0.0)
        served = [list(supervisor._routes.queues_of(one, trying=False)) for one in active]
        assert served == [["ZW"], []]


async def test_the_first_bind_of_a_carrier_over_http_asks_for_the_credit_left(world: World) -> None:
    with run_carrier(BulkSmsServer()) as provider:
        await world.engine.add_http_carrier("bulk", provider)
        async with supervising(world) as supervisor:
            await supervisor._beat()

            async def is_known() -> bool:
                return bool(await world.rows("SELECT FROM http_carriers WHERE balance > 0"))

            await world.engine.until(is_known, "nobody asks")


async def test_refunds_and_events_are_as_the_carrier_and_the_account_are_set(world: World) -> None:
    await world.rows("UPDATE carriers SET refund = '{failed}'")
    await add_endpoint(
        world.engine.database,
        world.caller.id,
        "http://127.0.0.1:9/",
        ["message.sent"],
        "",
        allow_private=True,
    )
    await world.send(2)
    sent, failed = await world.claim(2)
    async with supervising(world) as supervisor:
        await supervisor._beat()
        writing = supervisor._recorders[world.carrier_id]
        writing.put(world.taken(sent), sent.recipient, Owner())
        writing.put(world.refused(failed), failed.recipient, Owner())
        await writing.drain(PATIENCE_S)
        assert "message.sent" in await world.events()
        assert await world.ending(failed.id) == ("failed", "CARRIER_REJECTED", failed.cost)
