"""Retries, expiry, missing receipts and dead workers."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import WORKER, World
from tumira.carriers.routes.manage import add_route
from tumira.core.backoff import RESENDS_MAX
from tumira.core.ids import MessageId
from tumira.delivery import follow_up
from tumira.delivery.follow_up import DOUBT_WAIT_S, RetriedReceipts
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.store import binds
from tumira.delivery.store import waiting as places
from tumira.delivery.store.queue import ClaimedMessage
from tumira.delivery.store.waiting import NewRetry
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.pricing.networks import OTHER
from tumira.sending import lifecycle

COST: Final = Decimal("0.04")
TOO_LONG: Final = timedelta(hours=25)
NOT_YET: Final = timedelta(hours=23)
SOON: Final = timedelta(seconds=10)
LAST_ID: Final = UUID(int=2**128 - 1)
UNCONFIRMED: Final = ("unconfirmed", None, Decimal(0))
CODE: Final = "Your code is 493817."
NOTICE: Final = "Your order is ready."
LONG: Final = "Your statement is ready. " * 8


async def sent_again(world: World) -> ClaimedMessage:
    claimed = await world.claim_one()
    await world.settle(world.doubtful(claimed))
    await world.resume_due()
    (again,) = await world.claim()
    assert again.again
    return again


def stranger(claimed: ClaimedMessage, reference: str, state: str = "DELIVRD") -> Receipt:
    return Receipt(reference, claimed.recipient[1:], state, "000", f"stat:{state}")


@pytest.mark.parametrize(("well", "reason"), [(["ZW"], "QUEUE_EXPIRED"), ([], "CARRIER_UNAVAILABLE")])
async def test_what_waited_past_its_lifetime_expires_and_is_paid_back(
    world: World, well: Sequence[str], reason: str
) -> None:
    await world.send(4, NOTICE)
    in_flight, in_doubt, sent = await world.claim(3)
    (queued,) = await world.rows("SELECT message_id FROM queue")
    await world.settle(world.doubtful(in_doubt), world.taken(sent))
    assert await world.expire_waiting(NOT_YET, well) == 0

    assert await world.expire_waiting(TOO_LONG, well) == 1

    # What was or is being submitted does not expire.
    assert await world.engine.statuses() == {"expired": 1, "sending": 2, "sent": 1}
    assert await world.status(in_flight.id) == "sending"
    assert await world.ending(queued["message_id"]) == ("expired", reason, COST)


@pytest.mark.parametrize(
    ("body", "lifetime"),
    [(CODE, timedelta(minutes=10)), (NOTICE, timedelta(hours=24))],
    ids=["code", "notice"],
)
async def test_a_message_is_handed_over_until_a_minute_before_its_end(
    world: World, body: str, lifetime: timedelta
) -> None:
    await world.send(1, body)
    last_chance = lifetime - lifecycle.HAND_OVER_MIN
    assert await world.expire_waiting(last_chance - SOON) == 0
    assert await world.expire_waiting(last_chance + SOON) == 1


@pytest.mark.parametrize("body", [CODE, NOTICE], ids=["code", "notice"])
async def test_a_retry_that_is_due_too_late_expires_and_is_paid_back(world: World, body: str) -> None:
    claimed = await world.claim_one(body)
    await world.settle(world.put_off(claimed))
    await world.resume_due(timedelta(minutes=9, seconds=30))
    if body == CODE:
        assert await world.ending(claimed.id) == ("expired", "QUEUE_EXPIRED", COST)
    else:
        (row,) = await world.rows("SELECT expires_at FROM queue")
        assert row["expires_at"] == claimed.expires_at


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_retry_is_not_taken_before_it_is_due(world: World, *, in_doubt: bool) -> None:
    claimed = await world.claim_one()
    await world.settle(world.doubtful(claimed) if in_doubt else world.put_off(claimed))
    async with world.engine.database.transaction() as connection:
        fresh = UUID(int=0)
        assert await places.list_due(connection, fresh, 10) == []
        # Found due, and put off once more before its message was locked.
        assert await places.claim_due(connection, [claimed.id]) == []
        assert await follow_up.resume_due(connection, world.settings, datetime.now(UTC), {"ZW"}) == 0
    await world.rows("UPDATE retries SET due_at = clock_timestamp()")
    async with world.engine.database.transaction() as connection:
        (due,) = await places.list_due(connection, fresh, 10)
        assert await places.claim_due(connection, [claimed.id]) == [due]
        assert (due.message_id, due.in_doubt, due.carrier_id) == (claimed.id, in_doubt, world.carrier_id)
        await places.insert_retries(connection, [NewRetry(claimed.id, 30.0, in_doubt, world.carrier_id)])


async def test_messages_of_the_version_before_live_for_a_day(world: World) -> None:
    await world.send()
    for table in ("batches", "queue"):
        await world.rows(f"UPDATE {table} SET expires_at = NULL")
    assert await world.expire_waiting(NOT_YET) == 0
    (claimed,) = await world.claim()
    assert claimed.expires_at == claimed.created_at + lifecycle.VALIDITY
    await world.settle(world.returned(claimed))
    assert await world.expire_waiting(TOO_LONG) == 1


@pytest.mark.parametrize("where", ["retries", "another turn", "nowhere else"])
async def test_what_moved_since_it_was_found_too_old_leaves_its_new_place(world: World, where: str) -> None:
    await world.send()
    async with world.engine.database.connection() as connection:
        found = await follow_up.list_expired(connection, datetime.now(UTC) + TOO_LONG)
    if where != "nowhere else":
        (claimed,) = await world.claim()
        await world.settle(world.put_off(claimed))
    if where == "another turn":
        await world.rows("INSERT INTO clocks VALUES ('ZW', 0, 777777)")
        await world.resume_due()
    async with world.engine.database.transaction() as connection:
        assert await follow_up.expire(connection, found, {"ZW"}) == 1
    (row,) = await world.rows("SELECT id FROM messages")
    assert await world.ending(row["id"]) == ("expired", "QUEUE_EXPIRED", COST)


async def test_a_long_queue_expires_in_groups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "HAND_OVER_MIN", TOO_LONG)
    monkeypatch.setattr(follow_up, "GROUP_MAX", 2)
    await world.send(5)
    task = next(one for one in MAINTENANCE_TASKS if one.name == "expire waiting messages")
    assert await run_task(world.engine.database, task) == 5
    (row,) = await world.rows("SELECT count(DISTINCT xmin::text) FROM messages")
    assert row[0] == 3


async def test_what_is_in_doubt_keeps_nothing_from_expiring(world: World) -> None:
    await world.send(4)
    *doubts, returned = await world.claim(4)
    await world.settle(*(world.doubtful(one) for one in doubts), world.returned(returned))
    async with world.engine.database.connection() as connection:
        found = await follow_up.list_expired(connection, datetime.now(UTC) + TOO_LONG, 1)
    assert list(found) == [returned.id]


async def test_a_message_to_a_country_without_a_carrier_fails_at_once(world: World) -> None:
    await world.send()
    assert await world.fail_unroutable({"ZW"}) == 0
    assert await world.fail_unroutable({"ZA"}) == 1
    (row,) = await world.rows("SELECT id FROM messages")
    assert await world.ending(row["id"]) == ("failed", "NO_ROUTE", COST)


async def test_a_message_whose_network_was_not_stored_moves_to_the_queue_of_other_networks(
    world: World,
) -> None:
    await world.send()
    await world.rows("UPDATE messages SET network = NULL")
    await add_route(world.engine.database, country="ZW", network=OTHER, carrier="one", priority=10, cost=None)
    assert await world.fail_unroutable({"ZW-other"}) == 1
    assert [row["country"] for row in await world.rows("SELECT country FROM queue")] == ["ZW-other"]


async def test_a_message_that_has_its_receipt_is_not_looked_at_for_want_of_one(world: World) -> None:
    # The third keeps their batch open.
    await world.send(3)
    delivered, silent, _ = await world.claim(3)
    await world.settle(world.taken(delivered), world.taken(silent), world.reported(delivered))
    later = datetime.now(UTC) + TOO_LONG
    async with world.engine.database.connection() as connection:
        assert await places.list_unconfirmed(connection, UUID(int=0), LAST_ID, later, 9) == [silent.id]


async def test_a_message_in_doubt_is_sent_again_three_times_and_then_left_open(world: World) -> None:
    await world.send()
    for _ in range(RESENDS_MAX + 1):
        (claimed,) = await world.claim()
        await world.settle(world.doubtful(claimed))
        await world.resume_due()
    assert await world.ending(claimed.id) == UNCONFIRMED
    assert await world.incidents() == {"doubt": 4, "resend": 3, "hold": 1}
    assert await world.events() == ["message.unconfirmed", "batch.completed"]


@pytest.mark.parametrize("in_doubt", ["hold", "resend"])
async def test_a_doubt_that_is_held_or_outlives_its_message_is_left_open_until_a_receipt_comes(
    world: World, in_doubt: str
) -> None:
    world.settings[world.carrier_id] = replace(world.settings[world.carrier_id], in_doubt=in_doubt)
    claimed = await world.claim_one()
    await world.settle(world.doubtful(claimed))
    await world.resume_due(TOO_LONG if in_doubt == "resend" else timedelta())
    assert await world.ending(claimed.id) == UNCONFIRMED
    assert await world.incidents() == {"doubt": 1, "hold": 1}
    await world.keep(stranger(claimed, "777"))
    assert await world.try_unmatched() == 1
    assert await world.status(claimed.id) == "delivered"


@pytest.mark.parametrize("end", ["refused", "expired in the queue", "expired before a retry", "no route"])
async def test_a_message_that_was_once_in_doubt_never_fails_or_expires(world: World, end: str) -> None:
    claimed = await sent_again(world)
    if end == "refused":
        await world.settle(world.refused(claimed, doubted=True))
    elif end == "expired before a retry":
        await world.settle(world.put_off(claimed))
        await world.resume_due(TOO_LONG)
    else:
        await world.settle(world.returned(claimed, again=True))
        if end == "no route":
            await world.fail_unroutable()
        else:
            await world.expire_waiting(TOO_LONG)
    assert await world.ending(claimed.id) == UNCONFIRMED


async def test_a_retry_keeps_its_lane_and_comes_at_the_clock(world: World) -> None:
    await world.send(20)
    (claimed,) = await world.claim()
    await world.settle(world.put_off(claimed))
    await world.rows("INSERT INTO clocks VALUES ('ZW', 1, 777777)")
    assert await world.resume_due() == 1
    (row,) = await world.rows("SELECT * FROM queue WHERE message_id = $1", claimed.id)
    assert (row["lane"], row["turn"], row["again"]) == (1, 777777, True)


async def test_a_receipt_settles_a_message_in_doubt_that_is_to_its_number(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.doubtful(claimed))
    await world.keep(stranger(claimed, "777", "UNDELIV"))
    assert await world.try_unmatched() == 1
    assert await world.ending(claimed.id) == ("undelivered", "UNKNOWN", COST)
    assert await world.rows("SELECT FROM retries") == []


async def test_a_receipt_settles_no_doubt_while_another_message_to_the_number_is_submitted(
    world: World,
) -> None:
    number = numbers(1)
    await world.send(to=number)
    (doubtful,) = await world.claim()
    await world.settle(world.doubtful(doubtful))
    await world.send(to=number)
    (other,) = await world.claim()
    await world.keep(world.receipt(other))
    assert await world.try_unmatched() == 0
    assert await world.status(doubtful.id) == "sending"

    await world.settle(world.taken(other))
    assert await world.try_unmatched() == 1

    assert await world.status(other.id) == "delivered"
    assert await world.status(doubtful.id) == "sending"


async def test_what_a_dead_worker_had_claimed_is_in_doubt_and_its_name_forgotten(world: World) -> None:
    async with world.engine.database.connection() as connection:
        await binds.heartbeat(connection, "dead", 10)
        await binds.heartbeat(connection, "alive", 10)
        await connection.execute("UPDATE workers SET seen_at = now() - interval '11 s' WHERE id = 'dead'")
    await world.send(3)
    lost = await world.claim(2, worker="dead")
    (kept,) = await world.claim(1, worker="alive")
    async with world.engine.database.transaction() as connection:
        assert await follow_up.take_over_from_dead(connection, world.settings, 10) == 2
    in_doubt = {row["message_id"] for row in await world.rows("SELECT * FROM retries WHERE in_doubt")}
    assert in_doubt == {one.id for one in lost}
    assert [row["message_id"] for row in await world.rows("SELECT * FROM in_flight")] == [kept.id]
    assert [row["id"] for row in await world.rows("SELECT id FROM workers")] == ["alive"]


async def test_of_the_dead_workers_of_a_full_group_only_the_last_is_found_dead_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_up, "GROUP_MAX", 3)
    await world.send(4)
    for worker, count in (("first", 1), ("second", 1), ("third", 2)):
        await world.claim(count, worker=worker)
        async with world.engine.database.connection() as connection:
            await binds.heartbeat(connection, worker, 10)
    await world.rows("UPDATE workers SET seen_at = timestamptz 'epoch'")
    for taken, left in ((3, ["third"]), (1, [])):
        async with world.engine.database.transaction() as connection:
            assert await follow_up.take_over_from_dead(connection, world.settings, 10) == taken
        assert [row["id"] for row in await world.rows("SELECT id FROM workers")] == left


async def test_a_worker_that_ends_is_forgotten_or_found_dead_if_it_left_claims(world: World) -> None:
    async with world.engine.database.connection() as connection:
        for worker in ("left", "done", "other"):
            await binds.heartbeat(connection, worker, 10)
        await world.send(2)
        await world.claim(1, worker="left")
        await world.claim(1, worker="other")
        for worker in ("left", "done"):
            await places.delete_worker(connection, worker)
        assert await binds.lock_dead_workers(connection, 10) == ["left"]
        rows = await connection.fetch("SELECT id FROM workers ORDER BY id")
        assert [row["id"] for row in rows] == ["left", "other"]


async def test_claims_that_outlived_their_worker_are_found(world: World) -> None:
    await world.send(3)
    old, _, fresh = [(await world.claim(1, worker=worker))[0] for worker in ("old", "known", "fresh")]
    await world.rows(
        "UPDATE in_flight SET claimed_at = clock_timestamp() - interval '61 seconds' WHERE message_id <> $1",
        fresh.id,
    )
    async with world.engine.database.connection() as connection:
        await binds.heartbeat(connection, "known", 10)
        assert await places.adopt_orphans(connection) == 1
        assert await places.adopt_orphans(connection) == 0
        assert await binds.lock_dead_workers(connection, 10) == ["old"]
        assert await places.list_in_flight(connection, "old", 9) == {old.id: world.carrier_id}


async def test_a_doubt_whose_message_is_being_settled_is_left_for_later(world: World) -> None:
    await world.send(2)
    held, free = await world.claim(2)
    await world.settle(world.doubtful(held), world.doubtful(free))
    await world.rows("UPDATE retries SET due_at = clock_timestamp() - interval '1 second'")
    async with world.engine.database.transaction() as settling:
        await settling.execute("SELECT FROM messages WHERE id = $1 FOR UPDATE", held.id)
        async with world.impatient() as connection:
            assert await follow_up.resume_due(connection, world.settings, datetime.now(UTC), {"ZW"}) == 1
    assert (await world.status(held.id), await world.status(free.id)) == ("sending", "queued")
    assert await world.resume_due() == 1
    assert await world.status(held.id) == "queued"


async def test_what_is_being_settled_is_not_waited_for_as_others_expire(world: World) -> None:
    await world.send(2)
    held, free = [row["id"] for row in await world.rows("SELECT id FROM messages ORDER BY id")]
    async with world.engine.database.transaction() as settling:
        await settling.execute("SELECT FROM messages WHERE id = $1 FOR UPDATE", held)
        async with world.impatient() as connection:
            found = await follow_up.list_expired(connection, datetime.now(UTC) + TOO_LONG)
            assert found.keys() == {held, free}
            assert await follow_up.expire(connection, found, {"ZW"}) == 1
    assert (await world.status(held), await world.status(free)) == ("queued", "expired")
    assert await world.expire_waiting(TOO_LONG) == 1


async def test_a_doubt_that_the_carrier_can_be_asked_about_is_left_to_that_for_a_day(world: World) -> None:
    await world.rows("UPDATE carriers SET in_doubt = 'look'")
    claimed = await world.claim_one(NOTICE)
    await world.settle(world.doubtful(claimed))
    assert await world.resume_due(NOT_YET) == 0
    assert await world.status(claimed.id) == "sending"
    assert await world.resume_due(TOO_LONG) == 1
    assert await world.ending(claimed.id) == UNCONFIRMED


@pytest.mark.parametrize("known", ["nothing", "a segment was taken", "the carrier recognises it"])
async def test_a_doubt_goes_to_another_carrier_unless_the_same_one_should_finish_it(
    world: World, known: str
) -> None:
    await world.send(2, LONG)
    claimed, busy = await world.claim(2)
    if known == "a segment was taken":
        await world.settle(world.taken(claimed, complete=False))
    elif known == "the carrier recognises it":
        await world.rows(
            "INSERT INTO http_carriers (carrier_id, profile, url, options, secrets, safe_repeat, hook_token)"
            " VALUES ($1, 'own', 'http://127.0.0.1', '{}', '{}', true, repeat('x', 22))",
            world.carrier_id,
        )
    await world.settle(world.doubtful(claimed), world.put_off(busy))
    assert await world.resume_due() == 2
    avoids = {row["message_id"]: row["avoid"] for row in await world.rows("SELECT * FROM queue")}
    assert avoids == {claimed.id: world.carrier_id if known == "nothing" else None, busy.id: None}


@pytest.mark.parametrize("carrier", ["removed", "not known"])
async def test_a_doubt_without_its_carrier_is_sent_again(world: World, carrier: str) -> None:
    await world.send(2)
    first, second = await world.claim(2)
    await world.settle(world.doubtful(first), world.doubtful(second))
    if carrier == "removed":
        world.settings.clear()
    else:
        await world.rows("UPDATE retries SET carrier_id = NULL WHERE message_id = $1", first.id)
    assert await world.resume_due() == 2
    assert await world.engine.statuses() == {"queued": 2}
    assert await world.incidents() == {"doubt": 2, "resend": 2}


async def test_messages_without_a_carrier_fail_in_groups_over_all_queues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_up, "GROUP_MAX", 3)
    await world.send(2)
    await world.send(to=["+27821230001", "+27821230002"])
    assert [await world.fail_unroutable() for _ in range(3)] == [3, 1, 0]
    assert await world.engine.statuses() == {"failed": 4}


async def test_a_message_moves_to_the_queue_that_its_network_has_got_since(world: World) -> None:
    await world.send()
    await add_route(
        world.engine.database, country="ZW", network="econet", carrier="one", priority=10, cost=None
    )
    assert await world.fail_unroutable({"ZW-econet"}) == 1
    assert [row["country"] for row in await world.rows("SELECT country FROM queue")] == ["ZW-econet"]
    assert await world.engine.statuses() == {"queued": 1}


async def test_a_receipt_is_waited_for_from_the_hand_over_and_not_from_the_acceptance(world: World) -> None:
    claimed = await world.claim_one(NOTICE)
    await world.settle(world.taken(claimed))
    # It waited for a carrier at first.
    await world.rows("UPDATE messages SET sent_at = sent_at + interval '20 hours'")
    assert await world.give_up_receipts(lifecycle.RECEIPT_WAIT + timedelta(hours=19)) == 0
    assert await world.status(claimed.id) == "sent"
    assert await world.give_up_receipts(lifecycle.RECEIPT_WAIT + timedelta(hours=21)) == 1
    assert await world.ending(claimed.id) == UNCONFIRMED
    assert await world.events() == ["message.unconfirmed", "batch.completed"]


async def test_a_receipt_is_kept_until_its_message_is_found_and_no_longer(world: World) -> None:
    claimed = await world.claim_one()
    await world.keep(world.receipt(claimed))
    assert await world.try_unmatched() == 0
    assert len(await world.rows("SELECT FROM unmatched_receipts")) == 1
    await world.settle(world.taken(claimed))
    assert await world.try_unmatched() == 1
    assert await world.rows("SELECT FROM unmatched_receipts") == []
    async with world.engine.database.transaction() as connection:
        none = await follow_up.retry_unmatched_receipts(connection)
    assert none == RetriedReceipts(0, is_more_due=False)


async def test_claims_that_were_not_submitted_are_given_back_as_if_never_claimed(world: World) -> None:
    await world.send(2)
    given, kept = await world.claim(2)
    # Only those of the worker itself, and none that are gone.
    for ids, worker, count in (
        ([MessageId(UUID(int=7))], WORKER, 0),
        ([given.id], "another", 0),
        ([given.id], WORKER, 1),
    ):
        async with world.engine.database.transaction() as connection:
            assert await follow_up.give_back_claims(connection, ids, worker) == count
    (row,) = await world.rows("SELECT message_id, lane, again, expires_at FROM queue")
    assert tuple(row) == (given.id, given.lane, False, given.expires_at)
    assert [row["message_id"] for row in await world.rows("SELECT * FROM in_flight")] == [kept.id]
    assert await world.engine.statuses() == {"queued": 1, "sending": 1}


async def test_dead_workers_beyond_a_full_group_are_found_dead_again_with_all_their_claims(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_up, "GROUP_MAX", 2)
    await world.send(4)
    for worker, count in (("worker 1", 1), ("worker 2", 2), ("worker 3", 1)):
        await world.claim(count, worker=worker)
        async with world.engine.database.connection() as connection:
            await binds.heartbeat(connection, worker, 10)
    await world.rows("UPDATE workers SET seen_at = timestamptz 'epoch'")
    for taken, left in ((2, ["worker 2", "worker 3"]), (2, ["worker 3"]), (0, [])):
        async with world.engine.database.transaction() as connection:
            assert await follow_up.take_over_from_dead(connection, world.settings, 10) == taken
        assert [row["id"] for row in await world.rows("SELECT id FROM workers ORDER BY id")] == left
    assert await world.rows("SELECT FROM in_flight") == []


@pytest.mark.parametrize("is_removed", [False, True])
async def test_what_a_dead_worker_left_waits_for_a_receipt_as_long_as_its_carrier_asks(
    world: World, *, is_removed: bool
) -> None:
    asked_s = 10 * DOUBT_WAIT_S
    world.settings[world.carrier_id] = replace(world.settings[world.carrier_id], doubt_wait_s=asked_s)
    await world.claim_one()
    async with world.engine.database.transaction() as connection:
        await binds.heartbeat(connection, WORKER, 10)
        await connection.execute("UPDATE workers SET seen_at = timestamptz 'epoch'")
        settings = {} if is_removed else world.settings
        (before,) = await connection.fetch("SELECT clock_timestamp() AS at")
        assert await follow_up.take_over_from_dead(connection, settings, 10) == 1
        (after,) = await connection.fetch("SELECT clock_timestamp() AS at")
    (row,) = await world.rows("SELECT due_at FROM retries")
    wait = timedelta(seconds=DOUBT_WAIT_S if is_removed else asked_s)
    assert before["at"] + wait <= row["due_at"] <= after["at"] + wait
