"""Fairness between accounts, with a real worker and carrier.

The carrier takes 300 messages a second, as in the simulated scenarios of the unit tests; the limits here are
generous, because the machine may be busy with other things.
"""

import asyncio
import hashlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from tests.support.chaos.node import WorkerProcess, first_true
from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call
from tumira.core.ids import ACCOUNT, KEY, AccountId, new_id, write_id
from tumira.postgres.notify import Waker
from tumira.sending.types import Answered
from tumira.simulator.handsets import Text
from tumira.simulator.misbehaviours import ResponseDelay
from tumira.simulator.smsc import run_smsc

RATE: Final = 300
WINDOW: Final = 100
ANSWER_MS: Final = 50
# The simulation says 0.05 s; a busy machine may take a while to turn to us.
AT_ONCE_S: Final = 1.0
# Among sixty others that send too much, everybody waits for a round of all, and for what is held before it.
IN_TURN_S: Final = 5.0
CALLS_AT_ONCE: Final = 64
# So many may have been accepted before the first clock was told.
FIRST_ONES: Final = 4 * CALLS_AT_ONCE
# What a worker holds of a carrier's rate, a quarter of a second, and a little.
LEAD_MAX: Final = RATE // 4 + 10

SQL_OPEN: Final = """
WITH opened AS (
    INSERT INTO accounts (id, phone, name, business, balance, rate_limit)
    SELECT id, phone, 'Shop', 'Shop', $4, 1000000
      FROM unnest($1::uuid[], $2::text[]) AS account (id, phone)
), paid AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, note, actor)
    SELECT id, 'adjustment', 'customer', $4, 'test', 'test' FROM unnest($1::uuid[]) AS account (id)
)
INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes)
SELECT key_id, id, 'test', $5, ARRAY['messages:send']
  FROM unnest($1::uuid[], $3::uuid[]) AS account (id, key_id)
"""


@dataclass(slots=True)
class Hall:
    """An engine under load, and when each message was accepted and arrived."""

    engine: Engine
    waker: Waker
    accepted: dict[tuple[str, str], float] = field(default_factory=dict)
    arrived: dict[tuple[str, str], float] = field(default_factory=dict)
    _turns: int = 0

    def arrive(self, text: Text) -> None:
        self.arrived[text.to, text.text] = time.monotonic()

    async def open_accounts(self, count: int) -> Sequence[Caller]:
        now_ms = int(time.time() * 1000)
        ids: list[UUID] = [new_id(now_ms) for _ in range(count)]
        key_ids: list[UUID] = [new_id(now_ms) for _ in range(count)]
        phones = [f"+2637712{90_000 - place:05}" for place in range(count)]
        secret = hashlib.sha256(b"secret").digest()
        await self.engine.rows(SQL_OPEN, ids, phones, key_ids, Decimal(100_000), secret)
        return [
            Caller(AccountId(one), write_id(ACCOUNT, one), write_id(KEY, key_id), "")
            for one, key_id in zip(ids, key_ids, strict=True)
        ]

    async def send(self, name: str, caller: Caller, to: Sequence[str]) -> None:
        self._turns += 1
        body = f"{name}: your code is {self._turns}."
        decision = await self.engine.batcher.ask(send_call(caller, to, body))
        assert isinstance(decision, Answered), decision
        self.waker.wake()
        now = time.monotonic()
        self.accepted.update(((number, body), now) for number in to)

    async def send_all(self, sends: Iterable[tuple[str, Caller, Sequence[str]]]) -> None:
        places = asyncio.Semaphore(CALLS_AT_ONCE)

        async def one(name: str, caller: Caller, to: Sequence[str]) -> None:
            async with places:
                await self.send(name, caller, to)

        await asyncio.gather(*(one(*send) for send in sends))

    async def send_at(self, moments: Iterable[float], name: str, caller: Caller, recipients: int = 1) -> None:
        began = time.monotonic()
        under_way: list[Awaitable[None]] = []
        for place, moment in enumerate(sorted(moments)):
            await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
            to = numbers(recipients, place * recipients % 90_000)
            under_way.append(asyncio.ensure_future(self.send(name, caller, to)))
        await asyncio.gather(*under_way)

    def waits(self, name: str) -> Sequence[float]:
        # The carrier may have one before the caller has the answer.
        found = [
            max(0.0, self.arrived[one] - at)
            for one, at in self.accepted.items()
            if one[1].startswith(f"{name}: ") and one in self.arrived
        ]
        return sorted(found)

    def shares(self, since: float) -> "Counter[str]":
        return Counter(one[1].partition(":")[0] for one, at in self.arrived.items() if at > since)

    async def until_arrived(self, name: str) -> None:
        async def all_there() -> bool:
            return all(one in self.arrived for one in self.accepted if one[1].startswith(f"{name}: "))

        await first_true(all_there, f"not all of {name} arrived", 20.0)

    async def is_bound(self) -> bool:
        return bool(await self.engine.rows("SELECT FROM binds WHERE state = 'bound'"))

    async def audit(self) -> None:
        assert await self.engine.audit() == []


@asynccontextmanager
async def open_hall(url: str, log: Path) -> AsyncIterator[Hall]:
    async with open_engine(url) as engine:
        hall = Hall(engine, Waker(engine.database))
        async with run_smsc(misbehaviours=[ResponseDelay(ANSWER_MS)], arrived=hall.arrive) as smsc:
            await engine.add_carrier("main", smsc.port, window=WINDOW, tps=RATE)
            worker = WorkerProcess(log, database_url=url)
            try:
                await first_true(hall.is_bound, "the worker does not bind")
                yield hall
            finally:
                # In a thread: it parts from its carrier, which answers from our event loop.
                await asyncio.to_thread(worker.end)
                hall.waker.close()


def report(hall: Hall, title: str, *names: str) -> None:
    for name in names:
        found = hall.waits(name)
        middle, late = found[len(found) // 2], quantile(found)
        print(
            f"{title}: {name} p50 {middle:.3f} s, p99 {late:.3f} s, longest {found[-1]:.3f} s ({len(found)})"
        )


def quantile(found: Sequence[float], part: float = 0.99) -> float:
    return found[min(len(found) - 1, int(part * len(found)))]


def codes(seconds: float, each_second: float, seed: int = 1) -> Sequence[float]:
    moments = random.Random(seed)
    return [moments.uniform(0, seconds) for _ in range(int(seconds * each_second))]


async def together(*tasks: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(*tasks)


async def serve_beside(hall: Hall, seconds: float, title: str, *senders: tuple[str, Caller]) -> None:
    began = time.monotonic()
    await together(
        *(
            hall.send_at(codes(seconds, 5, seed), name, caller)
            for seed, (name, caller) in enumerate(senders, start=1)
        )
    )
    served = sum(hall.shares(began).values()) / (time.monotonic() - began)
    for name, _ in senders:
        await hall.until_arrived(name)
    report(hall, title, *(name for name, _ in senders))
    print(f"{title}: {served:.0f} messages a second")
    for name, _ in senders:
        assert quantile(hall.waits(name)) < AT_ONCE_S
    assert served > 0.8 * RATE


@pytest.mark.long
async def test_more_small_sends_than_the_carrier_takes_are_shared_fairly(
    database_url: str, tmp_path: Path
) -> None:
    seconds = 6.0
    async with open_hall(database_url, tmp_path / "worker.log") as hall:
        *shops, bank = await hall.open_accounts(61)
        began = time.monotonic()
        await together(
            *(
                hall.send_at(
                    [sent / 10 + place / 600 for sent in range(int(seconds * 10))], f"shop {place}", shop
                )
                for place, shop in enumerate(shops)
            ),
            hall.send_at(codes(seconds, 2), "bank", bank),
        )
        # Not the first second, in which there is not yet more than the carrier takes.
        shares = hall.shares(began + 1.0)
        del shares["bank"]
        fair = sum(shares.values()) / 60
        await hall.until_arrived("bank")
        report(hall, "overload of small sends", "bank", "shop 0")
        print(f"overload of small sends: {fair:.1f} each, {min(shares.values())} to {max(shares.values())}")
        assert fair * 60 > 0.8 * RATE * (seconds - 1)
        for place in range(60):
            assert shares[f"shop {place}"] == pytest.approx(fair, rel=0.25)
        # Below its share, so it waits for a round of all and not behind what the others have too much.
        bank_waits, shop_waits = hall.waits("bank"), hall.waits("shop 0")
        assert quantile(bank_waits, 0.5) < quantile(shop_waits, 0.5)
        assert bank_waits[-1] < IN_TURN_S
        await hall.audit()


@pytest.mark.long
async def test_a_thousand_accounts_with_a_hundred_messages_each_hold_up_nobody_and_share_alike(
    database_url: str, tmp_path: Path
) -> None:
    async with open_hall(database_url, tmp_path / "worker.log") as hall:
        *shops, bank = await hall.open_accounts(1001)
        to = numbers(100)
        loaded_at = 0.0

        async def load() -> None:
            nonlocal loaded_at
            await hall.send_all((f"shop {place}", shop, to) for place, shop in enumerate(shops))
            loaded_at = time.monotonic()

        await together(load(), serve_beside(hall, 30, "a thousand accounts", ("bank", bank)))
        shares, whole = hall.shares(loaded_at), hall.shares(0)
        found = sorted(shares[f"shop {place}"] for place in range(FIRST_ONES, 1000))
        most = max(whole[f"shop {place}"] for place in range(FIRST_ONES))
        print(f"a thousand accounts: {found[0]} to {found[-1]} each, {most} for the first ones in all")
        # From when all are there they take turns.
        assert found[len(found) // 2] >= 3
        assert found[-10] - found[10] <= 2
        # Whoever was alone is ahead by what a worker takes at once, and those who came before its clock was
        # told entered with it: they may catch up with that lead, and with no more.
        assert most - found[-1] <= LEAD_MAX
        await hall.audit()
