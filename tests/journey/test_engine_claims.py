"""A claim that is disturbed leaves no message behind."""

import asyncio
from typing import Final

import pytest

from tests.support.delivery.engine import Engine, numbers
from tumira.core.ids import MessageId
from tumira.delivery.outcomes import Ended
from tumira.delivery.settle import settle
from tumira.simulator.smsc import run_smsc

BLOCKED: Final = (
    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


async def test_a_message_that_is_settled_while_it_is_claimed_leaves_the_queue(engine: Engine) -> None:
    async with run_smsc() as smsc:
        caller = await engine.open_account()
        await engine.send(caller, numbers(1))
        async with engine.database.connection() as ending:
            await ending.execute("BEGIN")
            rows = await ending.fetch("SELECT id FROM messages FOR NO KEY UPDATE")
            await engine.add_carrier("one", smsc.port, ["ZW"])
            engine.start_worker()

            async def blocked() -> bool:
                return bool(await engine.rows(BLOCKED))

            await engine.until(blocked, "nobody claims it")
            await settle(ending, [Ended(MessageId(rows[0]["id"]), "queued", "failed", "NO_ROUTE")], worker="")
            await ending.execute("COMMIT")

        async def left() -> bool:
            return not await engine.rows("SELECT FROM queue")

        await engine.until(left, "still in the queue")


@pytest.mark.long
async def test_a_carrier_that_is_changed_again_and_again_strands_no_message(engine: Engine) -> None:
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port, ["ZW"])
        engine.start_worker()
        caller = await engine.open_account()
        for change in range(5):
            for part in range(2):
                await engine.send(caller, numbers(1000), f"Your code is {change}{part}.")
            await engine.add_carrier("one", smsc.port, ["ZW"], window=64 + change)
            await asyncio.sleep(0.7)

        async def submitted() -> bool:
            return not await engine.rows("SELECT FROM queue")

        await engine.until(submitted, "still waiting")
        await engine.until_all("delivered")
        assert await engine.rows("SELECT FROM incidents") == []
        assert set(smsc.texts.counts.values()) == {1}
