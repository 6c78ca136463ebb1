"""A top-up is credited once when all its answers come at once, and when its worker is killed at any step."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette

from tests.support.chaos.mortal import KILLED, PUBLIC_URL, look_once, nursery
from tests.support.chaos.node import WorkerProcess, ended_at_last, first_true
from tests.support.processes.service import new_caller
from tests.support.sending.batchers import broken_promises
from tests.support.topups.paynow_server import Call, Fault, Outcome, PaynowServer, paynow_server
from tumira.core.ids import TOP_UP, AccountId, TopUpId, write_id
from tumira.core.settings.payments import Payments
from tumira.dashboard.pages.paynow_notice import routes
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers.paynow import PaynowProvider
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.settle import settle
from tumira.topups.start import start_paynow
from tumira.topups.states import OPEN_STATES, FailureReason, Paid, ProviderAnswer, TopUp, TopUpState

COPIES: Final = 25
FIVE: Final = Decimal(5)
PHONE: Final = "+263771200001"
LOCAL: Final = "0771200001"
STEPS_MAX: Final = 100
# The claim is committed, and Paynow was not called.
AFTER_CLAIM: Final = 6
ROUNDS: Final = 3
WAIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class PaynowWorld:
    database: Database
    paynow: PaynowServer
    provider: PaynowProvider

    async def begin(self) -> tuple[AccountId, TopUpId]:
        caller = await new_caller(self.database.url, "0")
        payments = Payments(paynow=self.paynow.access)
        top_up_id = await start_paynow(self.database, payments, caller.id, Wallet.ECOCASH, FIVE, PHONE)
        return caller.id, top_up_id

    async def work(self) -> None:
        await look_once(self.database, {"paynow": self.provider})

    async def let_time_pass(self) -> None:
        """Let ten minutes go by: leases end, and lost starts can be told apart."""
        await self.execute(
            "UPDATE top_ups SET due_at = clock_timestamp(), asked_at = asked_at - interval '10 minutes'"
            " WHERE due_at IS NOT NULL"
        )

    async def execute(self, statement: str) -> None:
        async with self.database.connection() as connection:
            await connection.execute(statement)

    async def find(self, top_up_id: TopUpId) -> TopUp:
        async with self.database.connection() as connection:
            found = await top_ups.find_any(connection, top_up_id)
        assert found is not None
        return found

    async def credits(self, account_id: AccountId) -> tuple[int, Decimal]:
        async with self.database.connection() as connection:
            row = await connection.fetchrow(
                "SELECT (SELECT count(*) FROM transfers WHERE account_id = $1), balance"
                "  FROM accounts WHERE id = $1",
                account_id,
            )
        assert row is not None
        return row[0], row[1]


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[PaynowWorld]:
    database = Database(database_url, connections_max=2 * COPIES + 10)
    with paynow_server() as paynow:
        paynow.tells = False
        provider = PaynowProvider(paynow.access, PUBLIC_URL)
        yield PaynowWorld(database, paynow, provider)
        await provider.close()
    await database.close()


@asynccontextmanager
async def all_at_once(world: PaynowWorld, top_up_id: TopUpId) -> AsyncIterator[None]:
    """Hold the lock on a top-up until everybody waits for it."""

    async def all_wait() -> bool:
        # Not on the connection that holds it: a transaction sees others as they were when it first looked.
        async with world.database.connection() as connection:
            waiting = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        return int(waiting) >= 2 * COPIES

    async with world.database.transaction() as connection:
        await top_ups.lock(connection, top_up_id)
        yield
        await first_true(all_wait, "not everybody came", WAIT_S)


async def bring_all(world: PaynowWorld, top_up_id: TopUpId) -> Counter[str]:
    """Settle one payment many times, post many copies of one notice, and poll, all at once."""
    (payment,) = world.paynow.of(write_id(TOP_UP, top_up_id))
    app = Starlette(routes=list(routes(world.database, Payments(paynow=world.paynow.access))))
    address = f"/hooks/paynow/{payment.reference}"
    body = world.paynow.notice(payment)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL) as client:

        async def bring(answer: ProviderAnswer) -> str:
            settled = await settle(world.database, top_up_id, answer)
            return "credited" if settled.moved else "left"

        async def tell() -> str:
            return str((await client.post(address, content=body)).status_code)

        async def poll() -> str:
            return await bring(await world.provider.poll(await world.find(top_up_id), datetime.now(UTC)))

        copies = [bring(Paid(str(payment.number), FIVE)) for _ in range(COPIES)]
        outcomes = await asyncio.gather(poll(), *copies, *(tell() for _ in range(COPIES)))
    return Counter(outcomes)


async def begin_and_pay(world: PaynowWorld) -> tuple[AccountId, TopUpId]:
    """Start a top-up that Paynow has taken the money for, and that was not polled since."""
    world.paynow.outcomes[LOCAL] = Outcome("Paid")
    account_id, top_up_id = await world.begin()
    await world.work()
    assert (await world.find(top_up_id)).state is TopUpState.PENDING
    await world.execute("UPDATE top_ups SET due_at = clock_timestamp()")
    return account_id, top_up_id


async def test_many_copies_of_one_notice_and_a_poll_at_once_credit_once(world: PaynowWorld) -> None:
    account_id, top_up_id = await begin_and_pay(world)
    async with all_at_once(world, top_up_id):
        bringing = asyncio.create_task(bring_all(world, top_up_id))
    outcomes = await bringing
    assert outcomes == {"credited": 1, "left": COPIES, "200": COPIES}
    # What the notices asked for comes too late to change anything.
    for _ in range(ROUNDS):
        await world.work()
    assert (await world.find(top_up_id)).state is TopUpState.CREDITED
    assert await world.credits(account_id) == (1, FIVE)
    assert world.paynow.charged(write_id(TOP_UP, top_up_id)) == FIVE
    assert await broken_promises(world.database) == []


@pytest.fixture
def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the lock on the top-up's row away, and let all read before anyone writes."""
    unlocked = top_ups._select("WHERE id = %(top_up_id)s")
    everybody = asyncio.Barrier(COPIES)

    async def read(connection: Connection, top_up_id: TopUpId) -> TopUp:
        row = await unlocked.row(connection, top_up_id=top_up_id)
        assert row is not None
        found = top_ups._top_up(row)
        if found.state in OPEN_STATES:
            await everybody.wait()
        return found

    monkeypatch.setattr(top_ups, "lock", read)


async def bring_unguarded(world: PaynowWorld, top_up_id: TopUpId) -> None:
    (payment,) = world.paynow.of(write_id(TOP_UP, top_up_id))
    answer = Paid(str(payment.number), FIVE)
    await asyncio.gather(*(settle(world.database, top_up_id, answer) for _ in range(COPIES)))


async def paid_top_up(world: PaynowWorld) -> tuple[AccountId, TopUpId]:
    world.paynow.outcomes[LOCAL] = Outcome("Paid")
    account_id, top_up_id = await world.begin()
    await world.provider.start(await world.find(top_up_id))
    return account_id, top_up_id


@pytest.mark.long
@pytest.mark.usefixtures("without_lock")
async def test_without_lock_and_unique_index_it_is_credited_more_than_once(
    world: PaynowWorld,
) -> None:
    await world.execute("DROP INDEX transfers_one_each_way_per_top_up")
    account_id, top_up_id = await paid_top_up(world)
    await bring_unguarded(world, top_up_id)
    assert await world.credits(account_id) == (COPIES, COPIES * FIVE)
    assert await broken_promises(world.database) != []


@pytest.mark.long
@pytest.mark.usefixtures("without_lock")
async def test_without_the_lock_the_unique_index_still_lets_it_be_credited_once(world: PaynowWorld) -> None:
    account_id, top_up_id = await paid_top_up(world)
    await bring_unguarded(world, top_up_id)
    assert await world.credits(account_id) == (1, FIVE)
    assert (await world.find(top_up_id)).state is TopUpState.CREDITED
    assert await broken_promises(world.database) == []


async def check_after_a_death(world: PaynowWorld, account_id: AccountId, top_up_id: TopUpId) -> TopUpState:
    """Let another worker continue; what was taken was credited, once, and nothing else was."""
    assert await broken_promises(world.database) == []
    for _ in range(ROUNDS):
        await world.let_time_pass()
        await world.work()
    assert await broken_promises(world.database) == []
    found = await world.find(top_up_id)
    name = write_id(TOP_UP, top_up_id)
    if found.state is TopUpState.CREDITED:
        assert len(world.paynow.of(name)) == 1
        assert world.paynow.charged(name) == FIVE
        assert await world.credits(account_id) == (1, FIVE)
    else:
        # It died between saying that it would ask and asking: nobody was asked for anything.
        assert (found.state, found.reason) == (TopUpState.FAILED, FailureReason.NEVER_ARRIVED)
        assert world.paynow.of(name) == []
        assert await world.credits(account_id) == (0, Decimal(0))
    assert found.due_at is None
    return found.state


# Every seventh step meets each phase; the first one is after the claim and before the call.
@pytest.mark.parametrize("stride", [15, pytest.param(1, marks=pytest.mark.long)])
async def test_a_worker_killed_at_any_step_leaves_a_customer_charged_and_credited_once_or_not_at_all(
    world: PaynowWorld, stride: int
) -> None:
    world.paynow.outcomes[LOCAL] = Outcome("Paid")
    ends: Counter[TopUpState] = Counter()
    with nursery(world.database.url, world.paynow.environment) as workers:
        for step in range(1 if stride == 1 else AFTER_CLAIM, STEPS_MAX, stride):
            account_id, top_up_id = await world.begin()
            code = await asyncio.to_thread(workers.die_at, step)
            assert code in {0, KILLED}
            ends[await check_after_a_death(world, account_id, top_up_id)] += 1
            if code == 0:
                break
        else:
            raise AssertionError("no run completed")
    # To claim, to call, to record the answer; to claim again, to poll, to credit.
    assert ends.total() > 2 * 14 // stride
    # Between the commit of the claim and the call there are two steps.
    assert ends[TopUpState.FAILED] == (2 if stride == 1 else 1)


# The kills at each step show the same without starting two processes.
@pytest.mark.long
async def test_a_worker_that_is_killed_while_paynow_is_answering_leaves_one_payment_and_one_credit(
    world: PaynowWorld, tmp_path: Path
) -> None:
    world.paynow.outcomes[LOCAL] = Outcome("Paid")
    world.paynow.misbehave(Call.START, Fault.HANG)
    account_id, top_up_id = await world.begin()
    name = write_id(TOP_UP, top_up_id)
    access = world.paynow.access
    with ended_at_last(
        WorkerProcess(
            tmp_path / "log",
            database_url=world.database.url,
            paynow_url=access.url,
            paynow_id=access.integration_id,
            paynow_key=access.key,
        )
    ) as worker:
        await asyncio.to_thread(world.paynow.wait_for_payment, name)
        worker.kill()
        assert (await world.find(top_up_id)).state is TopUpState.STARTED
        await world.let_time_pass()
        worker.start()

        async def is_credited() -> bool:
            return (await world.find(top_up_id)).state is TopUpState.CREDITED

        await first_true(is_credited, "it was not credited")
        await asyncio.to_thread(worker.stop)
    assert (world.paynow.count(Call.START), world.paynow.charged(name)) == (1, FIVE)
    assert await check_after_a_death(world, account_id, top_up_id) is TopUpState.CREDITED
