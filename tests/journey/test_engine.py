"""Does an accepted message reach a carrier, and its outcome come back?"""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.delivery.engine import Engine, numbers, open_engine
from tumira.simulator.smsc import Smsc, run_smsc


@pytest_asyncio.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    """Give an engine without carriers."""
    async with open_engine(database_url) as engine:
        yield engine


@pytest_asyncio.fixture
async def smsc() -> AsyncIterator[Smsc]:
    """Give a carrier that behaves."""
    async with run_smsc(port=0) as smsc:
        yield smsc


async def test_every_recipient_gets_the_text_once_and_it_is_delivered(engine: Engine, smsc: Smsc) -> None:
    await engine.add_carrier("one", smsc.port)
    engine.start_worker()
    caller = await engine.open_account()
    await engine.send(caller, numbers(300))
    await engine.until_all("delivered")
    assert len(smsc.texts) == 300
    assert set(smsc.texts.counts.values()) == {1}
    batch = (await engine.rows("SELECT * FROM batches"))[0]
    assert (batch["status"], batch["pending"], batch["refunded"]) == ("completed", 0, 0)
    assert batch["completed_at"] is not None
    message = (await engine.rows("SELECT * FROM messages LIMIT 1"))[0]
    assert message["sent_at"] <= message["delivered_at"]
    assert await engine.audit() == []
