"""A receipt is looked for among the messages that it may be about, and no others."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import pytest

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import World
from tumira.core.ids import MessageId
from tumira.delivery import follow_up
from tumira.delivery.match_receipts import _reach, _submission, bounds, find_by_id
from tumira.delivery.outcomes import WHOLE, Taken
from tumira.delivery.receipt_rules import Receipt, key
from tumira.delivery.store import receipts
from tumira.delivery.store.queue import ClaimedMessage
from tumira.delivery.store.receipts import DOUBTS_MAX, TO_NUMBER_MAX, Doubt, KnownPart

NOON: Final = datetime(2026, 11, 17, 12, tzinfo=UTC)
MESSAGE: Final = MessageId(UUID(int=7))
NUMBER: Final = numbers(1)[0]
NOTICE: Final = "Your order is ready."
TWO_SEGMENTS: Final = "Your statement is ready. " * 8
THREE_SEGMENTS: Final = "Your statement is ready. " * 16


async def doubt(world: World, body: str = NOTICE, to: str = NUMBER) -> ClaimedMessage:
    await world.send(body=body, to=[to])
    (claimed,) = await world.claim()
    await world.settle(world.doubtful(claimed))
    return claimed


def about(claimed: ClaimedMessage, reference: str | None, state: str = "DELIVRD") -> Receipt:
    return Receipt(reference, claimed.recipient[1:], state, "000", f"stat:{state}")


def taken(
    world: World, claimed: ClaimedMessage, reference: str, number: int = 1, *, late: bool = False
) -> Taken:
    outcome = world.taken(claimed, number, complete=claimed.segments == 1, late=late)
    outcome.part.carrier_ref, outcome.part.carrier_key = reference, key(reference)
    return outcome


async def carrier_ids(world: World) -> list[str]:
    rows = await world.rows("SELECT carrier_ref FROM parts ORDER BY message_id, number, attempt")
    return [row["carrier_ref"] for row in rows]


def test_receipts_of_several_days_reach_from_the_first_to_the_last() -> None:
    days = [NOON + timedelta(days=day) for day in (3, 0, 9)]
    assert _reach(days) == (bounds(NOON)[0], bounds(NOON + timedelta(days=9))[1])
    assert bounds(NOON)[0] < bounds(NOON)[1]


async def test_only_what_is_in_flight_is_being_submitted(world: World) -> None:
    sent, flying = "+263771200001", "+263771200002"
    await world.send(to=[sent])
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed))
    await world.send(to=[flying])
    await world.claim()
    async with world.engine.database.connection() as connection:
        reach = bounds(datetime.now(UTC))
        both = [sent, flying]
        found = await receipts.list_being_submitted(connection, world.carrier_id, both, reach)
        assert found == {flying}
        assert await receipts.list_being_submitted(connection, world.carrier_id, [sent], reach) == frozenset()
        assert not await receipts.list_being_submitted(connection, world.carrier_id + 1, both, reach)


def in_doubt(segments: int = 3, status: str = "sending", attempt: int = 1) -> Doubt:
    return Doubt("+263771200001", MESSAGE, NOON, attempt, segments, status)


def known(number: int, attempt: int, seconds: float) -> KnownPart:
    return KnownPart(MESSAGE, number, attempt, f"{number}-{attempt}", NOON + timedelta(seconds=seconds))


def test_segments_that_were_known_to_be_taken_when_it_was_claimed_were_not_submitted_again() -> None:
    found = _submission(in_doubt(), [known(1, 0, -5)])
    assert (found.open_numbers, found.needed) == ([2, 3], frozenset({2, 3}))
    # The answer came after the claim: it was submitted again, and is not needed any more.
    found = _submission(in_doubt(), [known(1, 0, 5)])
    assert (found.open_numbers, found.needed) == ([1, 2, 3], frozenset({2, 3}))
    # One of the same attempt has its id; one of a later attempt says nothing of this one.
    found = _submission(in_doubt(), [known(2, 1, 5), known(3, 2, -5)])
    assert (found.open_numbers, found.needed) == ([1, 3], frozenset({1}))
    assert (found.message_id, found.attempt, found.claimed_at, found.segments) == (MESSAGE, 1, NOON, 3)


@pytest.mark.parametrize(
    ("status", "needed"),
    [("sending", {1, 2}), ("unconfirmed", {1, 2}), ("delivered", set()), ("failed", set())],
)
def test_a_message_that_has_ended_needs_no_segment(status: str, needed: set[int]) -> None:
    found = _submission(in_doubt(2, status), [])
    assert (found.open_numbers, found.needed) == ([1, 2], frozenset(needed))


def test_a_carrier_over_http_has_a_message_whole() -> None:
    found = _submission(in_doubt(0), [])
    assert (found.open_numbers, found.needed) == ([WHOLE], frozenset({WHOLE}))
    assert _submission(in_doubt(0), [known(WHOLE, 1, 5)]).open_numbers == []


async def test_of_messages_with_one_carrier_id_the_newest_three_are_found(world: World) -> None:
    await world.send(4)
    claimed = await world.claim(4)
    outcomes = [world.taken(one) for one in claimed]
    for outcome in outcomes:
        outcome.part.carrier_ref = outcome.part.carrier_key = "777"
    await world.settle(*outcomes)
    async with world.engine.database.connection() as connection:
        reach = bounds(datetime.now(UTC))
        found = await receipts.find_segments(connection, world.carrier_id, [(0, "777"), (1, "778")], reach)
        assert not await receipts.find_segments(connection, world.carrier_id + 1, [(0, "777")], reach)
    newest = sorted((one.id for one in claimed), reverse=True)[:3]
    assert [one.message_id for one in found] == newest
    assert {(one.place, one.number, one.attempt) for one in found} == {(0, 1, 0)}


@pytest.mark.parametrize(
    ("after", "is_found"),
    [
        (timedelta(minutes=-65), False),
        (timedelta(minutes=-55), True),
        (timedelta(days=10), True),
        (timedelta(days=12), False),
    ],
)
async def test_an_id_finds_a_message_accepted_days_before_or_by_a_clock_that_was_an_hour_ahead(
    world: World, after: timedelta, *, is_found: bool
) -> None:
    claimed = await world.claim_one()
    await world.settle(world.taken(claimed))
    arrived = (world.receipt(claimed), claimed.created_at + after)
    async with world.engine.database.connection() as connection:
        (found,) = await find_by_id(connection, world.carrier_id, [arrived])
    assert [one.message_id for one in found] == ([claimed.id] if is_found else [])


async def test_only_the_spelling_of_the_carrier_is_looked_for_where_that_is_asked(world: World) -> None:
    await world.send(2)
    same, converted = await world.claim(2)
    await world.settle(taken(world, same, "16"), taken(world, converted, "10"))
    now = datetime.now(UTC)
    # 16 is 10 in hexadecimal, and no number of a message is named.
    arrived = [(Receipt("16", "", "DELIVRD", None, ""), now)] * 2
    async with world.engine.database.connection() as connection:
        either, as_spelt = await find_by_id(connection, world.carrier_id, arrived, [1])
    assert [one.message_id for one in either] == [same.id, converted.id]
    assert [one.message_id for one in as_spelt] == [same.id]


async def test_without_an_id_nothing_is_found_by_it(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.taken(claimed))
    now = datetime.now(UTC)
    async with world.engine.database.connection() as connection:
        assert await find_by_id(connection, world.carrier_id, []) == []
        arrived = [(about(claimed, None), now), (world.receipt(claimed), now)]
        nothing, found = await find_by_id(connection, world.carrier_id, arrived)
    assert nothing == []
    assert [one.message_id for one in found] == [claimed.id]


async def test_a_receipt_without_an_id_settles_the_doubt_to_its_number(world: World) -> None:
    claimed = await doubt(world)
    await world.keep(about(claimed, None))
    assert await world.try_unmatched() == 1
    assert await world.status(claimed.id) == "delivered"
    assert await carrier_ids(world) == [""]


@pytest.mark.parametrize("body", [NOTICE, TWO_SEGMENTS], ids=["one segment", "two segments"])
async def test_a_doubt_of_which_the_carrier_has_all_is_sent_and_waits_for_its_end(
    world: World, body: str
) -> None:
    claimed = await doubt(world, body)
    on_its_way = [about(claimed, f"7100{place}", "ENROUTE") for place in range(claimed.segments)]
    await world.keep(*on_its_way)
    assert await world.try_unmatched() == claimed.segments
    (row,) = await world.rows("SELECT status, sent_at FROM messages")
    (doubted,) = await world.rows("SELECT claimed_at FROM incidents")
    assert tuple(row) == ("sent", doubted["claimed_at"])
    # It is not sent again, and the receipts have done their work.
    assert await world.rows("SELECT FROM retries") == []
    assert await world.rows("SELECT FROM unmatched_receipts") == []


async def test_of_two_receipts_with_a_known_id_the_first_that_came_counts(world: World) -> None:
    claimed = await doubt(world)
    await world.settle(world.taken(claimed, late=True))
    await world.keep(world.receipt(claimed, "UNDELIV"), world.receipt(claimed, "DELIVRD"))
    assert await world.try_unmatched() == 2
    assert await world.status(claimed.id) == "undelivered"
    assert await world.incidents() == {"doubt": 1, "late_receipt": 1}


async def test_a_receipt_with_another_form_of_a_known_id_proves_no_other_segment(world: World) -> None:
    claimed = await doubt(world, THREE_SEGMENTS)
    await world.settle(
        taken(world, claimed, "71001", 1, late=True), taken(world, claimed, "71002", 2, late=True)
    )
    await world.keep(about(claimed, "smsc1-71001"))
    assert await world.try_unmatched() == 0
    assert await carrier_ids(world) == ["71001", "71002"]

    await world.keep(about(claimed, "smsc1-71003"))
    assert await world.try_unmatched() == 1
    assert await carrier_ids(world) == ["71001", "71002", "smsc1-71003"]


@pytest.mark.parametrize(("count", "settled"), [(TO_NUMBER_MAX - 1, TO_NUMBER_MAX - 1), (TO_NUMBER_MAX, 0)])
async def test_as_many_receipts_to_a_number_as_are_read_prove_nothing(
    world: World, count: int, settled: int
) -> None:
    claimed = await doubt(world)
    await world.keep(*[about(claimed, "777")] * count)
    assert await world.try_unmatched() == settled
    assert await world.status(claimed.id) == ("delivered" if settled else "sending")


@pytest.mark.parametrize(("count", "settled"), [(DOUBTS_MAX, 1), (DOUBTS_MAX + 1, 0)])
async def test_a_number_with_too_many_doubts_proves_nothing(world: World, count: int, settled: int) -> None:
    claimed = await doubt(world)
    await world.keep(about(claimed, "777"))
    # Those that were claimed after the receipt came would not matter.
    await asyncio.gather(*(world.send(body=NOTICE, to=[NUMBER]) for _ in range(count - 1)))
    await world.settle(*(world.doubtful(one) for one in await world.claim(count - 1)))
    assert await world.try_unmatched() == settled
    assert await world.status(claimed.id) == ("delivered" if settled else "sending")


async def test_no_doubt_is_settled_while_one_of_its_receipts_may_be_about_what_is_submitted_abroad(
    world: World,
) -> None:
    claimed = await doubt(world)
    await world.send(to=["+27771200000"])
    await world.rows("UPDATE queue SET country = 'ZW'")
    (abroad,) = await world.claim()
    # The second may be to either country.
    await world.keep(about(claimed, "777"), Receipt("778", "0771200000", "DELIVRD", None, ""))
    assert await world.try_unmatched() == 0
    assert await world.status(claimed.id) == "sending"

    await world.settle(world.refused(abroad))
    assert await world.try_unmatched() == 1
    assert await world.status(claimed.id) == "delivered"


async def test_a_doubt_waits_while_the_other_message_that_its_receipt_may_be_about_is_settled(
    world: World,
) -> None:
    due, other = await doubt(world), await doubt(world)
    await world.keep(about(due, "777"), about(other, "778"))
    await world.rows("UPDATE retries SET due_at = clock_timestamp() - interval '1 second'")
    await world.rows("UPDATE retries SET due_at = 'infinity' WHERE message_id = $1", other.id)
    async with world.engine.database.transaction() as settling:
        await settling.execute("SELECT FROM messages WHERE id = $1 FOR UPDATE", other.id)
        async with world.impatient() as connection:
            assert await follow_up.resume_due(connection, world.settings, datetime.now(UTC), {"ZW"}) == 0
    assert await world.engine.statuses() == {"sending": 2}
    # Both are due now, and neither is held: one receipt for each.
    assert await world.resume_due() == 2
    assert await world.engine.statuses() == {"delivered": 2}
    assert await world.incidents() == {"doubt": 2}


async def test_the_receipt_of_a_message_that_is_being_settled_is_kept_for_later(world: World) -> None:
    doubtful = await doubt(world)
    await world.send(body=NOTICE, to=[NUMBER])
    (sent,) = await world.claim()
    await world.settle(world.taken(sent))
    await world.keep(world.receipt(sent))
    await world.rows("UPDATE retries SET due_at = clock_timestamp() - interval '1 second'")
    async with world.engine.database.transaction() as settling:
        await settling.execute("SELECT FROM messages WHERE id = $1 FOR UPDATE", sent.id)
        # It says nothing of the doubt, which is sent again.
        async with world.impatient() as connection:
            assert await follow_up.resume_due(connection, world.settings, datetime.now(UTC), {"ZW"}) == 1
    assert (await world.status(doubtful.id), await world.status(sent.id)) == ("queued", "sent")
    assert await world.try_unmatched() == 1
    assert (await world.status(doubtful.id), await world.status(sent.id)) == ("queued", "delivered")


async def test_a_message_is_settled_by_all_of_its_receipts_or_by_none(world: World) -> None:
    claimed = await doubt(world)
    await world.keep(about(claimed, "777"), about(claimed, "777"))
    await world.rows("UPDATE unmatched_receipts SET next_try_at = clock_timestamp()")
    async with world.engine.database.transaction() as deciding:
        await deciding.execute("SELECT FROM unmatched_receipts ORDER BY id LIMIT 1 FOR UPDATE")
        async with world.impatient() as connection:
            assert (await follow_up.retry_unmatched_receipts(connection)).found == 0
    assert await world.status(claimed.id) == "sending"
    assert await world.try_unmatched() == 2
    assert await world.status(claimed.id) == "delivered"
