"""Nobody waits in a circle when everything that locks rows runs at once against one PostgreSQL.

Claims, answers, receipts of two carriers, every task that moves messages, dead workers, leases, sends,
top-ups, webhooks and an erasure work on few accounts and few messages, so that they meet all the time.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.delivery.settling import REFUND_ALL, World, open_world
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call
from tumira.carriers import store as carriers
from tumira.delivery import follow_up
from tumira.delivery.lanes import Room
from tumira.delivery.outcomes import Outcome
from tumira.delivery.settle import settle
from tumira.delivery.store import binds, queue, receipts, settlement
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.identity.manage_accounts import credit
from tumira.postgres.connection import Connection
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending import batches
from tumira.webhooks import leases
from tumira.webhooks.manage import add_endpoint

WORKERS: Final = ("a", "b", "c")
BINDS: Final = (1, 2, 3)
COUNTRIES: Final = ("ZA", "ZW")
LEASE_S: Final = 3600.0
DAY_LATER: Final = timedelta(hours=25)


@dataclass(slots=True)
class Crowd:
    """Those who work on the same few messages."""

    world: World
    database: Database
    callers: Sequence[Caller]
    carrier_ids: Sequence[int]
    chance: random.Random
    # What was ever claimed; receipts may come for any of it, whoever has it now.
    claimed: list[ClaimedMessage] = field(default_factory=list)
    # Which step each connection is at, and those that PostgreSQL found in a circle.
    steps: dict[int, str] = field(default_factory=dict)
    deadlocks: Counter[Sequence[str]] = field(default_factory=Counter)

    async def repeat(self, step: Callable[[Connection], Awaitable[object]], rounds: int) -> None:
        for _ in range(rounds):
            try:
                async with self.database.transaction() as connection:
                    self.steps[connection.get_server_pid()] = step.__name__
                    await step(connection)
            except asyncpg.DeadlockDetectedError as error:
                pids = re.findall(r"Process (\d+) waits", error.detail or "")
                self.deadlocks[tuple(sorted(self.steps.get(int(pid), "?") for pid in pids))] += 1

    async def send(self, _connection: Connection) -> None:
        first = self.chance.randrange(50_000)
        to = [f"+2637712{first + place:05}" for place in range(self.chance.randint(1, 6))]
        to.append(f"+2782123{first % 10_000:04}")
        call = send_call(self.chance.choice(self.callers), to, "Your code is 493817.")
        # An account that is held for long is answered with 503, and the call leaves nothing behind.
        await self.world.engine.batcher.ask(call)

    async def work(self, connection: Connection) -> None:
        worker, carrier_id = self.chance.choice(WORKERS), self.chance.choice(self.carrier_ids)
        wanted = [ClaimRequest(country, 8, 8, 16, 0, 0) for country in COUNTRIES]
        found = await queue.claim(
            connection, wanted, Room(16, 8, 16), worker=worker, bind="x/1", carrier_id=carrier_id
        )
        if found:
            self.claimed.extend(found)

    async def answer(self, connection: Connection) -> None:
        await settle(
            connection,
            [self._answer(one) for one in self._some()],
            worker=self.chance.choice(WORKERS),
            refunded=REFUND_ALL,
            again=True,
        )

    async def report(self, connection: Connection) -> None:
        states = ("DELIVRD", "UNDELIV", "EXPIRED")
        outcomes = [self.world.reported(one, self.chance.choice(states)) for one in self._some()]
        await settle(connection, outcomes, worker=self.chance.choice(WORKERS))

    async def keep(self, connection: Connection) -> None:
        kept = [(self.world.receipt(one, "UNDELIV"), datetime.now(UTC)) for one in self._some()]
        await receipts.insert_unmatched(connection, self.chance.choice(self.carrier_ids), kept)

    async def try_unmatched(self, connection: Connection) -> None:
        await follow_up.retry_unmatched_receipts(connection)

    async def resume(self, connection: Connection) -> None:
        await follow_up.resume_due(connection, self.world.settings, datetime.now(UTC), COUNTRIES)

    async def expire(self, connection: Connection) -> None:
        found = await follow_up.list_expired(connection, datetime.now(UTC) + DAY_LATER)
        await follow_up.expire(connection, found, COUNTRIES)

    async def fail(self, connection: Connection) -> None:
        await follow_up.fail_unroutable(connection, ())

    async def die(self, connection: Connection) -> None:
        await connection.execute(
            "INSERT INTO workers (id, seen_at) SELECT unnest($1::text[]), 'epoch' ON CONFLICT DO NOTHING",
            list(WORKERS),
        )
        await follow_up.take_over_from_dead(connection, self.world.settings, LEASE_S)

    async def lease(self, connection: Connection) -> None:
        carrier_id = self.chance.choice(self.carrier_ids)
        worker = self.chance.choice(WORKERS)
        await binds.lease(connection, carrier_id, worker, BINDS, self.chance.choice((0, LEASE_S)))

    async def ring(self, connection: Connection) -> None:
        heard = await leases.take_wake_ups(connection, "a", 10)
        now = datetime.now(UTC)
        for one in await leases.lease(connection, heard, "a", now, count_max=10, lease_s=LEASE_S):
            await leases.release(connection, one.id, "a")

    async def credit(self, _connection: Connection) -> None:
        await credit(self.database, self.chance.choice(self.callers).id, Decimal(1), note="stress", actor="t")

    async def erase(self, connection: Connection) -> None:
        held = await settlement.lock_messages(connection, [one.id for one in self._some()])
        await settlement.lock_batches(connection, sorted({one.batch_id for one in held.values()}))
        await batches.erase_texts(connection, 10)

    def _some(self) -> Sequence[ClaimedMessage]:
        recent = self.claimed[-40:] or self.claimed
        return self.chance.sample(recent, min(len(recent), self.chance.randint(1, 12)))

    def _answer(self, claimed: ClaimedMessage) -> Outcome:
        make = self.chance.choice(
            (
                self.world.taken,
                self.world.taken,
                self.world.put_off,
                self.world.doubtful,
                self.world.returned,
                self.world.refused,
            )
        )
        return make(claimed)


@pytest_asyncio.fixture
async def crowd(database_url: str) -> AsyncIterator[Crowd]:
    async with open_world(database_url) as world:
        await world.engine.add_carrier("two", 2776)
        async with world.engine.database.connection() as connection:
            active = await carriers.list_active(connection)
        for carrier in active:
            world.settings[carrier.id] = carrier.settings
        callers = [world.caller, await world.engine.open_account(), await world.engine.open_account()]
        for place in range(2):
            url = f"https://example.com/{place}"
            await add_endpoint(world.engine.database, world.caller.id, url, None, "", allow_private=False)
        database = Database(world.engine.url, connections_max=30, settings=KEY_LOOKUPS)
        try:
            yield Crowd(world, database, callers, [one.id for one in active], random.Random(7))
        finally:
            await database.close()


async def run(crowd: Crowd, rounds: int) -> None:
    for _ in range(10):
        async with crowd.database.transaction() as connection:
            await crowd.send(connection)
            await crowd.work(connection)
    # What waits for a moment is due at once, also what is put off from now on; not by waiting for anybody.
    due = [
        f"UPDATE {table} SET {column} = clock_timestamp() WHERE ctid = ANY(ARRAY("
        f"SELECT ctid FROM {table} WHERE {column} > clock_timestamp() FOR UPDATE SKIP LOCKED))"
        for table, column in (("retries", "due_at"), ("unmatched_receipts", "next_try_at"))
    ]
    steps = [
        *[crowd.send] * 2,
        *[crowd.work] * 3,
        *[crowd.answer] * 3,
        *[crowd.report] * 2,
        crowd.keep,
        *[crowd.try_unmatched] * 2,
        crowd.resume,
        crowd.expire,
        crowd.fail,
        crowd.die,
        *[crowd.lease] * 2,
        crowd.ring,
        crowd.credit,
        crowd.erase,
    ]
    busy = [asyncio.create_task(crowd.repeat(step, rounds)) for step in steps]
    while not all(task.done() for task in busy):
        for statement in due:
            await crowd.world.rows(statement)
        await asyncio.sleep(0.05)
    await asyncio.gather(*busy)


@pytest.mark.parametrize(
    "rounds", [pytest.param(5, id="short"), pytest.param(200, id="long", marks=pytest.mark.long)]
)
async def test_nobody_waits_in_a_circle(crowd: Crowd, rounds: int) -> None:
    await run(crowd, rounds)
    assert crowd.deadlocks == {}
    # What carriers are made to say here contradicts itself; what was done about it adds up all the same.
    assert set(await crowd.world.engine.audit()) <= {"hand_over"}
