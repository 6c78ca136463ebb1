"""A receipt is looked for among the messages that it may be about, and no others."""

from datetime import UTC, datetime, timedelta
from typing import Final

from tests.support.delivery.settling import World
from tumira.delivery.match_receipts import _reach, bounds
from tumira.delivery.store import receipts

NOON: Final = datetime(2026, 11, 17, 12, tzinfo=UTC)


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
