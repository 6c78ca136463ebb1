"""An alert to an owner is neither lost nor sent twice, whatever dies around its moment."""

import asyncio
import itertools
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from typing import Final

import httpx
import pytest

from tests.chaos.kills.test_upload_kills import kill
from tests.support.chaos.mortal import KILLED, Mortal, fork_and_die
from tests.support.chaos.node import Reader, audit, until
from tests.support.delivery.engine import open_engine
from tests.support.delivery.settling import REFUND_ALL, WORKER, World
from tests.support.processes.programs import Node, new_home, running
from tests.support.processes.service import NO_TLS, Caller, new_caller
from tests.support.sending.batchers import broken_promises, open_batchers, send_call
from tests.support.sending.owners import give_owner, texts_to_owner
from tumira.accounts.store import SYSTEM
from tumira.carriers import store as carriers
from tumira.core.ids import AccountId
from tumira.delivery.outcomes import Reported
from tumira.delivery.settle import settle
from tumira.postgres.embedded import server as embedded
from tumira.postgres.pool import Database
from tumira.sending.types import Answered

STEPS_MAX: Final = 200
EMAIL: Final = "owner@example.com"
# One segment each, US$5 in all.
FEW: Final = 125
# The simulator reports every message to these as not delivered, which refunds it also after a doubt; five
# segments each make US$6.
NOWHERE: Final = [f"+2637712{place}{ending}" for place in range(10) for ending in (9901, 9902, 9904)]
LONG: Final = "Your statement of this month is ready, and you can read it in the app. " * 10
PARTS: Final = ("web", "worker", "postgres")
WAIT_S: Final = 180.0

# Every few steps meet BEGIN, the locks, the writes, the alert and COMMIT.
strides = pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.long)])


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        await database.close()


async def alerts(database: Database, account_id: AccountId) -> tuple[Sequence[str], int, int]:
    """Return the texts to the owner, and how many mails and low-balance events there are."""
    async with database.connection() as connection:
        phone = await connection.fetchval("SELECT phone FROM accounts WHERE id = $1", account_id)
        mails = await connection.fetchval("SELECT count(*) FROM mails")
        events = await connection.fetchval(
            "SELECT count(*) FROM events WHERE account_id = $1 AND type = 'balance.low'", account_id
        )
        await connection.execute("DELETE FROM mails")
    return await texts_to_owner(database, phone), mails, events


async def new_owner(url: str) -> Caller:
    caller = await new_caller(url, "1.02")
    async with opened(url) as database:
        await give_owner(database, caller.id, EMAIL)
    return caller


async def send(url: str, caller: Caller, mortal: Mortal | None = None) -> None:
    if mortal is not None:
        mortal.is_counting = True
    async with open_batchers(url, 1) as batchers:
        answer = await batchers.batchers[0].ask(send_call(caller, idempotency_key="alert-test"))
        assert isinstance(answer, Answered)


@strides
def test_a_send_that_dies_at_any_step_leads_to_one_low_balance_alert(database_url: str, stride: int) -> None:
    died = 0
    for step in range(1, STEPS_MAX, stride):
        caller = asyncio.run(new_owner(database_url))
        code = fork_and_die(step, partial(send, database_url, caller))
        assert code in {0, KILLED}
        died += code != 0
        # The caller repeats what was not answered.
        asyncio.run(send(database_url, caller))
        asyncio.run(check_low(database_url, caller))
        if code == 0:
            break
    else:
        raise AssertionError("no run completed")
    assert died >= 20 // stride


async def check_low(url: str, caller: Caller) -> None:
    async with opened(url) as database:
        (text,), mails, events = await alerts(database, caller.id)
        assert text.startswith("Tumira: Your balance is US$0.98")
        assert (mails, events) == (1, 1)
        assert await broken_promises(database) == []


async def lose(world: World) -> Sequence[Reported]:
    """Send a batch that is taken and not delivered; return what its receipts report."""
    await world.send(FEW)
    claimed = await world.claim(FEW)
    await world.settle(*(world.taken(one) for one in claimed))
    return [world.reported(one, "UNDELIV") for one in claimed]


async def record(url: str, reported: Sequence[Reported], mortal: Mortal | None = None) -> None:
    if mortal is not None:
        mortal.is_counting = True
    async with opened(url) as database, database.transaction() as connection:
        await settle(connection, reported, worker=WORKER, refunded=REFUND_ALL)


async def prepare(url: str, step: int) -> tuple[Caller, Sequence[Reported]]:
    async with open_engine(url) as engine, engine.database.connection() as connection:
        if not await carriers.list_active(connection):
            await engine.add_carrier("one", 2775)
        (carrier,) = await carriers.list_active(connection)
        caller = await engine.open_account()
        # Elsewhere, so that nobody claims the alert instead of a message.
        owner = f"+2782123{step:04}"
        await connection.execute("UPDATE accounts SET phone = $2 WHERE id = $1", caller.id, owner)
        await connection.execute(
            "UPDATE people SET phone = $2 FROM members m WHERE people.id = m.person_id AND m.account_id = $1",
            caller.id,
            owner,
        )
        await give_owner(engine.database, caller.id, EMAIL)
        return caller, await lose(World(engine, caller, carrier.id, {carrier.id: carrier.settings}))


@pytest.mark.long
@strides
def test_a_settlement_that_dies_at_any_step_leads_to_one_refund_alert(database_url: str, stride: int) -> None:
    died = 0
    for step in range(1, STEPS_MAX, stride):
        caller, reported = asyncio.run(prepare(database_url, step))
        code = fork_and_die(step, partial(record, database_url, reported))
        assert code in {0, KILLED}
        died += code != 0
        # The carrier repeats receipts that were not acknowledged, and some that were.
        asyncio.run(record(database_url, reported))
        asyncio.run(check_refund(database_url, caller))
        if code == 0:
            break
    else:
        raise AssertionError("no run completed")
    assert died >= 20 // stride


async def check_refund(url: str, caller: Caller) -> None:
    async with opened(url) as database:
        (text,), mails, _ = await alerts(database, caller.id)
        assert text.startswith("Tumira: US$5.00 of US$5.00 for your batch of ")
        assert mails == 1
        assert await broken_promises(database) == []


def send_until_answered(node: Node, caller: Caller) -> None:
    """Send what takes the balance below its alert and comes back, until it is answered 202."""
    headers = {"Authorization": f"Bearer {caller.key}", "Idempotency-Key": "alert-test"}
    body = {"channel": "sms", "to": NOWHERE, "body": LONG}
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            answer = httpx.post(
                f"{node.base}/api/v1/messages",
                json=body,
                headers=headers,
                timeout=30,
                trust_env=False,
                verify=NO_TLS,
            )
        except httpx.TransportError:
            continue
        if answer.status_code == httpx.codes.ACCEPTED:
            return
    raise AssertionError("the send was never answered")


async def open_owner(url: str) -> tuple[Caller, str]:
    caller = await new_caller(url, "6.50")
    async with opened(url) as database:
        return caller, await give_owner(database, caller.id)


def run_kills(rounds: int, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    with new_home() as home, running(home, log_level="error") as node:
        reader = Reader(node.home / "data")
        for part in itertools.islice(itertools.cycle(PARTS), rounds):
            url = embedded.attach(node.home / "data")
            assert url is not None
            caller, phone = asyncio.run(open_owner(url))
            sending = threading.Thread(target=send_until_answered, args=(node, caller))
            sending.start()
            # From the acceptance to the last refund it takes about a second.
            time.sleep(chance.uniform(0, 1.5))
            kill(node, part)
            sending.join(WAIT_S)
            until(partial(has_ended, reader, caller.id), "messages are left open", WAIT_S)
            until(partial(has_ended, reader, SYSTEM), "an alert is not sent", WAIT_S)
            told = reader.rows(
                "SELECT b.body FROM batches b JOIN messages m ON m.batch_id = b.id"
                " WHERE b.account_id = $1 AND m.recipient = $2 ORDER BY b.id",
                SYSTEM,
                phone,
            )
            assert len(told) == 2, (part, [row["body"] for row in told])
            low, refund = [row["body"] for row in told]
            assert low.startswith("Tumira: Your balance is US$0.50"), part
            assert refund.startswith("Tumira: US$6.00 of US$6.00"), part
            (row,) = reader.rows("SELECT balance FROM accounts WHERE id = $1", caller.id)
            assert row["balance"] == Decimal("6.50")
        audit(**node.settings)


def has_ended(reader: Reader, account_id: AccountId) -> bool:
    (row,) = reader.rows(
        "SELECT count(*) FILTER (WHERE completed_at IS NULL) AS open, count(*) AS sent FROM batches"
        " WHERE account_id = $1",
        account_id,
    )
    return bool(row["sent"]) and not row["open"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_alerts_come_once_through_kills_of_every_part() -> None:
    run_kills(12, int(os.environ.get("CHAOS_SEED", "3")))
