"""What is due, over or too old is decided by the database's clock, whatever a node's own clock says."""

from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Final

import pytest
import pytest_asyncio

from tests.support.chaos.shifted_clock import shift_clock
from tests.support.delivery.engine import Engine, numbers, open_engine
from tumira.core.ids import TopUpId, new_id
from tumira.operations.maintenance import MAINTENANCE_TASKS, MaintenanceTask, run_task
from tumira.simulator.smsc import run_smsc
from tumira.topups import store as top_ups
from tumira.topups.settle import settle
from tumira.topups.states import Currency, Method, StillPending, TopUpState
from tumira.topups.store import NewTopUp
from tumira.webhooks.manage import add_endpoint, send_test

# Longer than messages are worth sending, and than receipts are waited for.
WRONG: Final = timedelta(hours=100)
# So far all times may be from the database's now.
NEAR: Final = "interval '10 minutes'"

TIMES: Final = """
SELECT FROM (SELECT sent_at AS at FROM messages UNION ALL SELECT delivered_at FROM messages
              UNION ALL SELECT submitted_at FROM parts UNION ALL SELECT answered_at FROM parts
              UNION ALL SELECT received_at FROM parts UNION ALL SELECT at FROM events
              UNION ALL SELECT slot FROM latencies UNION ALL SELECT slot FROM outcomes) AS times
 WHERE at IS NULL OR at NOT BETWEEN now() - {0} - {0} AND now() + {0}
"""


@pytest_asyncio.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    async with open_engine(database_url) as engine:
        yield engine


@pytest.mark.long
@pytest.mark.parametrize("by", [WRONG, -WRONG], ids=["ahead", "behind"])
async def test_a_worker_with_a_wrong_clock_delivers_what_waits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, by: timedelta
) -> None:
    caller = await engine.open_account()
    await engine.send(caller, numbers(20))
    shift_clock(monkeypatch, by)
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        worker = engine.start_worker()
        await engine.until_all("delivered")
        await engine.stop_worker(worker)
    assert not await engine.rows("SELECT FROM transfers WHERE message_id IS NOT NULL")
    assert not await engine.rows(TIMES.format(NEAR))
    assert await engine.audit() == []


async def test_chores_of_a_node_with_a_wrong_clock_end_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await engine.open_account()
    await engine.send(caller, numbers(3))
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port, countries=["ZW", "ZA"])
        shift_clock(monkeypatch, WRONG)
        for task in MAINTENANCE_TASKS:
            if isinstance(task, MaintenanceTask):
                await run_task(engine.database, task)
    assert await engine.statuses() == {"queued": 3}


@pytest.mark.parametrize("by", [WRONG, -WRONG], ids=["ahead", "behind"])
async def test_a_top_up_stays_open_for_as_long_as_the_database_says(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, by: timedelta
) -> None:
    caller = await engine.open_account()
    top_up_id = TopUpId(new_id(1_794_700_800_000))
    new = NewTopUp(top_up_id, caller.id, Method.PAYNOW, "paynow", Currency.USD, asked=Decimal(5))
    async with engine.database.transaction() as connection:
        await top_ups.insert(connection, new)
    if by < timedelta():
        # Begun long ago, so that it is over.
        await engine.rows("UPDATE top_ups SET created_at = created_at - interval '90 hours'")
    shift_clock(monkeypatch, by)
    settled = await settle(engine.database, top_up_id, StillPending())
    assert settled.top_up.state is (TopUpState.EXPIRED if by < timedelta() else TopUpState.PENDING)


async def test_a_test_of_a_webhook_is_due_at_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = await engine.open_account()
    url = "https://example.com/hook"
    shift_clock(monkeypatch, WRONG)
    endpoint, _ = await add_endpoint(engine.database, caller.id, url, None, "", allow_private=False)
    await send_test(engine.database, endpoint.id)
    assert len(await engine.rows("SELECT FROM webhook_retries WHERE due_at <= now()")) == 1
