"""Daily totals of costs, charges and refunds are added up."""

from datetime import date
from decimal import Decimal
from typing import Final

from tests.support.delivery.settling import World
from tumira.delivery.store import margins
from tumira.delivery.store.margins import MarginRow

COST: Final = Decimal("0.011")


async def test_what_is_added_to_a_day_is_added_to_all_that_it_has(world: World) -> None:
    row = MarginRow(date(2026, 3, 1), world.carrier_id, "ZW", "econet", world.caller.id, 2, 1, COST, 3 * COST)
    row.refunded = COST
    async with world.engine.database.transaction() as connection:
        for _ in range(3):
            await margins.add(connection, [row])
    found = await world.rows("SELECT segments, unpriced, cost_usd, charged, refunded FROM margin_days")
    assert [tuple(one) for one in found] == [(6, 3, 3 * COST, 9 * COST, 3 * COST)]
    await world.rows("DELETE FROM margin_days")
