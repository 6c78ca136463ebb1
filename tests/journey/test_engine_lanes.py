"""A passcode goes at once, however much bulk waits."""

import asyncio
import time
from typing import Final

import pytest

from tests.support.delivery.engine import Engine, numbers
from tests.support.processes.service import Caller
from tumira.delivery import dispatcher
from tumira.postgres.notify import Waker
from tumira.simulator.handsets import ReceivedText
from tumira.simulator.smsc import Smsc, run_smsc

RATE: Final = 300
BULK_BATCHES: Final = 25
BULK: Final = "Your statement is ready."
# From the acceptance to the carrier. A second is promised, on a machine that has nothing else to do; behind
# the backlog it would be minutes.
AT_ONCE_S: Final = 15.0
LISTENING: Final = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN %'"
)


async def until_texts(engine: Engine, smsc: Smsc, count: int) -> None:
    async def there() -> bool:
        return len(smsc.texts) >= count

    await engine.until(there, f"no {count} texts")


@pytest.mark.long
async def test_a_passcode_overtakes_fifty_thousand_waiting_messages_of_its_own_account_and_another(
    engine: Engine,
) -> None:
    arrivals: dict[str, float] = {}

    def arrived(text: ReceivedText) -> None:
        arrivals[text.text] = time.monotonic()

    senders = [await engine.open_account() for _ in range(2)]
    quiet = await engine.open_account()
    await asyncio.gather(*(fill(engine, sender) for sender in senders))
    async with run_smsc(arrived=arrived) as smsc:
        await engine.add_carrier("one", smsc.port, tps=RATE)
        worker = engine.start_worker()
        await until_texts(engine, smsc, RATE)
        waits = []
        for place in range(12):
            code = f"Your code is {place}."
            await engine.send((*senders, quiet)[place % 3], numbers(1, start=90_000 + place), code)
            accepted_at = time.monotonic()

            async def is_there(code: str = code) -> bool:
                return code in arrivals

            await engine.until(is_there, f"{code} did not arrive")
            waits.append(arrivals[code] - accepted_at)
        assert max(waits) < AT_ONCE_S
        waiting = await engine.rows("SELECT count(*) FROM queue WHERE lane = 1")
        assert waiting[0]["count"] > 40_000
        # Bulk goes on beside it.
        await until_texts(engine, smsc, len(smsc.texts) + 100)
        await engine.stop_worker(worker)


async def fill(engine: Engine, sender: Caller) -> None:
    for place in range(BULK_BATCHES):
        await engine.send(sender, numbers(1000, start=1000 * place), BULK)


@pytest.mark.long
async def test_a_worker_is_woken_for_a_message_and_does_not_wait_for_its_next_look(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LOOK_S", 600.0)
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.until(lambda: listens(engine), "nobody listens")
        for number in numbers(5):
            await engine.send(caller, [number])
            await engine.until_status(number, "delivered")

        # After its line was cut it listens again.
        (before,) = await engine.rows(LISTENING)
        await engine.rows("SELECT pg_terminate_backend($1)", before["pid"])

        async def listens_again() -> bool:
            return any(row["pid"] != before["pid"] for row in await engine.rows(LISTENING))

        await engine.until(listens_again, "nobody listens again")
        for number in numbers(5, start=10):
            await engine.send(caller, [number])
            await engine.until_status(number, "delivered")


async def listens(engine: Engine) -> bool:
    return bool(await engine.rows(LISTENING))


@pytest.mark.long
async def test_a_worker_that_nobody_wakes_finds_a_message_by_itself(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Waker, "wake", lambda _waker: None)
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        for number in numbers(3):
            await engine.send(caller, [number])
            await engine.until_status(number, "delivered")
