"""A receipt that matched nothing when it came settles its own message, and no other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import pytest

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import REFUND_ALL, Owner, Phone, World
from tumira.delivery import follow_up
from tumira.delivery.observer import Observer
from tumira.delivery.outcomes import Taken
from tumira.delivery.receipt_rules import Receipt, key
from tumira.delivery.recorder import Recorder
from tumira.delivery.smpp.session import SmppSession
from tumira.delivery.store import receipts
from tumira.delivery.store.queue import ClaimedMessage
from tumira.operations import maintenance
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.clock import read_now

LONG: Final = "Your statement is ready. " * 8
TRY, FORGET = (
    next(task for task in MAINTENANCE_TASKS if task.name == f"{verb} unmatched receipts")
    for verb in ("try", "forget")
)
# More than are tried in one turn.
MANY: Final = 500
DRAIN_S: Final = 60.0


def about(claimed: ClaimedMessage, reference: str | None, state: str = "DELIVRD") -> Receipt:
    return Receipt(reference, claimed.recipient[1:], state, "000", f"stat:{state}")


async def doubt(world: World, body: str = "Your code is 493817.", to: str | None = None) -> ClaimedMessage:
    await world.send(body=body, to=[to or numbers(1)[0]])
    (claimed,) = await world.claim()
    await world.settle(world.doubtful(claimed))
    return claimed


async def carrier_ids(world: World) -> list[str]:
    rows = await world.rows("SELECT carrier_ref FROM parts ORDER BY message_id, number, attempt")
    return [row["carrier_ref"] for row in rows]


async def flood(world: World, carrier_id: int, count: int) -> None:
    await world.rows(
        "INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, receipt, received_at,"
        " next_try_at)"
        " SELECT $1, 'x' || n, '27821' || lpad(n::text, 6, '0'), 'DELIVRD', '', now(),"
        "        now() - interval '1 hour'"
        "   FROM generate_series(1, $2) AS n",
        carrier_id,
        count,
    )


async def other_carrier(world: World) -> int:
    await world.engine.add_carrier("two", 2776)
    (row,) = await world.rows("SELECT id FROM carriers WHERE name = 'two'")
    return int(row["id"])


async def test_a_receipt_from_long_before_the_claim_does_not_settle_a_message_whose_id_was_used_before(
    world: World,
) -> None:
    await world.keep(Receipt("777", numbers(1)[0][1:], "DELIVRD", None, ""))
    await world.rows("UPDATE unmatched_receipts SET received_at = received_at - interval '2 hours'")
    claimed = await world.claim_one()
    await world.settle(taken(world, claimed, "777"))
    assert await world.try_unmatched() == 0
    assert await world.status(claimed.id) == "sent"

    await world.keep(about(claimed, "777"))
    assert await world.try_unmatched() == 1
    (row,) = await world.rows("SELECT sent_at, delivered_at FROM messages")
    assert row["sent_at"] <= row["delivered_at"]


async def test_what_the_carrier_refused_is_not_delivered_by_the_receipt_of_another_message(
    world: World,
) -> None:
    first, second = await doubt(world, LONG), await doubt(world)
    await world.keep(about(first, "71001"), about(second, "71002"))
    assert await world.try_unmatched() == 0
    await world.resume_due()
    assert await world.status(first.id) == "queued"
    assert await world.status(second.id) == "queued"


async def test_the_answer_that_comes_while_receipts_are_tried_is_not_overlooked(world: World) -> None:
    claimed = await doubt(world, LONG)
    await world.keep(about(claimed, "71002"), about(claimed, "71001"))
    await world.settle(taken(world, claimed, "71001", late=True))
    assert await world.try_unmatched() == 2
    assert await world.status(claimed.id) == "delivered"
    assert await carrier_ids(world) == ["71001", "71002"]


async def test_a_try_that_was_put_off_before_the_doubt_is_no_attempt_of_its_own(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.put_off(claimed))
    await world.resume_due()
    (again,) = await world.claim()
    await world.settle(world.doubtful(again))
    await world.keep(about(claimed, "777"))
    assert await world.try_unmatched() == 1
    (row,) = await world.rows("SELECT attempt, carrier_ref FROM parts")
    assert tuple(row) == (0, "777")


async def test_a_national_number_of_two_countries_in_doubt_is_neither(world: World) -> None:
    claimed = await doubt(world)
    await world.send(to=["+27771200000"])
    await world.rows("UPDATE queue SET country = 'ZW'")
    (other,) = await world.claim()
    await world.settle(world.doubtful(other))
    await world.keep(Receipt("777", "0771200000", "DELIVRD", None, ""))
    assert await world.try_unmatched() == 0
    await world.keep(Receipt("778", "27771200000", "UNDELIV", None, ""))
    assert await world.try_unmatched() == 1
    assert await world.status(other.id) == "undelivered"
    # Now the first one is left.
    assert await world.status(claimed.id) == "sending"


async def test_a_carrier_that_floods_us_does_not_keep_the_receipts_of_another(world: World) -> None:
    flooding = await other_carrier(world)
    claimed = await doubt(world)
    await flood(world, flooding, MANY)
    await world.keep(about(claimed, "777"))
    assert await world.try_unmatched() == 1
    assert await world.status(claimed.id) == "delivered"
    # All that are due are tried without a pause.
    await world.rows("UPDATE unmatched_receipts SET next_try_at = now() - interval '1 hour'")
    assert await run_task(world.engine.database, TRY) == 0
    due = "SELECT FROM unmatched_receipts WHERE next_try_at < now() - interval '1 minute'"
    assert await world.rows(due) == []


@pytest.mark.parametrize("in_doubt", ["resend", "hold"])
async def test_a_doubt_looks_for_its_own_receipt_before_it_is_sent_again(world: World, in_doubt: str) -> None:
    await world.rows("UPDATE carriers SET refund = '{}'")
    world.settings[world.carrier_id] = replace(world.settings[world.carrier_id], in_doubt=in_doubt)
    claimed = await doubt(world)
    await flood(world, world.carrier_id, MANY)
    await world.keep(about(claimed, "777", "UNDELIV"))
    assert await world.resume_due() == 1
    assert await world.status(claimed.id) == "undelivered"
    # As the carrier's rule says, nothing is paid back.
    assert (await world.ending(claimed.id))[2] == 0
    assert await world.incidents() == {"doubt": 1}
    assert len(await world.rows("SELECT FROM unmatched_receipts")) == MANY


async def test_a_doubt_waits_while_somebody_else_decides_about_its_receipt(world: World) -> None:
    claimed = await doubt(world)
    await world.keep(about(claimed, "777"))
    async with world.engine.database.transaction() as connection:
        await connection.execute("SELECT FROM unmatched_receipts FOR UPDATE")
        assert await world.resume_due() == 0
    assert await world.status(claimed.id) == "sending"
    assert await world.resume_due() == 1
    assert await world.status(claimed.id) == "delivered"


async def test_a_receipt_is_tried_ever_less_often(world: World) -> None:
    await flood(world, world.carrier_id, 1)
    for age_s, wait_s in ((0, 1), (5, 5), (3600, 600)):
        await world.rows(
            "UPDATE unmatched_receipts SET received_at = clock_timestamp() - make_interval(secs => $1)", age_s
        )
        await world.try_unmatched()
        (row,) = await world.rows(
            "SELECT extract(epoch FROM next_try_at - received_at)::float8 AS after_s FROM unmatched_receipts"
        )
        assert age_s + wait_s <= row["after_s"]
        # It waits for as long as it is old.
        assert wait_s == 600 or row["after_s"] < 2 * age_s + 60


async def test_more_is_due_while_one_carrier_has_as_many_as_are_tried_at_once(world: World) -> None:
    flooding = await other_carrier(world)
    await flood(world, flooding, MANY)
    await flood(world, world.carrier_id, 1)
    async with world.engine.database.transaction() as connection:
        turns = [await follow_up.retry_unmatched_receipts(connection) for _ in range(4)]
    assert [turn.is_more_due for turn in turns] == [True, True, False, False]


async def test_a_receipt_that_another_worker_tries_is_left_to_it(world: World) -> None:
    await flood(world, world.carrier_id, 3)
    await world.rows("UPDATE unmatched_receipts SET next_try_at = clock_timestamp()")
    ids = [row["id"] for row in await world.rows("SELECT id FROM unmatched_receipts ORDER BY id")]
    async with world.engine.database.transaction() as holder:
        await holder.execute("SELECT FROM unmatched_receipts WHERE id = $1 FOR UPDATE", ids[0])
        async with world.engine.database.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            assert await receipts.lock_free(connection, ids) == frozenset(ids[1:])
            due = await receipts.claim_due(connection, 9)
            assert [one.id for one in due[world.carrier_id]] == ids[1:]
            # They are not due again at once.
            assert await receipts.claim_due(connection, 9) == {}


async def test_what_receipts_say_of_a_foreign_message_is_that_of_its_own_carrier_newest_first(
    world: World,
) -> None:
    other = await other_carrier(world)
    async with world.engine.database.transaction() as connection:
        for carrier_id, reference, state in (
            (world.carrier_id, "a", "ENROUTE"),
            (world.carrier_id, "b", "REJECTD"),
            (other, "a", "UNDELIV"),
            (world.carrier_id, "a", "DELIVRD"),
        ):
            receipt = Receipt(reference, "263771200001", state, None, "")
            await receipts.insert_unmatched(connection, carrier_id, [(receipt, datetime.now(UTC))])
        assert await receipts.list_states(connection, world.carrier_id, "a") == ["DELIVRD", "ENROUTE"]
        # By number, of one carrier, the newest first.
        found = await receipts.list_to_numbers(connection, world.carrier_id, ["71200001", "71200001"])
        assert [one.receipt.state for one in found] == ["DELIVRD", "REJECTD", "ENROUTE"]
        assert await receipts.list_to_numbers(connection, world.carrier_id, ["71200002"]) == []
        await connection.execute(
            "UPDATE unmatched_receipts SET received_at = clock_timestamp() - make_interval(hours => 71 + $1)"
            " WHERE state = $2",
            2,
            "REJECTD",
        )
        await connection.execute(
            "UPDATE unmatched_receipts SET received_at = clock_timestamp() - make_interval(hours => 71)"
            " WHERE state = 'ENROUTE'"
        )
        assert await receipts.delete_old(connection) == 1
        assert await receipts.list_states(connection, world.carrier_id, "b") == []


async def test_so_many_receipts_of_a_carrier_are_kept_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "RECEIPTS_KEPT_MAX", 100)
    flooding = await other_carrier(world)
    await flood(world, world.carrier_id, 2)
    await flood(world, flooding, 105)
    assert await run_task(world.engine.database, FORGET) == 5
    assert await run_task(world.engine.database, FORGET) == 0
    kept = await world.rows(
        "SELECT carrier_id, count(*), min(carrier_ref) FILTER (WHERE carrier_ref IN ('x5', 'x6')) AS oldest"
        "  FROM unmatched_receipts GROUP BY carrier_id ORDER BY carrier_id"
    )
    assert [tuple(row) for row in kept] == [(world.carrier_id, 2, None), (flooding, 100, "x6")]


@asynccontextmanager
async def recording(world: World) -> AsyncIterator[Recorder]:
    database = world.engine.database
    recorder = Recorder(database, world.carrier_id, "one", Observer(database))
    recorder.refunded = REFUND_ALL
    try:
        yield recorder
    finally:
        await recorder.close()


async def receive(recorder: Recorder, receipt: Receipt) -> None:
    phone = Phone()
    phone.unacknowledged[1] = receipt
    recorder.receive(receipt, datetime.now(UTC), cast("SmppSession", phone), 1)
    await recorder.drain(DRAIN_S)
    assert phone.unacknowledged == {}


def taken(world: World, claimed: ClaimedMessage, reference: str, *, late: bool = False) -> Taken:
    outcome = world.taken(claimed, late=late, complete=not late)
    outcome.part.carrier_ref, outcome.part.carrier_key = reference, key(reference)
    return outcome


@pytest.mark.parametrize("is_known", ["to this worker", "from before a restart"])
async def test_an_id_as_it_is_spelt_comes_before_another_reading_of_it(world: World, is_known: str) -> None:
    to = numbers(1)
    await world.send(to=to)
    (first,) = await world.claim()
    await world.send(to=to)
    (second,) = await world.claim()
    if is_known == "from before a restart":
        await world.settle(taken(world, first, "16"))
    async with recording(world) as recorder:
        if is_known == "to this worker":
            recorder.put(taken(world, first, "16"), first.recipient, Owner())
        recorder.put(taken(world, second, "10"), second.recipient, Owner())
        await receive(recorder, about(first, "16"))
    assert await world.status(first.id) == "delivered"
    assert await world.status(second.id) == "sent"


async def test_a_receipt_settles_nothing_by_an_answer_that_could_not_be_recorded(world: World) -> None:
    claimed = await world.claim_one()
    unwritable = taken(world, claimed, "777")
    unwritable.part.carrier_ref = "777\0"
    async with recording(world) as recorder:
        recorder.put(unwritable, claimed.recipient, Owner())
        await recorder.drain(DRAIN_S)
        await receive(recorder, about(claimed, "777"))
    assert await world.status(claimed.id) == "sending"
    assert len(await world.rows("SELECT FROM unmatched_receipts")) == 1


async def test_a_receipt_is_kept_with_the_time_of_the_database(world: World) -> None:
    """The clock of this machine is not asked: where it is wrong, a doubt would not match its receipt."""
    claimed = await world.claim_one()
    async with world.engine.database.transaction() as connection:
        now = await read_now(connection)
        late, early = now - timedelta(minutes=5), now + timedelta(minutes=5)
        for at in (late, early):
            kept = (world.receipt(claimed, "DELIVRD"), at)
            await receipts.insert_unmatched(connection, world.carrier_id, [kept])
    rows = await world.rows("SELECT received_at FROM unmatched_receipts ORDER BY received_at")
    assert rows[0]["received_at"] == late
    # The copy of the database's clock may be ahead, but nothing came after it was stored.
    assert now <= rows[1]["received_at"] < early
