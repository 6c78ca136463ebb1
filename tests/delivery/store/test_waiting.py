"""A waiting message is in one place; it is found there, and moved or taken out without touching any other."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import pytest

from tests.support.delivery.settling import BLOCKED, World
from tumira.carriers.routes.manage import add_route
from tumira.core.ids import MessageId
from tumira.delivery.store import binds
from tumira.delivery.store import waiting as places
from tumira.delivery.store.waiting import AVOID_S, BatchFacts, NewRetry, QueueEntry, QueuePlace
from tumira.postgres.connection import Connection
from tumira.pricing.networks import OTHER

NOON: Final = datetime(2026, 11, 17, 12, tzinfo=UTC)
ENDS: Final = NOON + timedelta(hours=24)
MOMENT: Final = timedelta(microseconds=1)
ECONET: Final = "ZW-econet"
LAST_ID: Final = UUID(int=2**128 - 1)
# Where a message was found, and where it may be by now: at another turn, in another lane, in another queue.
KNOWN: Final[QueuePlace] = ("ZW", 0, 7)
ELSEWHERE: Final[Sequence[QueuePlace]] = (("ZW", 0, 8), ("ZW", 1, 7), (ECONET, 0, 7))
# Rows are then found in the order in which they lie in the table.
BY_PLACE: Final = "SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = off"


def one(place: int) -> MessageId:
    return MessageId(UUID(int=place))


def entry(
    place: int,
    network: str | None = "econet",
    *,
    country: str = "ZW",
    queue: str | None = None,
    lane: int = 0,
    turn: int | None = None,
    avoid: int | None = None,
) -> QueueEntry:
    again = avoid is not None
    return QueueEntry(one(place), country, network, queue, lane, turn, again, ENDS, avoid)


def retry(place: int, wait_s: float = 0.0, *, in_doubt: bool = False, carrier_id: int = 7) -> NewRetry:
    return NewRetry(one(place), wait_s, in_doubt, carrier_id)


async def queued(connection: Connection) -> Mapping[UUID, QueuePlace]:
    rows = await connection.fetch("SELECT message_id, country, lane, turn FROM queue")
    found = {row["message_id"]: (row["country"], row["lane"], row["turn"]) for row in rows}
    assert len(found) == len(rows)
    return found


async def ids_in(connection: Connection, table: str) -> Sequence[UUID]:
    return [row[0] for row in await connection.fetch(f"SELECT message_id FROM {table} ORDER BY message_id")]


async def claim(connection: Connection, message_id: UUID, worker: str, *, is_direct: bool = False) -> None:
    await connection.execute(
        "INSERT INTO in_flight (message_id, worker, bind, claimed_at, carrier_id, is_direct)"
        " VALUES ($1, $2, 'one/1', $3, 7, $4)",
        message_id,
        worker,
        NOON,
        is_direct,
    )


async def set_clocks(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO clocks (country, lane, turn) VALUES"
        " ('ZA', 0, 100), ('ZA', 1, 200), ('ZW', 0, 300), ('ZW', 1, 400), ('ZW-econet', 1, 500)"
    )


async def test_a_message_enters_the_queue_of_its_network_if_that_has_routes(world: World) -> None:
    database = world.engine.database
    for country, network in (("ZW", "econet"), ("ZA", OTHER)):
        await add_route(database, country=country, network=network, carrier="one", priority=10, cost=None)
    async with world.undone() as connection:
        await places.enqueue(
            connection,
            [
                entry(1, "econet"),
                entry(2, "netone"),
                # Networks that are not known are called alike in both countries.
                entry(3, OTHER),
                entry(4, OTHER, country="ZA"),
                entry(5, None),
                # Given back to the queue from which it was claimed.
                entry(6, "econet", queue="ZW"),
            ],
        )
        found = await queued(connection)
        assert {message_id.int: name for message_id, (name, _, _) in found.items()} == {
            1: ECONET,
            2: "ZW",
            3: "ZW",
            4: "ZA-other",
            5: "ZW",
            6: "ZW",
        }


async def test_a_message_without_a_turn_enters_at_the_clock_of_its_queue_and_lane(world: World) -> None:
    async with world.undone() as connection:
        await set_clocks(connection)
        await places.enqueue(
            connection,
            [
                entry(1),
                entry(2, lane=1),
                entry(3, queue=ECONET, lane=1),
                entry(4, country="ZA", lane=1),
                # Nobody has claimed anything here yet.
                entry(5, queue=ECONET),
                entry(6, turn=7),
            ],
        )
        found = await queued(connection)
        assert {message_id.int: turn for message_id, (_, _, turn) in found.items()} == {
            1: 300,
            2: 400,
            3: 500,
            4: 200,
            5: 0,
            6: 7,
        }


async def test_a_message_avoids_a_carrier_only_for_a_while_and_only_if_it_was_in_doubt(world: World) -> None:
    async with world.undone() as connection:
        await places.enqueue(connection, [entry(1), entry(2, avoid=world.carrier_id)])
        rows = await connection.fetch(
            "SELECT again, avoid, avoid_until > clock_timestamp() AS avoids,"
            " avoid_until <= clock_timestamp() + make_interval(secs => $1) AS ends"
            " FROM queue ORDER BY message_id",
            AVOID_S,
        )
        assert [tuple(row) for row in rows] == [
            (False, None, None, None),
            (True, world.carrier_id, True, True),
        ]


async def test_a_doubt_is_left_to_the_carrier_that_can_be_asked_about_it_while_it_is_fresh(
    world: World,
) -> None:
    await world.engine.add_carrier("two", 2776)
    await world.engine.add_carrier("three", 2777)
    await world.rows("UPDATE carriers SET in_doubt = 'look' WHERE name <> 'one'")
    await world.rows("UPDATE carriers SET removed_at = clock_timestamp() WHERE name = 'three'")
    ids = {row["name"]: row["id"] for row in await world.rows("SELECT name, id FROM carriers")}
    blind, asked, gone = ids["one"], ids["two"], ids["three"]
    async with world.undone() as connection:
        await places.insert_retries(
            connection,
            [
                retry(1, in_doubt=True, carrier_id=asked),
                retry(2, in_doubt=True, carrier_id=asked),
                retry(3, in_doubt=True, carrier_id=asked),
                retry(4, carrier_id=asked),
                retry(5, in_doubt=True, carrier_id=blind),
                retry(6, in_doubt=True, carrier_id=gone),
                retry(7, 60.0),
            ],
        )
        due = await places.list_due(connection, one(2), 10)
        found = sorted((retry.message_id.int, retry.in_doubt, retry.carrier_id) for retry in due)
        assert found == [(1, True, asked), (4, False, asked), (5, True, blind), (6, True, gone)]


async def test_what_has_been_due_for_longest_comes_first(world: World) -> None:
    async with world.undone() as connection:
        await connection.execute(BY_PLACE)
        # As they come, and not in the order in which they are due.
        waits = (-1.0, -4.0, -2.0, -3.0)
        await places.insert_retries(
            connection,
            [retry(place, wait_s) for place, wait_s in enumerate(waits, start=1)],
        )
        due = await places.list_due(connection, one(0), 3)
        assert [retry.message_id.int for retry in due] == [2, 4, 3]


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
async def test_a_message_is_taken_out_of_wherever_it_waits_and_no_other_is(
    world: World, *, is_known: bool
) -> None:
    leaving, *others = (one(place) for place in range(1, 5))
    wheres: Sequence[QueuePlace | str] = (KNOWN, *ELSEWHERE, "retries", "in_flight")
    for where in wheres:
        async with world.undone() as connection:
            # Messages of one batch have one turn.
            for other, place in zip(others, (KNOWN, KNOWN, ELSEWHERE[-1]), strict=True):
                await connection.execute("INSERT INTO queue VALUES ($2, $3, $4, $1)", other, *place)
            await places.insert_retries(connection, [retry(5)])
            await claim(connection, one(6), "worker")
            if where == "retries":
                await places.insert_retries(connection, [retry(1)])
            elif where == "in_flight":
                await claim(connection, leaving, "worker")
            else:
                await connection.execute("INSERT INTO queue VALUES ($2, $3, $4, $1)", leaving, *where)
            await places.delete_waiting(connection, {leaving: "ZW"}, {leaving: KNOWN} if is_known else {})
            assert await ids_in(connection, "queue") == others
            assert await ids_in(connection, "retries") == [one(5)]
            assert await ids_in(connection, "in_flight") == [one(6)]


async def test_messages_that_wait_in_several_places_are_taken_out_at_once(world: World) -> None:
    async with world.undone() as connection:
        await places.enqueue(
            connection,
            [entry(1, turn=7), entry(2, turn=9), entry(3, turn=9, country="ZA"), entry(4, turn=7)],
        )
        await places.insert_retries(connection, [retry(5)])
        countries: dict[UUID, str] = {one(place): "ZA" if place == 3 else "ZW" for place in (1, 2, 3, 5)}
        await places.delete_waiting(connection, countries, {one(1): KNOWN, one(5): KNOWN})
        assert await ids_in(connection, "queue") == [one(4)]
        assert await ids_in(connection, "retries") == []


async def test_a_worker_ends_its_own_claims_and_learns_when_it_made_them(world: World) -> None:
    async with world.undone() as connection:
        for place, worker in enumerate(("own", "own", "other", "own"), start=1):
            await claim(connection, one(place), worker)
        ended = await places.end_flight(connection, [one(1), one(2), one(3), one(9)], "own")
        assert ended == {one(1): NOON, one(2): NOON}
        assert await ids_in(connection, "in_flight") == [one(3), one(4)]


async def test_the_claims_of_a_worker_are_listed_from_the_oldest_message_on(world: World) -> None:
    async with world.undone() as connection:
        await connection.execute(BY_PLACE)
        for place, worker in ((4, "own"), (1, "other"), (3, "own"), (2, "own")):
            await claim(connection, one(place), worker)
        assert list(await places.list_in_flight(connection, "own", 9)) == [one(2), one(3), one(4)]
        assert await places.list_in_flight(connection, "own", 2) == {one(2): 7, one(3): 7}


async def test_only_a_workers_own_claims_that_were_made_with_the_accept_are_direct(world: World) -> None:
    async with world.undone() as connection:
        await claim(connection, one(1), "own", is_direct=True)
        await claim(connection, one(2), "own")
        await claim(connection, one(3), "other", is_direct=True)
        await claim(connection, one(4), "own", is_direct=True)
        ids = [one(place) for place in (1, 2, 3)]
        assert await places.list_direct(connection, ids, "own") == [one(1)]


async def test_a_worker_that_shuts_down_is_forgotten_whatever_others_have_in_flight(world: World) -> None:
    async with world.undone() as connection:
        for worker in ("done", "other"):
            await binds.heartbeat(connection, worker, 10)
        await claim(connection, one(1), "other")
        await places.delete_worker(connection, "done")
        rows = await connection.fetch("SELECT id, seen_at > now() - interval '1 minute' FROM workers")
        assert [tuple(row) for row in rows] == [("other", True)]
        await places.delete_worker(connection, "other")
        assert await binds.lock_dead_workers(connection, 10) == ["other"]


async def test_two_that_find_the_same_orphans_at_once_adopt_them_once(world: World) -> None:
    await world.send(2)
    await world.claim(2, worker="lost")
    await world.rows("UPDATE in_flight SET claimed_at = claimed_at - interval '1 hour'")

    async def adopt() -> int:
        async with world.engine.database.transaction() as connection:
            return await places.adopt_orphans(connection)

    async def blocked() -> bool:
        return bool(await world.rows(BLOCKED))

    async with asyncio.TaskGroup() as group, world.engine.database.transaction() as connection:
        assert await places.adopt_orphans(connection) == 1
        second = group.create_task(adopt())
        await world.engine.until(blocked, "the second does not wait for the first")
    assert second.result() == 0
    assert [row["id"] for row in await world.rows("SELECT id FROM workers")] == ["lost"]


async def test_a_batch_lives_for_its_own_time_or_else_for_a_day(world: World) -> None:
    for count in (1, 2, 3):
        await world.send(count, "Your order is ready.")
    rows = await world.rows("SELECT id, created_at FROM batches ORDER BY recipients")
    (first, made_at), (second, _), _ = rows
    async with world.undone() as connection:
        change = "UPDATE batches SET expires_at = $2 WHERE id = $1"
        for batch_id, expires_at in ((first, None), (second, ENDS)):
            await connection.execute(change, batch_id, expires_at)
        assert await places.find_batch_facts(connection, [second, first]) == {
            first: BatchFacts(1, made_at + timedelta(hours=24)),
            second: BatchFacts(2, ENDS),
        }


async def test_what_expires_before_a_time_is_found_by_its_own_time_or_else_by_its_age(world: World) -> None:
    async with world.undone() as connection:
        await places.enqueue(connection, [entry(place, turn=place) for place in range(1, 7)])
        for place, expires_at in ((2, None), (3, None), (4, None), (5, ENDS - MOMENT)):
            await connection.execute(
                "UPDATE queue SET expires_at = $2 WHERE message_id = $1", one(place), expires_at
            )
        found = await places.list_expired(connection, ENDS, one(3), 10)
        assert found == {one(2): ("ZW", 0, 2), one(5): ("ZW", 0, 5)}
        assert len(await places.list_expired(connection, ENDS, one(3), 1)) == 1


async def test_a_queue_is_listed_by_itself(world: World) -> None:
    async with world.undone() as connection:
        names = ("ZW", ECONET, "ZA", ECONET)
        await places.enqueue(
            connection, [entry(place, queue=name, turn=place) for place, name in enumerate(names)]
        )
        found = await places.list_in_queue(connection, ECONET, 9)
        assert found == {one(1): (ECONET, 0, 1), one(3): (ECONET, 0, 3)}
        assert len(await places.list_in_queue(connection, ECONET, 1)) == 1


async def test_a_message_moves_to_the_clock_of_another_queue_and_takes_nobody_along(world: World) -> None:
    async with world.undone() as connection:
        await set_clocks(connection)
        await places.enqueue(
            connection,
            [
                entry(1, turn=7, lane=1, avoid=world.carrier_id),
                entry(2, turn=7, lane=1),
                entry(3, turn=7),
                entry(4, queue="ZW-other", turn=7),
                entry(5, turn=7),
            ],
        )
        keeps = "SELECT again, expires_at, avoid, avoid_until FROM queue WHERE message_id = $1"
        before = await connection.fetchrow(keeps, one(1))
        found = await queued(connection)
        targets: dict[UUID, str] = {one(1): ECONET, one(3): ECONET, one(4): "ZW"}
        assert await places.move(connection, found, targets) == 3
        assert await queued(connection) == {
            one(1): (ECONET, 1, 500),
            one(2): ("ZW", 1, 7),
            one(3): (ECONET, 0, 0),
            one(4): ("ZW", 0, 300),
            one(5): ("ZW", 0, 7),
        }
        assert await connection.fetchrow(keeps, one(1)) == before


async def test_a_message_that_has_moved_since_it_was_found_stays_where_it_is(world: World) -> None:
    for name, lane, turn in ELSEWHERE:
        async with world.undone() as connection:
            await places.enqueue(connection, [entry(1, queue=name, lane=lane, turn=turn)])
            assert await places.move(connection, {one(1): KNOWN}, {one(1): "ZW-other"}) == 0
            assert await queued(connection) == {one(1): (name, lane, turn)}


async def test_a_message_that_is_being_claimed_is_not_moved_or_waited_for(world: World) -> None:
    await world.send(2)
    async with world.undone() as claiming, world.undone() as connection:
        found = await queued(connection)
        held, free = sorted(found)
        await claiming.execute("SELECT FROM queue WHERE message_id = $1 FOR UPDATE", held)
        assert await places.move(connection, found, dict.fromkeys(found, ECONET)) == 1
        moved = await queued(connection)
        assert (moved[held], moved[free]) == (found[held], (ECONET, found[free][1], 0))


async def test_a_message_is_unconfirmed_by_when_it_was_sent_and_not_by_when_it_was_accepted(
    world: World,
) -> None:
    claimed = await world.claim_one()
    taken = world.taken(claimed)
    await world.settle(taken)
    sent_at = taken.part.submitted_at
    async with world.engine.database.connection() as connection:
        for before, expected in ((sent_at, []), (sent_at + MOMENT, [claimed.id])):
            assert await places.list_unconfirmed(connection, one(0), LAST_ID, before, 9) == expected
