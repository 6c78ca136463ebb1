"""A claim takes the next messages, once, and no more than requested."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import World
from tumira.delivery.lanes import BOTTOM, BULK, SMALL, Room
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest

LONG: Final = "Your statement is ready. " * 8


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


async def test_what_avoids_another_carrier_is_claimed_by_itself(world: World) -> None:
    await world.send(3)
    await resent(world)

    async def claim_avoiding(carrier_id: int, *queues: str) -> Sequence[ClaimedMessage] | None:
        async with world.engine.database.transaction() as connection:
            return await queue.claim_avoiding(
                connection, queues, 10, worker="one", bind="two/1", carrier_id=carrier_id
            )

    assert await claim_avoiding(world.carrier_id, "ZW") is None
    assert await claim_avoiding(world.carrier_id + 1, "ZA") is None
    (claimed,) = await claim_avoiding(world.carrier_id + 1, "ZW") or ()
    assert (claimed.again, claimed.avoid) == (True, world.carrier_id)
    # Given back it still does so.
    await world.settle(world.returned(claimed, again=True))
    assert len(await claim_avoiding(world.carrier_id + 1, "ZW") or ()) == 1


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
