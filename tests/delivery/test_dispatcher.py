"""A claim is submitted once it is known to be committed, and once only."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest
from msgspec import structs

from tests.support.delivery.engine import numbers
from tests.support.delivery.paper_link import open_dispatcher, open_line
from tests.support.delivery.settling import BLOCKED, World
from tests.support.sending.batchers import PATIENCE_S, until
from tumira.carriers.routes.rules import CarrierRoute
from tumira.delivery import dispatcher
from tumira.delivery.lanes import BOTTOM, FLOOR_AGE_S, SMALL, Room
from tumira.delivery.link import NO_REFERENCES, References
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest, PastAttempts
from tumira.postgres.connection import Connection
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.replies import opt_outs
from tumira.replies.opt_outs import OptOutSource

WAIT_S: Final = 20.0
NEVER_S: Final = 1000.0
IDLE_TRANSACTIONS: Final = (
    "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
)
# Locks of transactions that nobody uses at the moment.
LEFT_LOCKS: Final = """
SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
 WHERE relation = $1::text::regclass AND state = 'idle in transaction'
"""
SESSIONS: Final = """
SELECT pid FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND datname = current_database()
"""


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
        assert await claiming._claim_within(Room(5, 0, 0))
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
        # A carrier in reserve serves none, and tries what it covers while it is not well.
        better = replace(carrier, id=carrier.id + 1, priority=carrier.priority - 1)
        line.routes.renew([better, carrier], {better.id, carrier.id}, ["ZW"])
        assert claiming._wanted(Room(1, 0, 1)) == []
        line.link.is_up = False
        assert [one.queue for one in claiming._wanted(Room(1, 0, 1))] == ["ZW"]


async def test_a_claim_looks_from_the_floor_of_each_lane_that_has_room(world: World) -> None:
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        line.renew()
        floors = [
            [(one.small_floor, one.bulk_floor) for one in claiming._wanted(room)]
            for room in (Room(1, 0, 0), Room(0, 1, 1))
        ]
        # At first each is looked at as a whole.
        assert floors == [[(BOTTOM, 0)] * 2, [(0, BOTTOM)] * 2]


async def test_messages_of_many_segments_take_more_of_the_room(world: World) -> None:
    claimed = await world.claim_one()
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        room = Room(66, 33, 66)
        assert claiming._messages(room) == room
        claiming._submit([structs.replace(claimed, segments=3, body="Your order is here. " * 18)], {}, {})
        # The average grows by a sixty-fourth of what a message has more.
        assert claiming._messages(room) == Room(64, 32, 64)


async def test_what_a_claim_leaves_is_claimed_at_once_while_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
    await world.send(10)
    async with open_line(world) as line:
        line.renew()
        async with open_dispatcher(world, line) as claiming:
            # Nearly all came from the other queue lately, so the first claim is for one message of this.
            claiming._found = {"ZA": 999}
            await until(lambda: len(line.link.submits) == 10)


async def test_what_waits_is_claimed_as_soon_as_there_is_room_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
    await world.rows("UPDATE carriers SET window_size = 4")
    await world.send(10)
    async with open_line(world) as line:
        line.renew()
        async with open_dispatcher(world, line) as claiming:
            await until(lambda: len(line.sender.claimed) == 8)
            # Half of what may be held ahead is worth a claim, and less is not worth a look.
            looks = []
            for place in line.link.submits[:2]:
                line.link.answer(place)
                claiming.room()
                looks.append(claiming._woken.is_set())
            assert looks == [False, True]
            await until(lambda: len(line.sender.claimed) == 8)

            def is_empty() -> bool:
                """Answer everything, and tell whether nothing more waits."""
                for place in list(line.link.open):
                    line.link.answer(place)
                claiming.room()
                return not line.sender.claimed and not any(claiming._more)

            await until(is_empty)
            # What is accepted while nothing can be submitted is claimed when something can.
            line.link.is_usable = False
            await world.send(1, to=["+263771200099"])
            claiming.wake()
            await until(lambda: not claiming._woken.is_set())
            line.link.is_usable = True
            claiming.room()
            await until(lambda: len(line.link.submits) == 11)


async def test_a_look_that_was_not_waited_for_is_not_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LOOK_S", 0.2)
    wakes: list[float] = []
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        wake = claiming.wake

        def noting() -> None:
            wakes.append(asyncio.get_running_loop().time())
            wake()

        claiming.wake = noting  # type: ignore[method-assign]
        line.renew()
        await until(lambda: claiming._rounds and not claiming._is_looking)
        monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
        rounds = claiming._rounds
        wake()
        await until(lambda: claiming._rounds > rounds and not claiming._is_looking)
        wakes.clear()
        # The loop calls what is due earlier before it goes on here.
        await asyncio.sleep(0.21)
        assert wakes == []


async def test_a_claim_that_the_database_refused_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "PAUSE_S", 0.01)
    await world.send()
    await world.rows("ALTER TABLE in_flight ADD CONSTRAINT refusing CHECK (false) NOT VALID")
    async with open_line(world) as line:
        line.renew()
        async with open_dispatcher(world, line) as claiming:
            await until(lambda: claiming._rounds > 1)
            await world.rows("ALTER TABLE in_flight DROP CONSTRAINT refusing")
            await until(lambda: line.link.submits)
    assert await world.engine.statuses() == {"sending": 1}


async def test_a_lost_claim_that_is_gone_once_what_was_read_is_safe_is_not_submitted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first read may see what the standby does not have, and a fail-over takes it away."""
    await world.send(2)
    first, second = await world.claim(2)
    real = PinnedConnection.end_sure

    async def fail_over(self: PinnedConnection) -> None:
        await real(self)
        await world.rows("UPDATE in_flight SET worker = 'another' WHERE message_id = $1", second.id)

    monkeypatch.setattr(PinnedConnection, "end_sure", fail_over)
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        line.renew()
        await claiming._make_sure([first, second], {}, {})
        assert line.link.submits == [(first.id, 1)]
        assert await world.rows(LEFT_LOCKS, "in_flight") == []


async def test_a_claim_that_found_nothing_holds_no_lock(world: World) -> None:
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        line.renew()
        assert await claiming._claim([ClaimRequest("ZW", 3, 0, 3, 0, 0)], Room(3, 0, 3)) == 0
        assert await world.rows(LEFT_LOCKS, "queue") == []


async def test_no_transaction_is_kept_open_while_another_carrier_serves_the_queues(world: World) -> None:
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        line.renew()
        assert not await claiming._claim_within(Room(1, 0, 1))
        # The next claim is begun ahead.
        assert len(await world.rows(IDLE_TRANSACTIONS)) == 1
        line.routes.renew([], set(), [])
        assert not await claiming._claim_within(Room(1, 0, 1))
        assert await world.rows(IDLE_TRANSACTIONS) == []


async def test_a_link_stores_what_it_has_to_know_with_the_claim(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.send(2)
    fresh, retried = sorted(await world.claim(2), key=lambda one: one.id)
    await world.settle(world.returned(fresh), world.put_off(retried))
    await world.resume_due()
    told: list[tuple[list[UUID], dict[UUID, int], int]] = []

    async def register(
        connection: Connection, claimed: Sequence[ClaimedMessage], past: Mapping[UUID, PastAttempts]
    ) -> References:
        retries = {id_: one.retries for id_, one in past.items()}
        # Nobody else sees the claim yet.
        inside = len(await connection.fetch("SELECT FROM in_flight"))
        outside = len(await world.rows("SELECT FROM in_flight"))
        told.append((sorted(one.id for one in claimed), retries, inside - outside))
        return NO_REFERENCES

    async with open_line(world) as line:
        monkeypatch.setattr(line.link, "register", register)
        line.renew()
        async with open_dispatcher(world, line):
            await until(lambda: len(line.link.submits) == 2)
    assert told == [([fresh.id, retried.id], {retried.id: 1}, 2)]


@pytest.mark.parametrize("covers_passcodes", [False, True])
async def test_a_passcode_alone_goes_to_recipients_who_have_opted_out(
    world: World, *, covers_passcodes: bool
) -> None:
    code, notice, *many = numbers(13)
    await world.send(to=[code])
    await world.send(to=[notice], body="Your parcel is here.")
    # A text to as many is no code, whatever it says.
    await world.send(to=many)
    await world.rows("UPDATE opt_out_settings SET covers_passcodes = $1", covers_passcodes)
    async with world.engine.database.connection() as connection:
        await opt_outs.add(connection, world.caller.id, [code, notice, many[0]], OptOutSource.REPLY)
    allowed = {*many[1:]} | (set() if covers_passcodes else {code})
    async with open_line(world) as line:
        line.renew()
        async with open_dispatcher(world, line):
            await until(lambda: len(line.link.submits) >= len(allowed))
            rows = await world.rows("SELECT id, recipient FROM messages")
            recipients = {row["id"]: row["recipient"] for row in rows}
            assert {recipients[id_] for id_, _ in line.link.submits} == allowed

            async def is_settled() -> bool:
                settled = {"sending": len(allowed), "failed": 13 - len(allowed)}
                return await world.engine.statuses() == settled

            await world.engine.until(is_settled, "not all were refused", WAIT_S)


async def test_the_clock_of_a_queue_follows_what_is_claimed_from_it_or_past_it(world: World) -> None:
    await world.send(3)
    one, low, high = await world.claim(3)
    database, time = world.engine.database, asyncio.get_running_loop().time
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        clocks = claiming._clocks
        claiming._take_direct([structs.replace(one, turn=900)])
        await asyncio.wait_for(clocks.publish(database), PATIENCE_S)
        began = time()
        assert clocks.begin(began, "ZW", SMALL) == BOTTOM
        claiming._take_direct([structs.replace(low, turn=300), structs.replace(high, turn=1200)])
        # What waits near the lowest turn that was claimed lately is not passed over.
        assert clocks.begin(began + FLOOR_AGE_S, "ZW", SMALL) == 300
        await asyncio.wait_for(clocks.publish(database), PATIENCE_S)
        assert [tuple(row) for row in await world.rows("SELECT country, lane, turn FROM clocks")] == [
            ("ZW", SMALL, 1200)
        ]


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
        # One place of either lane is left.
        assert more(4, 1, 9, Room(4, 0, 4)) == (False, False)
        assert claiming._found == {"ZW": 3}
        claimed = [structs.replace(one, lane=1) for one in claimed]
        assert more(1, 1, 9, Room(99, 0, 3)) == (False, True)
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
        await world.send(1, to=["+263771200009"])
        assert await claiming._claim([ClaimRequest("ZW", 3, 0, 3, 0, 0)], Room(3, 0, 3)) == 1


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


async def test_a_dispatcher_ends_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is not kept waiting by its own pauses.
    monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
    monkeypatch.setattr(dispatcher, "PAUSE_S", NEVER_S)
    async with open_line(world) as line:
        line.renew()
        before = await world.rows(SESSIONS)
        async with open_dispatcher(world, line) as claiming:
            await until(lambda: claiming._rounds and not claiming._is_looking)
            during = await world.rows(SESSIONS)
        assert not claiming._task.cancelled()
        own = set(during) - set(before)
        assert own

        async def is_disconnected() -> bool:
            return not own & set(await world.rows(SESSIONS))

        await world.engine.until(is_disconnected, "its connection is left", WAIT_S)
