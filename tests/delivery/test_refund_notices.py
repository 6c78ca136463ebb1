"""The owner gets one alert about a large refund, and none about a small one."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import pytest

from tests.support.delivery.engine import Engine
from tests.support.sending.owners import give_owner, texts_to_owner
from tumira.core.ids import AccountId, BatchId, new_id
from tumira.delivery.settle_rules import refund_notice
from tumira.delivery.store.settlement import BatchChange, ClosedBatch
from tumira.simulator.smsc import run_smsc

BATCH: Final = BatchId(new_id(0))
# Three segments.
LONG: Final = "Your statement of this month is ready, and you can read it in the app. " * 6
# The simulator reports every message to these as not delivered.
NOWHERE: Final = [f"+2637712{place}{ending}" for place in range(10) for ending in range(9901, 9906)]


@pytest.mark.parametrize(
    ("pending", "before", "settled", "refunded", "told"),
    [
        (1, "0", 1, "5", 1),
        (1, "0", 1, "4.9999", 0),
        # Much, but less than a tenth of the cost.
        (1, "0", 1, "9.99", 0),
        (1, "9.96", 1, "0.04", 1),
        # More is to come: it is told when the batch is complete.
        (2, "0", 1, "60", 0),
        # A late receipt after the end.
        (0, "9.99", 0, "0.04", 1),
        (0, "10", 0, "0.04", 0),
        (1, "50", 1, "0", 1),
    ],
)
def test_a_batch_is_told_of_once_when_much_of_it_came_back(
    pending: int, before: str, settled: int, refunded: str, told: int
) -> None:
    cost = Decimal(100) if Decimal(before) + Decimal(refunded) > Decimal(5) else Decimal(8)
    batch = ClosedBatch(
        BATCH,
        AccountId(new_id(0)),
        datetime(2026, 11, 17, 12, 5, tzinfo=UTC),
        pending - settled,
        cost,
        Decimal(before) + Decimal(refunded),
    )
    change = BatchChange(BATCH, settled, Decimal(refunded))
    notice = refund_notice(batch, change)
    assert (notice is not None) == bool(told)
    if notice is not None:
        assert f"of US${cost:.2f} for your batch of 17 Nov 14:05 was refunded" in notice.text


async def test_the_owner_gets_a_text_about_a_batch_that_did_not_arrive(engine: Engine) -> None:
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        caller = await engine.open_account("50")
        phone = await give_owner(engine.database, caller.id)
        await engine.send(caller, NOWHERE, LONG)
        await engine.send(caller, NOWHERE[:1])

        async def is_told() -> bool:
            return bool(await texts_to_owner(engine.database, phone))

        await engine.until(is_told, "the owner got no text")
        await engine.until_all("delivered", "undelivered", "expired", "failed")
    (text,) = await texts_to_owner(engine.database, phone)
    assert text.startswith("Tumira: US$6.00 of US$6.00 for your batch of ")
    assert await engine.audit() == []
