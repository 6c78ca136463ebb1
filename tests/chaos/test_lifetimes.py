"""P12: a passcode past its lifetime is not submitted, whatever happened to it before; it is refunded."""

import asyncio
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final
from unittest.mock import patch
from uuid import UUID

import pytest

from tests.support.chaos.node import WorkerProcess
from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.scripted import DROP, SWALLOW, Scripted
from tests.support.processes.service import Caller
from tumira.accounts import store as accounts
from tumira.accounts.lifetimes import Lifetimes
from tumira.core import backoff
from tumira.delivery import follow_up, sender
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store.waiting import QueuePlace
from tumira.sending.lifecycle import HAND_OVER_MIN
from tumira.simulator.smsc import run_smsc

# For so long a passcode may be handed over.
USABLE: Final = timedelta(seconds=1.5)
BRISK: Final = SmppTimeouts(response_s=0.5, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)
NUMBER: Final = numbers(1)[0]
NOTICE: Final = numbers(1, start=1)[0]
BALANCE: Final = Decimal(100)


@pytest.fixture(autouse=True)
def _short_lived(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(_: Lifetimes, *, is_passcode: bool) -> timedelta:
        return HAND_OVER_MIN + USABLE if is_passcode else timedelta(hours=24)

    monkeypatch.setattr(Lifetimes, "of", of)


async def send_both(engine: Engine) -> Caller:
    """Send a passcode, and a notice that stays worth delivering."""
    caller = await engine.open_account(str(BALANCE))
    await engine.send(caller, [NUMBER])
    await engine.send(caller, [NOTICE], "Your order is ready.")
    return caller


async def until_too_late(engine: Engine) -> None:
    async def is_over() -> bool:
        rows = await engine.rows("SELECT min(expires_at) - clock_timestamp() AS left FROM batches")
        return bool(rows[0]["left"] < HAND_OVER_MIN)

    await engine.until(is_over, "the passcode is still valid")


async def balance_of(engine: Engine, caller: Caller) -> Decimal:
    async with engine.database.connection() as connection:
        account = await accounts.find(connection, caller.id)
    assert account is not None
    return account.balance


async def wait_past_lifetime(engine: Engine, port: int) -> Caller:
    """Send both while no worker runs, and start two workers when the passcode is too old."""
    await engine.add_carrier("one", port)
    caller = await send_both(engine)
    await until_too_late(engine)
    for _ in range(2):
        engine.start_worker(BRISK)
    await engine.until_status(NOTICE, "delivered")
    return caller


def switch_expiry_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let maintenance find nothing, so that workers claim what is too late."""

    async def find_nothing(*_: object) -> dict[UUID, QueuePlace]:
        return {}

    monkeypatch.setattr(follow_up, "list_expired", find_nothing)


@pytest.mark.parametrize("finder", ["maintenance", "sender"])
async def test_a_passcode_that_waited_too_long_expires_and_is_refunded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, finder: str
) -> None:
    if finder == "sender":
        switch_expiry_off(monkeypatch)
    async with run_smsc() as smsc:
        caller = await wait_past_lifetime(engine, smsc.port)
        await engine.until_status(NUMBER, "expired")
        assert smsc.texts.to(NUMBER) == []
        assert smsc.submits.received == 1
        message = await engine.message(NUMBER)
        # No carrier was connected yet when maintenance found it.
        reasons = {"maintenance": {"QUEUE_EXPIRED", "CARRIER_UNAVAILABLE"}, "sender": {"QUEUE_EXPIRED"}}
        assert message["failure_reason"] in reasons[finder]
        notice = await engine.message(NOTICE)
        assert await balance_of(engine, caller) == BALANCE - notice["cost"]


async def test_twin_without_the_check_it_is_handed_over(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(_expires_at: datetime, _now: datetime) -> int:
        return 60

    switch_expiry_off(monkeypatch)
    monkeypatch.setattr(sender, "remaining_s", always)
    async with run_smsc() as smsc:
        await wait_past_lifetime(engine, smsc.port)
        await engine.until_status(NUMBER, "delivered")
        assert len(smsc.texts.to(NUMBER)) == 1


async def test_a_retry_that_is_due_after_the_lifetime_is_not_made(engine: Engine) -> None:
    # Put back before the engine puts back what it changed itself.
    with patch.object(backoff, "_RETRY_WAITS_S", (4.0, 4.0, 4.0)):
        async with run_smsc(misbehaviours=[Scripted(CommandStatus.RSYSERR)]) as smsc:
            await engine.add_carrier("one", smsc.port)
            for _ in range(2):
                engine.start_worker(BRISK)
            caller = await engine.open_account(str(BALANCE))
            await engine.send(caller, [NUMBER])
            await engine.until_status(NUMBER, "expired")
            assert smsc.submits.received == 1
            assert smsc.texts.to(NUMBER) == []
            assert await balance_of(engine, caller) == BALANCE


@pytest.mark.parametrize("word", [DROP, SWALLOW], ids=["not taken", "taken"])
async def test_a_doubt_that_ends_after_the_lifetime_is_not_resent(engine: Engine, word: int) -> None:
    async with run_smsc(misbehaviours=[Scripted(word)]) as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=3)
        for _ in range(2):
            engine.start_worker(BRISK)
        caller = await engine.open_account(str(BALANCE))
        await engine.send(caller, [NUMBER])
        await engine.until_status(NUMBER, "unconfirmed")
        assert smsc.submits.received == 1
        # The carrier may have it, so it is paid for.
        assert await balance_of(engine, caller) < BALANCE


@pytest.mark.long
async def test_a_passcode_of_a_killed_worker_is_not_resent_by_another(engine: Engine, tmp_path: Path) -> None:
    async with run_smsc(misbehaviours=[Scripted(SWALLOW)]) as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=1)
        worker = WorkerProcess(tmp_path / "worker.log", database_url=engine.url)
        bound = "SELECT FROM binds WHERE state = 'bound'"

        async def is_bound() -> bool:
            return bool(await engine.rows(bound))

        await engine.until(is_bound, "the worker has not bound")
        await engine.send(await engine.open_account(str(BALANCE)), [NUMBER])

        async def is_submitted() -> bool:
            return smsc.submits.received == 1

        await engine.until(is_submitted, "nothing was submitted")
        await asyncio.to_thread(worker.kill)
        engine.start_worker(BRISK)
        await engine.until_status(NUMBER, "unconfirmed", wait_s=90)
        assert smsc.submits.received == 1


async def test_the_rest_of_the_lifetime_is_the_carriers_validity(engine: Engine) -> None:
    """A network that takes longer than the rest of the lifetime reports that the passcode expired."""
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        absent = "+263771209910"
        caller = await engine.open_account(str(BALANCE))
        await engine.send(caller, [absent])
        await engine.until_status(absent, "expired")
        assert (await engine.message(absent))["failure_reason"] == "VALIDITY_EXPIRED"
        assert smsc.texts.to(absent) == []
        assert await balance_of(engine, caller) == BALANCE
