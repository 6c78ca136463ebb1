"""Fairness between accounts, with a real worker and carrier.

The carrier takes 300 messages a second, as in the simulated scenarios of the unit tests; the limits here are
generous, because the machine may be busy with other things.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from tests.support.chaos.node import WorkerProcess
from tests.support.delivery.engine import Engine, numbers
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call
from tumira.postgres.notify import Waker
from tumira.sending.types import Answered
from tumira.simulator.handsets import ReceivedText
from tumira.simulator.misbehaviours import ResponseDelay
from tumira.simulator.smsc import run_smsc

RATE: Final = 300
SHOPS: Final = 60
SECONDS: Final = 6
# Among sixty others that send too much, everybody waits for a round of all, and for what is held before it.
IN_TURN_S: Final = 5.0


class Crowd:
    """Accounts that send at their own pace, and when each message was accepted and arrived."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.waker = Waker(engine.database)
        self._accepted: dict[tuple[str, str], float] = {}
        self._arrived: dict[tuple[str, str], float] = {}

    def arrive(self, text: ReceivedText) -> None:
        self._arrived[text.to, text.text] = time.monotonic()

    async def send(self, name: str, caller: Caller, moments: Sequence[float]) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as calls:
            for place, moment in enumerate(moments):
                await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
                calls.create_task(self._send(f"{name}: your code is {place}.", caller))

    async def _send(self, body: str, caller: Caller) -> None:
        (to,) = numbers(1)
        decision = await self._engine.batcher.ask(send_call(caller, [to], body))
        assert isinstance(decision, Answered), decision
        self.waker.wake()
        self._accepted[to, body] = time.monotonic()

    def waits(self, name: str) -> Sequence[float]:
        # The carrier may have one before the caller has the answer.
        return [
            max(0.0, self._arrived[one] - at)
            for one, at in self._accepted.items()
            if one[1].startswith(f"{name}: ") and one in self._arrived
        ]

    def shares(self, since: float) -> "Counter[str]":
        return Counter(text.partition(":")[0] for (_, text), at in self._arrived.items() if at > since)


@pytest.mark.long
async def test_more_small_sends_than_the_carrier_takes_are_shared_fairly(
    engine: Engine, tmp_path: Path
) -> None:
    crowd = Crowd(engine)
    *shops, bank = [await engine.open_account() for _ in range(SHOPS + 1)]
    codes = [place / 2 for place in range(2 * SECONDS)]
    async with run_smsc(misbehaviours=[ResponseDelay(50)], arrived=crowd.arrive) as smsc:
        await engine.add_carrier("main", smsc.port, window=100, tps=RATE)
        worker = WorkerProcess(tmp_path / "worker.log", database_url=engine.url)

        async def is_bound() -> bool:
            return bool(await engine.rows("SELECT FROM binds WHERE state = 'bound'"))

        await engine.until(is_bound, "the worker does not bind")
        began = time.monotonic()
        await asyncio.gather(
            *(
                crowd.send(f"shop {place}", shop, [sent / 10 + place / 600 for sent in range(10 * SECONDS)])
                for place, shop in enumerate(shops)
            ),
            crowd.send("bank", bank, codes),
        )
        # Not the first second, in which there is not yet more than the carrier takes.
        shares = crowd.shares(began + 1.0)
        del shares["bank"]

        async def has_all() -> bool:
            return len(crowd.waits("bank")) == len(codes)

        await engine.until(has_all, "the bank waits")
        # In a thread: it parts from its carrier, which answers from our event loop.
        await asyncio.to_thread(worker.end)
        crowd.waker.close()
    fair = shares.total() / SHOPS
    print(f"overload of small sends: {fair:.1f} each, {min(shares.values())} to {max(shares.values())}")
    assert shares.total() > 0.8 * RATE * (SECONDS - 1)
    for place in range(SHOPS):
        assert shares[f"shop {place}"] == pytest.approx(fair, rel=0.25)
    # Below its share, so it waits for a round of all and not behind what the others have too much.
    assert median(crowd.waits("bank")) < median(crowd.waits("shop 0"))
    assert max(crowd.waits("bank")) < IN_TURN_S
