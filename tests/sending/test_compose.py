"""Composed messages: review and confirmation."""

from decimal import Decimal
from typing import Final
from uuid import uuid4

import asyncpg
import pytest

from tests.support.processes.service import new_caller
from tests.support.sending.batchers import open_batchers
from tumira.audit_log import OPERATOR
from tumira.core.errors import ValidationFailed
from tumira.pricing.actions import set_price
from tumira.pricing.destinations import Price, PriceStatus
from tumira.sending import compose
from tumira.sending.compose import Draft

SMALL: Final = "+263771200001, +27821230001"
LARGE: Final = "\n".join(f"+26377120{place:04}" for place in range(60))


@pytest.mark.parametrize("recipients", [SMALL, LARGE], ids=["small", "large"])
async def test_a_price_that_changes_in_the_last_moment_is_not_charged(
    database_url: str, recipients: str
) -> None:
    caller = await new_caller(database_url)
    draft = Draft(recipients, "Your order 1042 is on its way.", "")
    connection = await asyncpg.connect(database_url)
    async with open_batchers(database_url, 1) as batchers:
        shown = await compose.examine(batchers.database, caller.id, draft)
        await set_price(batchers.database, Price("sms", "ZW", Decimal("0.05"), PriceStatus.ACTIVE), OPERATOR)
        token = str(uuid4())
        assert isinstance(
            await compose.send(batchers.batchers[0], caller.id, token, draft, shown), ValidationFailed
        )
        assert await connection.fetchval("SELECT count(*) FROM batches") == 0

        again = await compose.examine(batchers.database, caller.id, draft)
        sent = await compose.send(batchers.batchers[0], caller.id, token, draft, again)
        # A second press of the first page leads to the batch, whatever it would cost now.
        assert await compose.send(batchers.batchers[0], caller.id, token, draft, shown) == sent
    assert await connection.fetchval("SELECT count(*) FROM batches") == 1
    balance = await connection.fetchval("SELECT balance FROM accounts WHERE id = $1", caller.id)
    assert again.quote is not None
    assert balance == Decimal(100) - again.quote.total_cost
    await connection.close()
