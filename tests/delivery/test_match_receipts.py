"""A receipt is looked for among the messages that it may be about, and no others."""

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import pytest

from tests.support.delivery.settling import World
from tumira.core.ids import MessageId
from tumira.delivery.match_receipts import _reach, _submission, bounds
from tumira.delivery.outcomes import WHOLE
from tumira.delivery.store import receipts
from tumira.delivery.store.receipts import Doubt, KnownPart

NOON: Final = datetime(2026, 11, 17, 12, tzinfo=UTC)
MESSAGE: Final = MessageId(UUID(int=7))


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
