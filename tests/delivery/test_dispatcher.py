"""A claim is submitted once it is known to be committed, and once only."""

from dataclasses import replace
from decimal import Decimal
from typing import Final

import pytest
from msgspec import structs

from tests.support.delivery.paper_link import open_dispatcher, open_line
from tests.support.delivery.settling import BLOCKED, WORKER, World
from tests.support.sending.batchers import until
from tests.support.sending.peers import Notes, meeting
from tumira.carriers.routes.rules import CarrierRoute
from tumira.delivery import dispatcher
from tumira.delivery.direct_offers import DirectOffers
from tumira.delivery.lanes import Room
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimRequest
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.sending.direct.wire import Offer, ToWeb

WAIT_S: Final = 20.0


@pytest.mark.parametrize("committed", [True, False])
async def test_a_claim_whose_commit_is_unknown_is_submitted_once(
    world: World, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    monkeypatch.setattr(dispatcher, "PAUSE_S", 0.01)
    real = PinnedConnection.commit
    lost: list[int] = []

    async def commit(self: PinnedConnection, *, durable: bool = True) -> None:
        if lost:
            await real(self, durable=durable)
            return
        lost.append(1)
        if committed:
            await real(self, durable=durable)
        self.terminate()
        raise ConnectionError("the answer is lost")

    await world.send(3)
    async with open_line(world) as line:
        line.renew()
        monkeypatch.setattr(PinnedConnection, "commit", commit)
        async with open_dispatcher(world, line):

            async def submitted() -> bool:
                return len(line.link.submits) >= 3

            await world.engine.until(submitted, "the claim was lost", WAIT_S)
        assert lost
        assert len(set(line.link.submits)) == len(line.link.submits) == 3
        assert await world.engine.statuses() == {"sending": 3}
        assert await world.incidents() == {}


async def test_a_claim_that_another_worker_has_by_now_is_not_submitted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fail-over may have undone it: who has the message now is read again before it is submitted."""
    monkeypatch.setattr(dispatcher, "PAUSE_S", 0.01)
    real = PinnedConnection.commit
    lost: list[int] = []

    async def commit(self: PinnedConnection, *, durable: bool = True) -> None:
        await real(self, durable=durable)
        if not lost:
            lost.append(1)
            await world.rows("UPDATE in_flight SET worker = 'another' WHERE message_id = $1", second.id)
            raise ConnectionError("the answer is lost")

    await world.send(2)
    first, second = sorted(await world.claim(2), key=lambda one: one.id)
    await world.settle(world.returned(first), world.returned(second))
    async with open_line(world) as line:
        line.renew()
        monkeypatch.setattr(PinnedConnection, "commit", commit)
        async with open_dispatcher(world, line) as claiming:

            async def looked() -> bool:
                return bool(line.link.submits) and claiming._unsure is None

            await world.engine.until(looked, "the claim was lost", WAIT_S)
        assert line.link.submits == [(first.id, 1)]
        assert list(line.sender.claimed) == [first.id]


async def test_what_another_carrier_left_in_doubt_is_claimed_before_its_own_queues(world: World) -> None:
    await world.send(1, to=["+263771200001"])
    (doubted,) = await world.claim()
    await world.settle(world.doubtful(doubted))
    await world.resume_due()
    await world.rows("UPDATE queue SET avoid = $1", world.carrier_id + 1)
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        line.renew()
        # It serves none of its own, so it has only what others left.
        line.routes._relieving = {world.carrier_id: ("ZW",)}
        # Its own wait until the next claim: the room was for these.
        await world.send(1, to=["+263771200002"])
        assert await claiming._claim_within(Room(5, 0, 5))
        assert line.link.submits == [(doubted.id, 1)]
        assert not await claiming._claim_relieved(5)
        # Nor while it is not well.
        await world.settle(world.returned(doubted, again=True))
        await world.rows("UPDATE queue SET avoid = $1", world.carrier_id + 1)
        line.sender._circuit.half_open(line.sender._loop.time())
        assert not await claiming._claim_relieved(5)
        line.routes._relieving = {}
        assert not await claiming._claim_relieved(5)


async def test_a_sender_without_a_lease_claims_nothing(world: World) -> None:
    await world.send(2)
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        for _ in range(3):
            claiming.wake()
            await world.rows("SELECT pg_sleep(0.01)")
        assert await world.engine.statuses() == {"queued": 2}
        line.renew()
        claiming.wake()

        async def submitted() -> bool:
            return len(line.link.submits) == 2

        await world.engine.until(submitted, "nothing was claimed", WAIT_S)


async def test_a_message_goes_out_under_the_sender_of_its_route_unless_its_account_has_a_name(
    world: World,
) -> None:
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        carrier = line.sender.carrier
        route = CarrierRoute(carrier.id, "one", "ZW", None, 1, Decimal("0.01"), "USD", Decimal(1), "Route")
        line.routes.renew([carrier], {carrier.id}, ["ZW"], routes=[route])
        await world.send(2)
        plain, other = await world.claim(2)
        named = structs.replace(other, sender_name="Moyo Stores")
        claiming._submit([plain, named], {}, {})
        senders = {id_: one.sender for id_, one in line.sender.claimed.items()}
        assert senders == {plain.id: "Route", named.id: "Moyo Stores"}
        costs = [one.cost for one in line.sender.claimed.values()]
        assert [None if one is None else one.amount for one in costs] == [Decimal("0.01")] * 2


async def test_the_room_is_shared_by_what_each_queue_had_and_each_comes_first_in_turn(world: World) -> None:
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        line.renew()
        carrier = line.sender.carrier

        def shares(small: int, bulk: int, bulk_max: int) -> list[tuple[str, int, int, int]]:
            wanted = claiming._wanted(Room(small, bulk, bulk_max))
            return [(one.queue, one.small, one.bulk, one.bulk_max) for one in wanted]

        # Few places are offered to all of them.
        first, second = shares(7, 3, 7), shares(7, 3, 7)
        assert sorted(first) == sorted(second) == [("ZA", 7, 3, 7), ("ZW", 7, 3, 7)]
        assert first != second
        # Eight are enough to be divided, and nobody gets none.
        assert sorted(shares(8, 8, 16)) == [("ZA", 4, 4, 8), ("ZW", 4, 4, 8)]
        claiming._found = {"ZW": 29, "ZA": 1}
        assert sorted(shares(16, 8, 64)) == [("ZA", 1, 1, 4), ("ZW", 15, 7, 60)]
        assert [one.avoided for one in claiming._wanted(Room(1, 0, 1))] == [None, None]
        line.routes._relieved = {carrier.id: {"ZW"}}
        avoided = {one.queue: one.avoided for one in claiming._wanted(Room(1, 0, 1))}
        assert avoided == {"ZW": carrier.id, "ZA": None}
        line.routes.renew([], set(), [])
        assert claiming._wanted(Room(1, 0, 1)) == []


async def test_a_claim_is_due_with_room_for_news_or_with_enough_for_what_waits(world: World) -> None:
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        enough = max(1, line.sender.ahead // 2)
        claiming._notified = True
        due = [claiming._is_due(room) for room in (Room(0, 0, 0), Room(1, 0, 0), Room(0, 0, 1))]
        assert due == [False, True, True]
        claiming._notified = False
        rooms = [Room(enough - 1, 0, enough - 1), Room(enough, 0, 0), Room(0, 0, enough)]
        for more, expected in (
            ((False, False), [False, False, False]),
            ((True, False), [False, True, False]),
            ((False, True), [False, False, True]),
        ):
            claiming._more = more
            assert [claiming._is_due(room) for room in rooms] == expected
        # A carrier that holds one message ahead is claimed for one by one.
        carrier = line.sender.carrier
        line.sender.carrier = replace(carrier, settings=replace(carrier.settings, window_size=1))
        assert line.sender.ahead == 1
        assert claiming._is_due(Room(0, 0, 1))


async def test_more_may_wait_where_a_claim_took_all_that_it_might(world: World) -> None:
    await world.send(3)
    claimed = await world.claim(3)
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True

        def more(small: int, bulk: int, bulk_max: int, total: Room) -> tuple[bool, bool]:
            claiming._note([ClaimRequest("ZW", small, bulk, bulk_max, 0, 0)], total, claimed)
            return claiming._more

        many = Room(99, 0, 99)
        # Three of lane 0 were found, and none of lane 1.
        assert more(3, 1, 9, many) == (True, False)
        assert more(4, 1, 9, many) == (False, False)
        assert more(4, 0, 3, many) == (False, True)
        # Lane 1 is certain of no place, and had six that lane 0 left.
        assert more(4, 0, 9, many) == (False, False)
        assert more(4, 1, 9, Room(3, 0, 99)) == (True, False)
        assert more(4, 1, 9, Room(99, 0, 3)) == (False, True)
        assert claiming._found == {"ZW": 3}


async def test_only_queues_with_messages_wait(world: World) -> None:
    await world.send()
    async with world.engine.database.connection() as connection:
        assert await queue.list_waiting_queues(connection, ["ZA", "ZW", "ZW-econet"]) == ["ZW"]


async def test_what_a_claim_found_is_noted(world: World) -> None:
    await world.send(3)
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        line.renew()
        assert await claiming._claim([ClaimRequest("ZW", 3, 0, 3, 0, 0)], Room(3, 0, 3)) == 3
        assert (claiming._found, claiming._more[0]) == ({"ZW": 3}, True)
        assert await claiming._claim([ClaimRequest("ZW", 3, 0, 3, 0, 0)], Room(3, 0, 3)) == 0
        assert (claiming._found, claiming._more[0]) == ({"ZW": 0}, False)


async def test_a_claim_that_hangs_is_given_up_when_its_bind_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "CLOSE_S", 0.05)
    await world.send()

    async def hangs() -> bool:
        return bool(await world.rows(BLOCKED))

    async with open_line(world) as line, world.engine.database.transaction() as holder:
        await holder.execute("LOCK TABLE queue")
        line.renew()
        async with open_dispatcher(world, line) as claiming:
            await world.engine.until(hangs, "nothing was claimed", WAIT_S)
        assert claiming._task.cancelled()
    assert await world.engine.statuses() == {"queued": 1}


async def test_places_are_offered_once_its_queues_were_looked_into(world: World) -> None:
    offers, web = DirectOffers(WORKER, world.engine.database.clock), Notes[ToWeb]()

    def limits() -> list[int]:
        return [frame.limit for frame in web.said if isinstance(frame, Offer)]

    await world.send()
    async with (
        open_line(world) as line,
        open_dispatcher(world, line) as claiming,
        meeting(web, offers),
    ):
        carrier = line.sender.carrier
        claiming._offer = offers.add(line.sender.name, carrier.id, claiming._take_direct)
        # It serves no queue at first.
        line.routes.renew([], set(), [])
        line.renew()
        claiming.wake()
        await until(lambda: claiming._rounds and not claiming._is_looking)
        line.routes.renew([carrier], {carrier.id}, ["ZW"])
        claiming.room()
        await until(lambda: limits() and limits()[-1] > 0)
        # What waited is submitted before.
        assert limits()[0] == 0
        assert len(line.link.submits) == 1


async def test_a_dispatcher_ends_by_itself(world: World) -> None:
    async with open_line(world) as line:
        line.renew()
        async with open_dispatcher(world, line) as claiming:
            await until(lambda: claiming._rounds)
        assert not claiming._task.cancelled()
