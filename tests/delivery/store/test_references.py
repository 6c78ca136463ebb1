"""A message is handed to a carrier over HTTP again only under the reference under which it is in doubt."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from tests.support.delivery.settling import World
from tumira.core.ids import MessageId, first_id
from tumira.delivery.store import references
from tumira.delivery.store.queue import ClaimedMessage
from tumira.delivery.store.references import DueDoubt, DueQuestion, NewReference, SubmissionReference

AGE_S = 3600.0
LEASE_S = 60.0


async def register(world: World, claimed: ClaimedMessage, reference: str, poll_s: float | None = None) -> int:
    async with world.engine.database.transaction() as connection:
        kept = await references.insert(
            connection, world.carrier_id, [NewReference(claimed.id, reference, 0)], poll_s
        )
    assert kept[claimed.id].reference == reference
    return kept[claimed.id].sequence


async def reuse(world: World, *ids: UUID, carrier_id: int | None = None) -> dict[UUID, SubmissionReference]:
    async with world.engine.database.transaction() as connection:
        attempts = dict.fromkeys(ids, 1)
        found = await references.reuse(connection, carrier_id or world.carrier_id, attempts, AGE_S)
    return dict(found)


async def claim_due(world: World, carrier_id: int | None = None, count: int = 9) -> Sequence[DueQuestion]:
    async with world.engine.database.transaction() as connection:
        return await references.claim_due(connection, carrier_id or world.carrier_id, count, LEASE_S)


async def test_only_a_reference_in_doubt_is_used_again(world: World) -> None:
    await world.send(3)
    doubted, taken, refused = await world.claim(3)
    sequences = [
        await register(world, one, f"r{place}") for place, one in enumerate((doubted, taken, refused))
    ]
    assert sequences == sorted(set(sequences))
    assert await reuse(world, doubted.id, taken.id, refused.id) == {}
    await world.settle(world.doubtful(doubted), world.taken(taken), world.refused(refused))
    assert await reuse(world, doubted.id, taken.id, refused.id) == {
        doubted.id: SubmissionReference("r0", sequences[0])
    }
    assert await reuse(world, taken.id, refused.id) == {}
    assert await reuse(world, doubted.id, carrier_id=world.carrier_id + 1) == {}
    (row,) = await world.rows("SELECT attempt FROM submission_references WHERE reference = 'r0'")
    assert row["attempt"] == 1
    # The carrier has forgotten it.
    moved = "SET claimed_at = claimed_at - interval '2 hours'"
    await world.rows(f"UPDATE submission_references {moved}")
    await world.rows(f"UPDATE incidents {moved}")
    assert await reuse(world, doubted.id) == {}


async def test_a_reference_of_a_try_that_was_answered_is_not_used_again(world: World) -> None:
    """Of two tries the second is in doubt: the carrier refused what came under the first reference."""
    claimed = await world.claim_one()
    await register(world, claimed, "answered")
    await world.settle(world.put_off(claimed))
    await world.resume_due()
    (again,) = await world.claim()
    sequence = await register(world, again, "in doubt")
    await world.settle(world.doubtful(again))
    assert await reuse(world, claimed.id) == {claimed.id: SubmissionReference("in doubt", sequence)}
    rows = await world.rows("SELECT reference, attempt FROM submission_references")
    assert {row["reference"]: row["attempt"] for row in rows} == {"answered": 0, "in doubt": 1}


async def test_each_reference_gets_the_attempt_of_its_own_message(world: World) -> None:
    await world.send(2)
    one, two = await world.claim(2)
    for claimed in (one, two):
        await register(world, claimed, claimed.id.hex)
    await world.settle(world.doubtful(one), world.doubtful(two))
    async with world.engine.database.transaction() as connection:
        await references.reuse(connection, world.carrier_id, {one.id: 4, two.id: 7}, AGE_S)
    rows = await world.rows("SELECT message_id, attempt FROM submission_references")
    assert {row["message_id"]: row["attempt"] for row in rows} == {one.id: 4, two.id: 7}


async def test_of_several_references_in_doubt_the_first_is_used(world: World) -> None:
    claimed = await world.claim_one()
    first = await register(world, claimed, "first")
    await world.settle(world.doubtful(claimed))
    await world.resume_due()
    (again,) = await world.claim()
    await register(world, again, "second")
    await world.settle(world.doubtful(again))
    assert await reuse(world, claimed.id) == {claimed.id: SubmissionReference("first", first)}
    await world.rows("UPDATE retries SET due_at = clock_timestamp()")
    async with world.engine.database.connection() as connection:
        # And the last one is asked about.
        assert await references.list_doubts(connection, world.carrier_id, 9) == [
            DueDoubt(claimed.id, "second")
        ]


async def test_doubts_are_listed_when_they_are_due_the_oldest_first(world: World) -> None:
    await world.send(4)
    later, sooner, late, retried = await world.claim(4)
    await world.settle(*(world.doubtful(one) for one in (later, sooner, late)), world.put_off(retried))
    await world.rows("UPDATE retries SET due_at = clock_timestamp() - interval '1 minute'")
    await world.rows(
        "UPDATE retries SET due_at = clock_timestamp() - interval '2 minutes' WHERE message_id = $1",
        sooner.id,
    )
    await world.rows(
        "UPDATE retries SET due_at = clock_timestamp() + interval '1 hour' WHERE message_id = $1", late.id
    )
    async with world.engine.database.connection() as connection:
        # The carrier had another protocol then, so there is no reference.
        expected = [DueDoubt(sooner.id, None), DueDoubt(later.id, None)]
        assert await references.list_doubts(connection, world.carrier_id, 9) == expected
        assert await references.list_doubts(connection, world.carrier_id, 1) == expected[:1]
        assert await references.list_doubts(connection, world.carrier_id + 1, 9) == []
        await references.postpone_doubts(connection, [sooner.id, retried.id], 60)
        assert await references.list_doubts(connection, world.carrier_id, 9) == expected[1:]
    (row,) = await world.rows(
        "SELECT due_at < clock_timestamp() AS is_due FROM retries WHERE message_id = $1", retried.id
    )
    assert row["is_due"]


async def test_a_carrier_is_asked_once_it_is_time_and_by_one_worker(world: World) -> None:
    await world.send(3)
    first, second, never = await world.claim(3)
    await register(world, first, "first", poll_s=0)
    await register(world, second, "second", poll_s=LEASE_S)
    await register(world, never, "never")
    async with world.engine.database.transaction() as connection:
        (due,) = await references.claim_due(connection, world.carrier_id, 9, LEASE_S)
        assert (due.reference, due.message_id, due.polls, due.status) == ("first", first.id, 0, "sending")
        assert due.carrier_ref is None
        async with world.engine.database.connection() as other:
            await references.ask_now(other, world.carrier_id, [second.id])
            assert [one.reference for one in await references.claim_due(other, world.carrier_id, 9, 0)] == [
                "second"
            ]
    assert await claim_due(world, world.carrier_id + 1) == []
    assert [one.reference for one in await claim_due(world)] == ["second"]
    assert await claim_due(world) == []


async def test_it_is_asked_again_by_the_age_of_the_claim_or_never(world: World) -> None:
    await world.send(2)
    first, second = await world.claim(2)
    for name, claimed in (("first", first), ("second", second)):
        await register(world, claimed, name, poll_s=0)
    part = world.taken(first)
    part.part.number = 0
    await world.settle(part)
    async with world.engine.database.connection() as connection:
        await references.ask_later(connection, world.carrier_id, "first", -5)
        await references.ask_later(connection, world.carrier_id, "second", None)
        await references.ask_later(connection, world.carrier_id + 1, "first", None)
    (due,) = await claim_due(world)
    assert (due.reference, due.polls, due.status) == ("first", 1, "sent")
    assert due.carrier_ref == part.part.carrier_ref
    (row,) = await world.rows("SELECT polls, poll_at FROM submission_references WHERE reference = 'second'")
    assert tuple(row) == (1, None)


async def test_a_reference_is_found_for_its_carrier_and_forgotten_with_its_message(world: World) -> None:
    claimed = await world.claim_one()
    await register(world, claimed, "one")
    async with world.engine.database.transaction() as connection:
        found = await references.find(connection, world.carrier_id, ["one", "another"])
        assert found.keys() == {"one"}
        one = found["one"]
        assert (one.message_id, one.attempt, one.recipient) == (claimed.id, 0, claimed.recipient)
        assert await references.find(connection, world.carrier_id + 1, ["one"]) == {}
        assert await references.delete_old(connection, claimed.id, 9) == 0
        assert await references.delete_old(connection, MessageId(first_id(2**47)), 9) == 1
        assert await references.find(connection, world.carrier_id, ["one"]) == {}


@pytest.mark.parametrize("count", [1, 2])
async def test_so_many_are_asked_about_at_a_time_the_longest_due_first(world: World, count: int) -> None:
    await world.send(3)
    for place, one in enumerate(await world.claim(3)):
        await register(world, one, f"r{place}", poll_s=-place)
    assert [one.reference for one in await claim_due(world, count=count)] == ["r2", "r1"][:count]


async def test_old_references_are_forgotten_the_oldest_first_and_those_in_use_later(world: World) -> None:
    await world.send(4)
    claimed = sorted(await world.claim(4), key=lambda one: one.id)
    for place, one in enumerate(claimed):
        await register(world, one, f"r{place}")
    before = claimed[3].id
    async with world.engine.database.transaction() as holder:
        await holder.execute("SELECT FROM submission_references WHERE reference = 'r0' FOR UPDATE")
        async with world.engine.database.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            assert await references.delete_old(connection, before, 1) == 1
    rows = await world.rows("SELECT reference FROM submission_references ORDER BY reference")
    assert [row["reference"] for row in rows] == ["r0", "r2", "r3"]
    async with world.engine.database.transaction() as connection:
        assert await references.delete_old(connection, before, 9) == 2
        assert await references.delete_old(connection, before, 9) == 0
