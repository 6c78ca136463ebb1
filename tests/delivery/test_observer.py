"""A worker counts how long submissions and receipts take, how messages end, and what carriers answer."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest_asyncio

from tests.support.delivery.engine import Engine, numbers
from tumira.core.ids import AccountId, BatchId, MessageId, new_id
from tumira.delivery import observer
from tumira.delivery.observer import Observer
from tumira.delivery.store.queue import ClaimedMessage
from tumira.postgres.pool import Database
from tumira.simulator.smsc import Smsc, run_smsc

UNKNOWN_NUMBER = "+263771209901"
REFUSED = "+263771209905"
TRIED_AGAIN = "+263771209907"
LOST_ONCE = "+263771209909"


@pytest_asyncio.fixture
async def smsc() -> AsyncIterator[Smsc]:
    async with run_smsc(port=0) as smsc:
        yield smsc


async def timed(engine: Engine) -> Counter[tuple[str, str, str, int]]:
    rows = await engine.rows(
        "SELECT step, network, country, lane, sum(count)::bigint FROM latencies GROUP BY 1, 2, 3, 4"
    )
    return Counter({(step, network, country, lane): count for step, network, country, lane, count in rows})


async def ends(engine: Engine) -> Counter[tuple[str, str]]:
    rows = await engine.rows("SELECT network, outcome, sum(count)::bigint FROM outcomes GROUP BY 1, 2")
    return Counter({(network, outcome): count for network, outcome, count in rows})


async def test_hand_overs_receipts_and_ends_are_counted_by_network_and_lane(
    engine: Engine, smsc: Smsc
) -> None:
    await engine.add_carrier("one", smsc.port, doubt_wait=1)
    worker = engine.start_worker()
    caller = await engine.open_account()
    await engine.send(caller, numbers(30), "Your statement is ready. " * 10)
    await engine.send(caller, ["+27821230001", "+27821230002", "+263771210000"])
    await engine.send(caller, [UNKNOWN_NUMBER, REFUSED, TRIED_AGAIN])
    await engine.send(caller, [LOST_ONCE])
    await engine.until_all("delivered", "undelivered", "failed")
    # What is still in memory is added when the worker ends.
    await engine.stop_worker(worker)

    assert await timed(engine) == {
        ("handover", "Econet", "ZW", 1): 30,
        ("handover", "Econet", "ZW", 0): 4,
        ("handover", "Vodacom", "ZA", 0): 2,
        ("receipt", "Econet", "ZW", 0): 34,
        ("receipt", "Vodacom", "ZA", 0): 2,
    }
    assert await ends(engine) == {
        ("Econet", "sent"): 34,
        ("Econet", "delivered"): 33,
        ("Econet", "undelivered"): 1,
        ("Econet", "UNKNOWN_SUBSCRIBER"): 2,
        ("Econet", "failed"): 1,
        ("Econet", "RINVDSTADR (0x0B)"): 1,
        ("Econet", "RSYSERR (0x08)"): 2,
        ("Econet", "no answer"): 1,
        ("Vodacom", "sent"): 2,
        ("Vodacom", "delivered"): 2,
    }
    (row,) = await engine.rows("SELECT min(slot), max(slot), min(carrier_id) > 0 FROM outcomes")
    assert (row[0].minute % 10, row[0].second, row[2]) == (0, 0, True)
    assert row[1] <= datetime.now(UTC)


async def test_what_cannot_be_added_is_lost_and_nothing_else(database_url: str) -> None:
    at = datetime.now(UTC)
    batch_id = BatchId(new_id(int(at.timestamp() * 1000)))
    claimed = ClaimedMessage(
        MessageId(batch_id),
        batch_id,
        AccountId(batch_id),
        "ZW",
        lane=0,
        turn=1,
        again=False,
        recipient="+263771200001",
        segments=1,
        body="",
        created_at=at,
        expires_at=at,
        claimed_at=at,
        avoid=None,
        queue="ZW",
        network="econet",
        cost=Decimal("0.04"),
    )
    away = Database("postgresql://tumira@127.0.0.1:1/tumira", connections_max=1)
    counted = Observer(away)
    counted.submitted(1, claimed)
    await counted.flush()
    await away.close()

    database = Database(database_url, connections_max=1)
    counted = Observer(database)
    # A carrier may answer with any number, and each is a word of its own; there is an end to that.
    for status in range(0x400, 0x400 + observer.KEYS_MAX + 10):
        counted.not_taken(1, claimed, str(status))
    counted.not_taken(1, claimed, str(0x400))
    # A flush is finished although the worker ends, and nothing is added twice.
    flushing = asyncio.create_task(counted.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    await counted.flush()
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT count FROM outcomes ORDER BY count DESC")
        assert (len(rows), rows[0][0], rows[1][0]) == (observer.KEYS_MAX, 2, 1)
        assert await connection.fetchval("SELECT count(*) FROM latencies") == 0
    await database.close()
