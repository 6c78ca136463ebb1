"""Every message ends once, whatever carriers, receipts and timeouts say about it, in any order."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import asyncpg
import pytest
from msgspec import structs

from tests.support.delivery.engine import numbers
from tests.support.delivery.margins import check_margins
from tests.support.delivery.settling import BLOCKED, WORKER, World
from tests.support.sending.owners import give_owner, texts_to_owner
from tumira.carriers.routes import manage
from tumira.core.ids import AccountId, MessageId
from tumira.delivery.lanes import Room
from tumira.delivery.outcomes import AlreadyTaken, Ended, Outcome, Reported
from tumira.delivery.settle import ChangedMeanwhileError, settle
from tumira.delivery.settle_rules import Ending
from tumira.delivery.store import queue, settlement
from tumira.delivery.store.latency import NO_CARRIER
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest

# Two segments, at twice the price.
LONG: Final = "Your statement is ready. " * 8
# So many of five segments each that their refund is large.
FIVE_SEGMENTS: Final = "Your statement is ready. " * 30
MANY: Final = 25
AFRICAN: Final = "+27821230001"
COST: Final = Decimal("0.04")
NOTHING: Final = Decimal(0)
THREE_DAYS: Final = timedelta(hours=73)
# An UPDATE may find its rows in the order in which they lie in the table.
BY_PLACE: Final = {"enable_indexscan": "off", "enable_seqscan": "off"}


async def claim_african(world: World) -> ClaimedMessage:
    await world.send(to=[AFRICAN])
    async with world.engine.database.transaction() as connection:
        claimed = await queue.claim(
            connection,
            [ClaimRequest("ZA", 1, 0, 1, 0, 0)],
            Room(1, 0, 1),
            worker=WORKER,
            bind="one/1",
            carrier_id=world.carrier_id,
        )
    assert claimed is not None
    return claimed[0]


async def counted(world: World) -> Mapping[tuple[int, str, str, str], int]:
    rows = await world.rows("SELECT carrier_id, network, country, outcome, count FROM outcomes")
    return {tuple(row)[:4]: row["count"] for row in rows}


@asynccontextmanager
async def stopped_at(
    world: World, hold: str, *arguments: object, outcomes: Sequence[Outcome]
) -> AsyncIterator[None]:
    """Settle outcomes, as far as a row that another session holds; they are settled afterwards."""
    mover = await world.engine.database.connect(BY_PLACE)

    async def move() -> None:
        async with mover.transaction():
            await settle(mover, outcomes, worker=WORKER)

    async def blocked() -> bool:
        return bool(await world.rows(BLOCKED))

    async with world.engine.database.transaction() as holder:
        assert len(await holder.fetch(hold, *arguments)) == 1
        moving = asyncio.create_task(move())
        await world.engine.until(blocked, "it does not wait for the row")
        yield
    await moving
    await mover.close()


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


async def test_an_account_that_wants_to_hear_of_it_is_told_that_its_message_was_sent(world: World) -> None:
    claimed = await world.claim_one()
    async with world.engine.database.transaction() as connection:
        await settle(connection, [world.taken(claimed)], worker=WORKER, tell_sent={world.caller.id})
    assert await world.events() == ["message.sent"]
    assert await check_margins(world.engine) == COST


async def test_a_receipt_that_ends_nothing_is_kept_when_it_comes_with_an_answer(world: World) -> None:
    await world.send(2)
    first, second = await world.claim(2)
    await world.settle(world.taken(first))
    await world.settle(world.taken(second), world.reported(first, "ENROUTE"))
    rows = await world.rows("SELECT message_id, state FROM parts")
    assert dict(map(tuple, rows)) == {first.id: "ENROUTE", second.id: None}
    assert await world.engine.statuses() == {"sent": 2}
    assert await check_margins(world.engine) == 2 * COST


async def test_a_late_answer_is_paid_for_when_it_comes_with_another_answer(world: World) -> None:
    await world.send(2)
    late, second = await world.claim(2)
    await world.settle(world.doubtful(late))
    await world.settle(world.taken(second), world.taken(late, late=True))
    assert await world.engine.statuses() == {"sent": 2}
    assert await check_margins(world.engine) == 2 * COST


async def test_a_late_answer_has_the_cost_that_came_with_it_else_that_of_its_route(world: World) -> None:
    route, own = Decimal("0.011"), Decimal("0.02")
    await manage.add_route(
        world.engine.database, country="ZW", network=None, carrier="one", priority=1, cost=route
    )
    await world.send(2)
    claimed = await world.claim(2)
    await world.settle(*(world.doubtful(one) for one in claimed))
    answers = [world.taken(one, late=True) for one in claimed]
    answers[0].part.cost = (own, "USD", own)
    await world.settle(*answers)
    rows = await world.rows("SELECT message_id, cost, currency, cost_usd FROM parts")
    assert {row["message_id"]: tuple(row)[1:] for row in rows} == {
        claimed[0].id: (own, "USD", own),
        claimed[1].id: (route, "USD", route),
    }
    assert await check_margins(world.engine) == 2 * COST - own - route


async def test_a_message_that_a_carrier_had_whole_before_its_next_try_is_sent_and_charged(
    world: World,
) -> None:
    claimed = await world.claim_one(LONG)
    await world.settle(*(world.taken(claimed, number, complete=False) for number in (1, 2)))
    taken_at = datetime.now(UTC)
    assert await world.settle(AlreadyTaken(claimed.id, taken_at, world.carrier_id)) == 1
    (row,) = await world.rows("SELECT status, sent_at FROM messages")
    assert tuple(row) == ("sent", taken_at)
    assert await world.rows("SELECT FROM in_flight") == []
    assert await check_margins(world.engine) == 2 * COST


async def test_an_answer_that_tells_of_the_whole_message_needs_none_for_its_other_segments(
    world: World,
) -> None:
    """It may have been impossible to record the answer for another segment."""
    claimed = await world.claim_one(LONG)
    await world.settle(world.taken(claimed, 2))
    assert await world.status(claimed.id) == "sent"


async def test_the_next_try_completes_what_a_late_answer_to_the_first_began(world: World) -> None:
    first = await world.claim_one(LONG)
    await world.settle(world.doubtful(first))
    await world.resume_due()
    (second,) = await world.claim()
    await world.settle(world.taken(first, 2, complete=False, late=True))
    assert await world.status(first.id) == "sending"
    await world.settle(world.taken(second, 1, attempt=1, complete=False))
    assert await world.status(first.id) == "sent"


async def test_a_refusal_counts_after_another_segment_was_answered_and_reported(world: World) -> None:
    claimed = await world.claim_one(LONG)
    await world.settle(world.taken(claimed, 1, complete=False))
    await world.settle(world.reported(claimed, "ENROUTE", 1))
    await world.settle(world.refused(claimed))
    assert await world.ending(claimed.id) == ("failed", "CARRIER_REJECTED", 2 * COST)


async def test_ends_are_counted_by_carrier_network_country_and_reason(world: World) -> None:
    await world.send(2)
    refused, african = await world.claim(2), await claim_african(world)
    await world.settle(
        *(world.refused(one) for one in refused), world.taken(african), world.reported(african)
    )
    failed = {(NO_CARRIER, "Econet", "ZW", how): 2 for how in ("failed", "CARRIER_REJECTED")}
    assert await counted(world) == {**failed, (world.carrier_id, "Vodacom", "ZA", "delivered"): 1}


async def test_ends_that_the_caller_counts_are_given_to_it(world: World) -> None:
    await world.send(2)
    sent, refused = await world.claim(2)
    endings: list[Ending] = []
    async with world.engine.database.transaction() as connection:
        told = (world.taken(sent), world.refused(refused))
        await settle(connection, told, worker=WORKER, endings=endings)
    (ending,) = endings
    assert (ending.message_id, ending.status, ending.reason) == (refused.id, "failed", "CARRIER_REJECTED")
    assert await counted(world) == {}


async def test_the_network_that_a_receipt_names_is_kept_for_its_number(world: World) -> None:
    claimed = await claim_african(world)
    reported = world.reported(claimed)
    named = structs.replace(reported, receipt=structs.replace(reported.receipt, network="65510"))
    await world.settle(world.taken(claimed), named)
    rows = await world.rows("SELECT number, network FROM number_networks")
    assert [tuple(row) for row in rows] == [(int(AFRICAN), "mtn")]


async def test_events_have_their_times_in_the_order_of_their_numbers(world: World) -> None:
    await world.send(3)
    first, second, other = sorted(await world.claim(3), key=lambda one: one.id)
    refused = [world.refused(one) for one in (first, second)]
    # Who changes the second one lets them have it late; they have the first one before.
    change = "UPDATE messages SET sent_at = sent_at WHERE id = $1 RETURNING id"
    async with stopped_at(world, change, second.id, outcomes=refused):
        await world.settle(world.refused(other))
    rows = await world.rows("SELECT message_id, at FROM events ORDER BY sequence")
    assert rows[0]["message_id"] == other.id
    times = [row["at"] for row in rows]
    assert times == sorted(times)


async def test_batches_that_are_settled_together_are_locked_by_id(world: World) -> None:
    for _ in range(2):
        await world.send()
    claimed = await world.claim(2)
    first, second = sorted(one.batch_id for one in claimed)
    # It lies behind the other one now.
    await world.rows(
        "WITH gone AS (DELETE FROM batches WHERE id = $1 RETURNING *) INSERT INTO batches SELECT * FROM gone",
        first,
    )
    row = "SELECT FROM batches WHERE id = $1"
    refused = [world.refused(one) for one in claimed]
    async with stopped_at(world, f"{row} FOR UPDATE", first, outcomes=refused):
        assert len(await world.rows(f"{row} FOR UPDATE SKIP LOCKED", second)) == 1
    assert await world.engine.statuses() == {"failed": 2}


async def test_totals_of_the_margin_are_locked_after_the_notices_to_owners(world: World) -> None:
    phone = await give_owner(world.engine.database, world.caller.id)
    told: list[Sequence[Outcome]] = []
    for _ in range(2):
        await world.send(MANY, FIVE_SEGMENTS)
        claimed = await world.claim(MANY)
        assert claimed[0].segments == 5
        told.append([what for one in claimed for what in (world.taken(one), world.reported(one, "UNDELIV"))])
    await world.settle(*told[0])
    count = "SELECT FROM security_notices WHERE kind = 'refund' FOR UPDATE"
    async with stopped_at(world, count, outcomes=told[1]):
        totals = "SELECT FROM margin_days"
        assert len(await world.rows(f"{totals} FOR UPDATE SKIP LOCKED")) == len(await world.rows(totals)) > 0
    assert len(await texts_to_owner(world.engine.database, phone)) == 2
    assert await check_margins(world.engine) == 0
