"""Every message ends once, whatever carriers, receipts and timeouts say about it, in any order."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import asyncpg
import pytest
from msgspec import structs

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import BLOCKED, WORKER, World
from tumira.core.ids import AccountId, MessageId
from tumira.delivery.lanes import Room
from tumira.delivery.outcomes import Ended, Outcome, Reported
from tumira.delivery.settle import ChangedMeanwhileError, settle
from tumira.delivery.store import queue, settlement
from tumira.delivery.store.queue import ClaimRequest

# Two segments, at twice the price.
LONG: Final = "Your statement is ready. " * 8
COST: Final = Decimal("0.04")
NOTHING: Final = Decimal(0)
THREE_DAYS: Final = timedelta(hours=73)


@pytest.mark.parametrize("waits", ["for its receipt", "to be sent again"])
async def test_an_answer_counts_whenever_it_is_recorded(world: World, waits: str) -> None:
    claimed = await world.claim_one()
    await world.settle(world.doubtful(claimed))
    if waits == "to be sent again":
        await world.resume_due()

    await world.settle(world.taken(claimed))

    assert await world.status(claimed.id) == "sent"
    assert await world.rows("SELECT message_id FROM retries UNION SELECT message_id FROM queue") == []


async def test_a_claim_that_finds_only_settled_messages_leaves_none_of_them_waiting(world: World) -> None:
    await world.send()
    async with world.engine.database.connection() as claiming, world.engine.database.connection() as ending:
        await ending.execute("BEGIN")
        rows = await ending.fetch("SELECT id FROM messages FOR NO KEY UPDATE")
        await claiming.execute("BEGIN")
        wanted = ClaimRequest("ZW", 1, 0, 1, 0, 0)
        claim = asyncio.create_task(
            queue.claim(
                claiming, [wanted], Room(1, 0, 1), worker=WORKER, bind="one/1", carrier_id=world.carrier_id
            )
        )

        async def blocked() -> bool:
            return bool(await world.rows(BLOCKED))

        await world.engine.until(blocked, "the claim does not wait for the message")
        ended = Ended(MessageId(rows[0]["id"]), "queued", "failed", "NO_ROUTE")
        await settle(ending, [ended], worker="")
        await ending.execute("COMMIT")
        assert await claim == []
        await claiming.execute("COMMIT")


async def test_a_refusal_and_a_return_of_somebody_elses_claim_change_nothing(world: World) -> None:
    claimed = await world.claim_one()
    assert await world.settle(world.refused(claimed), worker="another") == 0
    assert await world.settle(world.returned(claimed), worker="another") == 0
    assert await world.status(claimed.id) == "sending"


async def test_a_message_of_several_segments_is_delivered_when_all_of_them_are(world: World) -> None:
    claimed = await world.claim_one(LONG)
    assert claimed.segments == 2
    await world.settle(world.taken(claimed, 1, complete=False), world.taken(claimed, 2))
    await world.settle(world.reported(claimed, number=2))
    assert await world.status(claimed.id) == "sent"
    assert await world.events() == []

    await world.settle(world.reported(claimed, number=1))

    assert await world.ending(claimed.id) == ("delivered", None, NOTHING)
    assert await world.events() == ["message.delivered", "batch.completed"]


@pytest.mark.parametrize("first", ["DELIVRD", "UNDELIV"])
async def test_a_message_is_undelivered_and_refunded_whole_when_one_segment_is_not(
    world: World, first: str
) -> None:
    second = "UNDELIV" if first == "DELIVRD" else "DELIVRD"
    claimed = await world.claim_one(LONG)
    await world.settle(world.taken(claimed, 1, complete=False), world.taken(claimed, 2))
    for number, state in ((1, first), (2, second)):
        await world.settle(world.reported(claimed, state, number))

    assert await world.ending(claimed.id) == ("undelivered", "UNKNOWN", 2 * COST)
    assert await world.events() == ["message.undelivered", "message.refunded", "batch.completed"]


async def test_a_message_is_sent_when_two_tries_together_took_all_its_segments(world: World) -> None:
    first = await world.claim_one(LONG)
    await world.settle(world.doubtful(first))
    await world.resume_due()
    (second,) = await world.claim()
    await world.settle(world.taken(second, 1, attempt=1, complete=False))
    assert await world.status(first.id) == "sending"

    await world.settle(world.taken(first, 2, complete=False, late=True))

    assert await world.status(first.id) == "sent"


async def test_receipts_that_settle_nothing_leave_a_message_sent(world: World) -> None:
    claimed = await world.claim_one()
    states = ("ENROUTE", "ACCEPTD", "BUFFERD", "SCHEDLD", "UNKNOWN")
    await world.settle(world.taken(claimed), *(world.reported(claimed, state) for state in states))
    assert await world.status(claimed.id) == "sent"
    assert await world.events() == []


@pytest.mark.parametrize(
    ("first", "late"), [("DELIVRD", "UNDELIV"), ("UNDELIV", "DELIVRD"), ("refused", "DELIVRD")]
)
async def test_a_receipt_after_the_last_one_changes_nothing_but_the_timeline(
    world: World, first: str, late: str
) -> None:
    claimed = await world.claim_one()
    if first == "refused":
        await world.settle(world.refused(claimed))
    else:
        await world.settle(world.taken(claimed), world.reported(claimed, first))
        await world.settle(world.reported(claimed, first))
    ended, events = await world.ending(claimed.id), await world.events()
    assert await world.incidents() == {}
    await world.settle(world.reported(claimed, late))

    assert await world.ending(claimed.id) == ended
    assert await world.events() == events
    assert await world.incidents() == {"late_receipt": 1}


async def test_a_message_without_a_receipt_is_unconfirmed_after_72_hours_and_not_before(world: World) -> None:
    await world.send(2)
    first, second = await world.claim(2)
    await world.settle(world.taken(first))
    assert await world.give_up_receipts(timedelta(hours=71)) == 0

    assert await world.give_up_receipts(THREE_DAYS) == 1

    assert await world.ending(first.id) == ("unconfirmed", None, NOTHING)
    assert await world.status(second.id) == "sending"
    assert await world.events() == ["message.unconfirmed"]


@pytest.mark.parametrize(
    ("state", "status", "refund"),
    [("DELIVRD", "delivered", 0), ("UNDELIV", "undelivered", COST)],
)
async def test_a_late_receipt_settles_an_unconfirmed_message_once(
    world: World, state: str, status: str, refund: Decimal
) -> None:
    claimed = await world.claim_one()
    await world.settle(world.taken(claimed))
    await world.give_up_receipts(THREE_DAYS)
    before = ["message.unconfirmed", "batch.completed"]
    assert await world.events() == before
    completed = "SELECT status, completed_at, pending FROM batches"
    batch = await world.rows(completed)

    for _ in range(2):
        await world.settle(world.reported(claimed, state))
    # It was completed then, and is not once more.
    assert await world.rows(completed) == batch

    after = [f"message.{status}", *(["message.refunded"] if refund else [])]
    assert (await world.ending(claimed.id))[::2] == (status, refund)
    assert await world.events() == [*before, *after]


async def test_only_what_the_carriers_rule_names_is_paid_back(world: World) -> None:
    refunded = ("undelivered",)
    await world.send(3)
    undelivered, expired, failed = await world.claim(3)
    await world.settle(
        world.taken(undelivered),
        world.taken(expired),
        world.reported(undelivered, "UNDELIV"),
        world.reported(expired, "EXPIRED"),
        world.refused(failed),
        refunded=refunded,
    )
    for claimed, status in ((undelivered, "undelivered"), (expired, "expired"), (failed, "failed")):
        refund = COST if status in refunded else 0
        assert (await world.ending(claimed.id))[::2] == (status, refund)


async def test_what_has_ended_is_not_moved_or_paid_back_whoever_says_so(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.taken(claimed), world.reported(claimed))
    assert await world.settle(Ended(claimed.id, "delivered", "failed", "NO_ROUTE")) == 0
    assert await world.ending(claimed.id) == ("delivered", None, Decimal(0))


async def test_what_is_remembered_wrongly_is_noticed_and_nothing_is_written(world: World) -> None:
    claimed = await world.claim_one()
    async with world.engine.database.connection() as connection:
        remembered = await settlement.lock_messages(connection, [claimed.id])
    await world.settle(world.returned(claimed))
    with pytest.raises(ChangedMeanwhileError):
        async with world.engine.database.transaction() as connection:
            await settle(connection, [world.taken(claimed)], worker=WORKER, remembered=remembered)
    assert await world.status(claimed.id) == "queued"
    assert await world.rows("SELECT FROM parts") == []


async def test_the_segments_of_several_messages_are_those_of_each(world: World) -> None:
    first, second = await world.claim_one(LONG), await world.claim_one(LONG)
    await world.settle(world.taken(first, 1, complete=False), world.taken(second, 2, complete=False))
    await world.settle(world.reported(second, "ENROUTE", 2), world.reported(first, "DELIVRD", 1))
    async with world.engine.database.connection() as connection:
        pair = [first.id, second.id]
        assert sorted(await settlement.list_numbers(connection, pair)) == [(first.id, 1), (second.id, 2)]
        states = [
            (one, number, state) for one, number, state, _ in await settlement.list_states(connection, pair)
        ]
    assert sorted(states) == [(first.id, 1, "DELIVRD"), (second.id, 2, "ENROUTE")]


async def test_groups_that_settle_the_same_messages_in_opposite_orders_neither_deadlock_nor_count_twice(
    world: World,
) -> None:
    await world.send(20)
    claimed = await world.claim(20)
    await world.settle(*(world.taken(one) for one in claimed))
    reports = [world.reported(one, "UNDELIV") for one in claimed]

    async def report(order: list[Reported]) -> None:
        for start in range(0, len(order), 5):
            await world.settle(*order[start : start + 5])

    await asyncio.gather(
        *(report(order) for order in (reports, reports[::-1], reports[::2] + reports[1::2], reports[::-1]))
    )

    assert await world.engine.statuses() == {"undelivered": 20}
    assert len(await world.rows("SELECT FROM transfers WHERE message_id IS NOT NULL")) == 20
    assert (await world.events()).count("batch.completed") == 1
    assert len(await world.events()) == 41


async def test_without_the_order_two_groups_would_wait_for_each_other(world: World) -> None:
    await world.send(2)
    ids = [one.id for one in await world.claim(2)]
    hold = "SELECT FROM messages WHERE id = $1 FOR NO KEY UPDATE"
    async with world.engine.database.connection() as one, world.engine.database.connection() as other:
        for connection in (one, other):
            await connection.execute("BEGIN")
        await one.fetch(hold, ids[0])
        await other.fetch(hold, ids[1])
        results = await asyncio.gather(
            one.fetch(hold, ids[1]), other.fetch(hold, ids[0]), return_exceptions=True
        )
        assert [type(result) for result in results].count(asyncpg.DeadlockDetectedError) == 1
        for connection in (one, other):
            await connection.execute("ROLLBACK")


@pytest.mark.parametrize("word", ["put off", "returned", "doubtful"])
async def test_an_answer_counts_that_comes_together_with_the_trouble_of_the_next_try(
    world: World, word: str
) -> None:
    await world.send()
    (first,) = await world.claim()
    await world.settle(world.doubtful(first))
    await world.resume_due()
    (second,) = await world.claim()
    trouble: dict[str, Outcome] = {
        "put off": world.put_off(second),
        "returned": world.returned(second, again=True),
        "doubtful": world.doubtful(second),
    }
    await world.settle(trouble[word], world.taken(first, late=True))

    assert await world.status(first.id) == "sent"
    for table in ("queue", "in_flight", "retries"):
        assert await world.rows(f"SELECT FROM {table}") == []


async def test_accounts_that_are_refunded_together_get_back_each_its_own(world: World) -> None:
    other, untouched = [await world.engine.open_account() for _ in range(2)]

    async def balances() -> dict[AccountId, Decimal]:
        rows = await world.rows("SELECT id, balance FROM accounts WHERE phone <> 'system'")
        return {row["id"]: row["balance"] for row in rows}

    for caller, count in ((other, 1), (world.caller, 3)):
        await world.engine.send(caller, numbers(count))
    before = await balances()
    await world.settle(*(world.refused(one) for one in await world.claim(4)))
    gained = {account_id: balance - before[account_id] for account_id, balance in (await balances()).items()}
    assert gained == {world.caller.id: Decimal("0.12"), other.id: Decimal("0.04"), untouched.id: 0}


async def test_a_receipt_beside_a_late_answer_that_is_recorded_already_is_kept(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.taken(claimed))
    await world.settle(world.taken(claimed, late=True), world.reported(claimed, "UNDELIV"))
    (row,) = await world.rows("SELECT state, received_at IS NOT NULL AS is_dated FROM parts")
    assert tuple(row) == ("UNDELIV", True)
    assert await world.status(claimed.id) == "undelivered"


async def test_what_is_said_of_a_message_that_is_gone_harms_no_other(world: World) -> None:
    claimed = await world.claim_one()
    gone = structs.replace(claimed, id=MessageId(UUID(int=claimed.id.int + 1)))
    assert await world.settle(world.taken(gone), world.taken(claimed)) == 1
    assert await world.settle(world.reported(gone)) == 0
    assert await world.status(claimed.id) == "sent"
