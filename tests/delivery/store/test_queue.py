"""A claim takes the next messages, once, and no more than requested."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from msgspec import structs

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import World
from tumira.audit_log import Actor
from tumira.carriers.manage import keep_simulator
from tumira.core.ids import AccountId
from tumira.delivery.lanes import BOTTOM, BULK, SMALL, Room
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.delivery.store.waiting import AVOID_S
from tumira.postgres.connection import Connection
from tumira.replies import opt_outs
from tumira.sender_names import manage as sender_names
from tumira.sender_names.manage import NameRequest
from tumira.sender_names.places import Place
from tumira.sender_names.store import SenderName

LONG: Final = "Your statement is ready. " * 8
# Rows are then found in the order in which they lie in the table.
BY_PLACE: Final = {"enable_indexscan": "off", "enable_seqscan": "off"}


def up_to(total: int) -> Room:
    return Room(total, 0, total)


async def claim(
    world: World, total: int, *wanted: ClaimRequest, worker: str = "one"
) -> Sequence[ClaimedMessage] | None:
    async with world.engine.database.transaction() as connection:
        return await queue.claim(
            connection, wanted, up_to(total), worker=worker, bind="one/1", carrier_id=world.carrier_id
        )


def places(
    small: int, bulk: int = 0, bulk_max: int = 0, floor: int = BOTTOM, name: str = "ZW"
) -> ClaimRequest:
    return ClaimRequest(name, small, bulk, bulk_max, floor, floor)


async def test_lane_0_comes_first_and_lane_1_gets_its_share_and_what_is_left_over(world: World) -> None:
    await world.send(40)
    for _ in range(2):
        await world.send(10)
    for total, asked, small, bulk in (
        (10, places(9, 1, 9), 9, 1),
        (30, places(20, 0, 15), 11, 4),
        (10, places(10, 0, 10), 0, 10),
    ):
        claimed = await claim(world, total, asked)
        assert [one.lane for one in claimed or ()] == [SMALL] * small + [BULK] * bulk


async def test_a_claim_takes_no_more_than_its_total_over_all_countries(world: World) -> None:
    await world.send(to=[*numbers(4), *(f"+2782123000{place}" for place in range(4))])
    claimed = await claim(world, 5, places(5), places(5, name="ZA"))
    assert claimed is not None
    assert len(claimed) == 5


async def test_messages_are_claimed_in_the_order_of_their_turns(world: World) -> None:
    for _ in range(3):
        await world.send(5, LONG)
    rows = await world.rows("SELECT message_id FROM queue ORDER BY turn, message_id")
    claimed = [one.id for _ in range(3) for one in await claim(world, 5, places(5)) or ()]
    assert claimed == [row["message_id"] for row in rows]


async def test_what_stands_below_the_floor_is_found_by_a_look_from_the_bottom(world: World) -> None:
    await world.send()
    (row,) = await world.rows("SELECT turn FROM queue")
    assert await claim(world, 1, places(1, floor=row["turn"] + 1)) is None
    assert await claim(world, 1, places(1, floor=row["turn"])) is not None


async def test_two_workers_that_claim_at_once_never_get_the_same_message(world: World) -> None:
    await world.send(200)

    async def work(worker: str) -> list[ClaimedMessage]:
        found: list[ClaimedMessage] = []
        while claimed := await claim(world, 7, places(7, 0, 7), worker=worker):
            found.extend(claimed)
        return found

    shares = await asyncio.gather(*(work(f"worker {place}") for place in range(4)))
    claimed = [one.id for share in shares for one in share]
    assert len(claimed) == len(set(claimed)) == 200


async def test_a_claim_does_not_wait_for_what_another_is_taking(world: World) -> None:
    for _ in range(4):
        await world.send()
    async with world.engine.database.connection() as connection:
        await connection.execute("BEGIN")
        held = await queue.claim(
            connection, [places(2)], up_to(2), worker="one", bind="one/1", carrier_id=world.carrier_id
        )
        others = await claim(world, 4, places(4), worker="other")
        await connection.execute("ROLLBACK")
    assert held is not None
    assert others is not None
    assert not {one.id for one in held} & {one.id for one in others}
    # What was undone waits where it was.
    again = await claim(world, 4, places(4))
    assert [one.id for one in again or ()] == [one.id for one in held]


async def test_a_claim_comes_with_all_that_a_hand_over_needs(world: World) -> None:
    await world.send(body=LONG)
    assert [row["status"] for row in await world.rows("SELECT status FROM batches")] == ["queued"]
    (claimed,) = await claim(world, 1, places(1)) or ()
    (batch,) = await world.rows("SELECT * FROM batches")
    assert batch["status"] == "processing"
    assert (claimed.batch_id, claimed.account_id) == (batch["id"], world.caller.id)
    assert (claimed.recipient, claimed.segments, claimed.body) == (numbers(1)[0], 2, LONG)
    assert claimed.created_at == batch["created_at"]
    assert not claimed.again
    assert await world.status(claimed.id) == "sending"


async def test_a_claim_begins_all_batches_that_it_takes_from_and_no_other(world: World) -> None:
    for text in ("Your parcel is here.", "Your order is ready.", "Your bill is paid.", "See you soon."):
        await world.send(1, text)
    claimed = await claim(world, 3, places(3)) or ()
    rows = await world.rows("SELECT id, body, status FROM batches")
    begun = {row["id"]: row["body"] for row in rows if row["status"] == "processing"}
    assert {one.batch_id: one.body for one in claimed} == begun
    assert [row["status"] for row in rows].count("queued") == 1


async def test_what_was_done_before_is_known_to_whoever_claims_again(world: World) -> None:
    claimed = await world.claim_one(LONG)
    await world.settle(world.taken(claimed, 1, complete=False), world.put_off(claimed, 2))
    await world.resume_due()
    (claimed,) = await world.claim()
    assert claimed.again
    await world.settle(world.doubtful(claimed))
    await world.resume_due()
    (claimed,) = await world.claim()
    # A carrier that has begun a message should finish it.
    assert claimed.avoid is None
    async with world.engine.database.connection() as connection:
        past = (await queue.read_past_attempts(connection, [claimed.id]))[claimed.id]
    assert (past.taken, past.retries, past.resends) == (frozenset({1}), 1, 1)


async def resent(world: World) -> None:
    (claimed,) = await world.claim()
    await world.settle(world.doubtful(claimed))
    await world.resume_due()


async def test_a_message_that_was_in_doubt_is_left_to_another_carrier_for_a_while(world: World) -> None:
    await world.send()
    await resent(world)
    avoiding = structs.replace(places(1), avoided=world.carrier_id)
    async with world.engine.database.connection() as connection:
        assert await queue.list_avoided(connection) == {("ZW", world.carrier_id)}
    assert await claim(world, 1, avoiding) is None
    (row,) = await world.rows("SELECT avoid_until - clock_timestamp() AS left FROM queue")
    assert timedelta(seconds=AVOID_S - 20) < row["left"] <= timedelta(seconds=AVOID_S)
    # Whoever could take it did not, as while another version of the worker holds the other carrier.
    await world.rows("UPDATE queue SET avoid_until = clock_timestamp()")
    (claimed,) = await claim(world, 1, avoiding) or ()
    assert (claimed.again, claimed.avoid) == (True, world.carrier_id)


async def test_another_carrier_and_a_carrier_without_another_take_it_at_once(world: World) -> None:
    await world.send(2)
    await resent(world)
    await resent(world)
    other = structs.replace(places(1), avoided=world.carrier_id + 1)
    assert len(await claim(world, 1, other) or ()) == 1
    assert len(await claim(world, 1, places(1)) or ()) == 1


async def claim_avoiding(world: World, carrier_id: int, *queues: str) -> Sequence[ClaimedMessage] | None:
    async with world.engine.database.transaction() as connection:
        return await queue.claim_avoiding(
            connection, queues, 10, worker="one", bind="two/1", carrier_id=carrier_id
        )


async def test_what_avoids_another_carrier_is_claimed_by_itself(world: World) -> None:
    await world.send(3)
    await resent(world)
    assert await claim_avoiding(world, world.carrier_id, "ZW") is None
    assert await claim_avoiding(world, world.carrier_id + 1, "ZA") is None
    (claimed,) = await claim_avoiding(world, world.carrier_id + 1, "ZW") or ()
    assert (claimed.again, claimed.avoid) == (True, world.carrier_id)
    # Given back it still does so.
    await world.settle(world.returned(claimed, again=True))
    assert len(await claim_avoiding(world, world.carrier_id + 1, "ZW") or ()) == 1


async def test_the_simulator_takes_nothing_that_avoids_a_real_carrier(world: World) -> None:
    await keep_simulator(world.engine.database, 2776)
    await world.engine.add_carrier("two", 2777)
    ids = {row["name"]: row["id"] for row in await world.rows("SELECT name, id FROM carriers")}
    await world.send()
    await resent(world)
    assert await claim_avoiding(world, ids["simulator"], "ZW") is None
    assert len(await claim_avoiding(world, ids["two"], "ZW") or ()) == 1


async def test_the_past_of_several_messages_is_that_of_each(world: World) -> None:
    await world.send(3)
    retried, resent_, fresh = await world.claim(3)
    await world.settle(world.put_off(retried), world.doubtful(resent_), world.taken(fresh))
    await world.resume_due()
    async with world.engine.database.connection() as connection:
        past = await queue.read_past_attempts(connection, [one.id for one in (retried, resent_, fresh)])
    found = [
        (past[one.id].taken, past[one.id].retries, past[one.id].resends) for one in (retried, resent_, fresh)
    ]
    assert found == [(frozenset(), 1, 0), (frozenset(), 0, 1), (frozenset({1}), 0, 0)]


async def test_a_claim_begins_at_its_floor(world: World) -> None:
    await world.send(60)
    await world.send()
    turns = {
        row["lane"]: row["turn"]
        for row in await world.rows("SELECT lane, max(turn) AS turn FROM queue GROUP BY lane")
    }
    assert turns.keys() == {SMALL, BULK}
    above = ClaimRequest("ZW", 5, 5, 5, turns[SMALL] + 1, turns[BULK] + 1)
    async with world.engine.database.transaction() as connection:
        options: dict[str, Any] = {"worker": "one", "bind": "one/1", "carrier_id": world.carrier_id}
        assert await queue.claim(connection, [above], Room(5, 5, 5), **options) is None
        last = structs.replace(above, small_floor=turns[SMALL], bulk_floor=turns[BULK])
        claimed = await queue.claim(connection, [last], Room(5, 5, 5), **options)
    assert [(one.lane, one.turn) for one in claimed or ()] == sorted(turns.items())


async def test_a_clock_is_never_lowered(world: World) -> None:
    async with world.engine.database.connection() as connection:
        assert await queue.publish_clocks(connection, {("ZW", 0): 500}) == {("ZW", 0): 500}
        assert await queue.publish_clocks(connection, {("ZW", 0): 400}) == {("ZW", 0): 500}
        assert await queue.publish_clocks(connection, {("ZW", 0): 600}) == {("ZW", 0): 600}


async def named(world: World, account_id: AccountId, name: str, *places_: Place) -> SenderName:
    request = NameRequest(name, ["ZW", "ZA"], "We tell customers that their parcels are here.")
    asked = await sender_names.ask(world.engine.database, account_id, request, Actor("owner"))
    for place in places_:
        asked = await sender_names.grant(
            world.engine.database, asked.id, place, note="", actor=Actor("operator:Rudo")
        )
    return asked


async def names_of(world: World, *to: str) -> list[str | None]:
    """Send one message to each number, and return the name that each is claimed with."""
    for one in to:
        await world.send(to=[one])
    claimed = {
        one.recipient: one.sender_name
        for name in ("ZW", "ZA")
        for one in await claim(world, 9, places(9, name=name)) or ()
    }
    return [claimed[one] for one in to]


async def test_a_claim_comes_with_the_name_that_is_granted_for_its_account_and_network(world: World) -> None:
    econet, netone, telecel, african = "+263771200001", "+263712000001", "+263732000001", "+27821230001"
    everywhere = (econet, netone, telecel, african)
    other = await world.engine.open_account()
    await named(world, other.id, "Other Shop", Place("ZW"), Place("ZA"))
    # Nothing is granted to this account yet, and what is only asked for does not count.
    moyo = await named(world, world.caller.id, "Moyo Stores")
    assert await names_of(world, *everywhere) == [None] * 4
    database, actor = world.engine.database, Actor("operator:Rudo")
    await sender_names.grant(database, moyo.id, Place("ZW"), note="", actor=actor)
    assert await names_of(world, *everywhere) == ["Moyo Stores"] * 3 + [None]
    # The decision for a network counts more than that for its country.
    await named(world, world.caller.id, "Moyo Farm", Place("ZW", "netone"))
    await sender_names.refuse(database, moyo.id, Place("ZW", "telecel"), note="Codes only", actor=actor)
    assert await names_of(world, *everywhere) == ["Moyo Stores", "Moyo Farm", None, None]
    await sender_names.revoke(database, moyo.id, Place("ZW"), note="Asked by the network", actor=actor)
    assert await names_of(world, *everywhere) == [None, "Moyo Farm", None, None]


async def test_a_claim_says_who_opted_out_of_the_messages_of_its_account(world: World) -> None:
    out, in_, of_other = numbers(3)
    other = await world.engine.open_account()
    async with world.engine.database.transaction() as connection:
        await opt_outs.add(connection, other.id, [of_other], opt_outs.OptOutSource.PAGE)
    await world.send(to=[of_other])
    (claimed,) = await claim(world, 1, places(1)) or ()
    assert not claimed.opted_out
    await world.send(to=[out])
    await world.send(to=[in_])
    await world.send(to=[of_other])
    async with world.engine.database.transaction() as connection:
        await opt_outs.add(connection, world.caller.id, [out], opt_outs.OptOutSource.PAGE)
    found = await claim(world, 9, places(9)) or ()
    assert {one.recipient for one in found if one.opted_out} == {out}
    assert len(found) == 3


async def test_each_message_of_a_claim_comes_once_also_where_networks_are_called_alike(world: World) -> None:
    """The network of numbers that no network is known for is called `other` in both countries."""
    to = ["+263741200001", "+27851230001", "+263771200001", "+27821230001"]
    await world.send(to=to)
    claimed = await claim(world, 9, places(9), places(9, name="ZA")) or ()
    assert sorted(one.recipient for one in claimed) == sorted(to)
    assert {one.country for one in claimed if one.network == "other"} == {"ZW", "ZA"}


async def test_what_lane_0_takes_is_not_there_for_lane_1(world: World) -> None:
    await world.send(40)
    await world.send(8)

    async def lanes(total: Room, *wanted: ClaimRequest) -> tuple[int, int]:
        async with world.engine.database.transaction() as connection:
            claimed = await queue.claim(
                connection, wanted, total, worker="one", bind="one/1", carrier_id=world.carrier_id
            )
            await connection.execute("ROLLBACK; BEGIN")
        found = [one.lane for one in claimed or ()]
        return found.count(SMALL), found.count(BULK)

    many = places(99, 99, 99)
    # Of the whole claim: what is left of the total, or the least that lane 1 gets.
    assert await lanes(Room(99, 0, 12), many) == (8, 4)
    assert await lanes(Room(99, 0, 8), many) == (8, 0)
    assert await lanes(Room(99, 5, 8), many) == (8, 5)
    assert await lanes(Room(3, 5, 4), many) == (3, 5)
    # Of one queue: the same.
    assert await lanes(Room(99, 99, 99), places(99, 0, 12)) == (8, 4)
    assert await lanes(Room(99, 99, 99), places(99, 6, 9)) == (8, 6)
    assert await lanes(Room(99, 99, 99), places(2, 0, 9)) == (2, 7)


async def test_a_claim_leaves_alone_what_lies_between_the_messages_that_it_takes(world: World) -> None:
    zimbabwe, africa = numbers(3), [f"+2782123000{place}" for place in range(2)]
    for to in (zimbabwe[0], africa[0], zimbabwe[1], africa[1], zimbabwe[2]):
        await world.send(to=[to])
    assert len(await claim(world, 9, places(9)) or ()) == 3
    rows = await world.rows(
        "SELECT m.country, m.status AS message, b.status AS batch FROM messages m"
        " JOIN batches b ON b.id = m.batch_id"
    )
    found = {(row["country"], row["message"], row["batch"]) for row in rows}
    assert found == {("ZW", "sending", "processing"), ("ZA", "queued", "queued")}


async def test_a_claim_begins_every_one_of_many_batches(world: World) -> None:
    for _ in range(16):
        await world.send()
    assert len(await claim(world, 16, places(16)) or ()) == 16
    rows = await world.rows("SELECT DISTINCT status FROM batches")
    assert [row["status"] for row in rows] == ["processing"]


async def settle_what_is_being_claimed(world: World) -> None:
    """Expire all that waits while another session holds its rows of the queue, so that these are left."""
    async with world.engine.database.transaction() as claiming:
        await claiming.execute("SELECT FROM queue FOR UPDATE")
        assert await world.expire_waiting(timedelta(hours=25)) > 0


async def test_what_was_settled_while_it_was_claimed_is_let_go(world: World) -> None:
    await world.send(2)
    await settle_what_is_being_claimed(world)
    await world.send()
    (claimed,) = await claim(world, 9, places(9)) or ()
    assert await world.engine.statuses() == {"expired": 2, "sending": 1}
    assert [row["message_id"] for row in await world.rows("SELECT message_id FROM in_flight")] == [claimed.id]
    # A claim that found nothing else has emptied the queue all the same, and has to be committed.
    await world.send()
    await settle_what_is_being_claimed(world)
    assert await claim(world, 9, places(9)) == []
    assert await claim(world, 9, places(9)) is None
    assert await world.engine.statuses() == {"expired": 3, "sending": 1}
    assert len(await world.rows("SELECT FROM in_flight")) == 1


async def test_a_claim_of_several_queues_comes_in_the_order_of_turns(world: World) -> None:
    for place in range(3):
        await world.send(to=[numbers(3)[place]])
        await world.send(to=[f"+2782123000{place}"])
    claimed = await claim(world, 9, places(9), places(9, name="ZA")) or ()
    turns = [one.turn for one in claimed]
    assert turns == sorted(turns)
    # Neither queue came as a whole before the other.
    by_queue = {name: [one.turn for one in claimed if one.queue == name] for name in ("ZW", "ZA")}
    assert max(by_queue["ZW"]) > min(by_queue["ZA"])
    assert max(by_queue["ZA"]) > min(by_queue["ZW"])


async def test_what_lane_0_takes_of_one_queue_is_left_to_lane_1_of_another(world: World) -> None:
    await world.send(40)
    await world.send(to=[f"+2782123000{place}" for place in range(8)])
    wanted = [places(99, 0, 12), places(99, 0, 12, name="ZA")]
    async with world.engine.database.transaction() as connection:
        claimed = await queue.claim(
            connection, wanted, Room(99, 0, 99), worker="one", bind="one/1", carrier_id=world.carrier_id
        )
    found = [(one.queue, one.lane) for one in claimed or ()]
    assert found.count(("ZA", SMALL)) == 8
    assert found.count(("ZW", BULK)) == len(found) - 8 == 12


async def give_back(world: World, count: int, *, avoid: int | None = None) -> Sequence[ClaimedMessage]:
    """Claim messages and give them back the last one first, so that they lie in the queue in that order."""
    for _ in range(count):
        await world.send()
    claimed = [structs.replace(one, avoid=avoid) for one in await world.claim(count)]
    for one in reversed(claimed):
        await world.settle(world.returned(one))
    return claimed


@asynccontextmanager
async def reading_by_place(world: World) -> AsyncIterator[Connection]:
    line = await world.engine.database.connect(BY_PLACE)
    try:
        async with line.transaction():
            yield line
    finally:
        await line.close()


async def test_what_is_given_back_waits_in_its_old_turn(world: World) -> None:
    claimed = await give_back(world, 3)
    async with reading_by_place(world) as line:
        found = await queue.claim(
            line, [places(2)], up_to(2), worker="one", bind="one/1", carrier_id=world.carrier_id
        )
    assert [one.id for one in found or ()] == [one.id for one in claimed[:2]]


async def test_what_avoids_a_carrier_is_claimed_in_turn_and_up_to_a_total(world: World) -> None:
    claimed = await give_back(world, 3, avoid=world.carrier_id)
    await world.send()
    async with reading_by_place(world) as line:
        # What avoids nobody is not among it.
        assert await queue.list_avoided(line) == {("ZW", world.carrier_id)}
        found = await queue.claim_avoiding(
            line, ["ZW"], 2, worker="one", bind="two/1", carrier_id=world.carrier_id + 1
        )
    assert [one.id for one in found or ()] == [one.id for one in claimed[:2]]


async def test_two_workers_that_relieve_a_carrier_at_once_never_get_the_same_message(world: World) -> None:
    first, second = await give_back(world, 2, avoid=world.carrier_id)
    options: dict[str, Any] = {"bind": "two/1", "carrier_id": world.carrier_id + 1}
    async with world.engine.database.transaction() as holder:
        held = await queue.claim_avoiding(holder, ["ZW"], 1, worker="one", **options)
        async with world.engine.database.transaction() as connection:
            # The other one waits for nobody.
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            others = await queue.claim_avoiding(connection, ["ZW"], 9, worker="other", **options)
    assert [one.id for one in held or ()] == [first.id]
    assert [one.id for one in others or ()] == [second.id]


async def test_a_refusal_of_a_network_is_for_one_name_in_one_country(world: World) -> None:
    """The network of numbers that no network is known for is called `other` in both countries."""
    zimbabwe, africa = "+263741200001", "+27851230001"
    database, actor = world.engine.database, Actor("operator:Rudo")
    farm = await named(world, world.caller.id, "Moyo Farm", Place("ZW"), Place("ZA"))
    stores = await named(world, world.caller.id, "Moyo Stores")
    for name, country in ((farm, "ZA"), (stores, "ZW")):
        await sender_names.refuse(database, name.id, Place(country, "other"), note="Codes only", actor=actor)
    assert await names_of(world, zimbabwe, africa) == ["Moyo Farm", None]


async def test_the_reference_of_any_segment_that_was_taken_is_kept_for_the_others(world: World) -> None:
    claimed = await world.claim_one(LONG + LONG)
    assert claimed.segments == 3
    plain, joined = (world.taken(claimed, number, complete=False) for number in (1, 2))
    await world.settle(plain)
    async with world.engine.database.connection() as connection:
        past = (await queue.read_past_attempts(connection, [claimed.id]))[claimed.id]
        assert (past.taken, past.reference) == (frozenset({1}), None)
        await world.settle(structs.replace(joined, part=structs.replace(joined.part, reference=77)))
        past = (await queue.read_past_attempts(connection, [claimed.id]))[claimed.id]
    assert (past.taken, past.reference) == (frozenset({1, 2}), 77)
