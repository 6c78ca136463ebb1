"""P12: a passcode past its lifetime is not submitted, whatever happened to it before; it is refunded."""

from decimal import Decimal
from typing import Final
from unittest.mock import patch
from uuid import UUID

import pytest

from tests.support.chaos.two_nodes import run_two_nodes
from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.scripted import DROP, SWALLOW, Scripted
from tests.support.processes.changes import short_lifetime
from tests.support.processes.service import Caller
from tumira.accounts import store as accounts
from tumira.accounts.lifetimes import Lifetimes
from tumira.core import backoff
from tumira.delivery import follow_up
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store.waiting import QueuePlace
from tumira.sending.lifecycle import HAND_OVER_MIN
from tumira.simulator.smsc import Smsc, run_smsc

BRISK: Final = SmppTimeouts(response_s=0.5, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)
NUMBER: Final = numbers(1)[0]
NOTICE, WAITING = numbers(2, start=1)
CODE: Final = "Your code is 493817."
BALANCE: Final = Decimal(100)


@pytest.fixture(autouse=True)
def _short_lived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lifetimes, "of", short_lifetime)


async def send_both(engine: Engine) -> Caller:
    """Send a passcode, and a notice that stays worth delivering."""
    caller = await engine.open_account(str(BALANCE))
    await engine.send(caller, [NUMBER])
    await engine.send(caller, [NOTICE], "Your order is ready.")
    return caller


async def until_too_late(engine: Engine) -> None:
    async def is_over() -> bool:
        usable = (
            "SELECT FROM batches WHERE expires_at BETWEEN clock_timestamp() + $1 AND clock_timestamp() + $2"
        )
        return not await engine.rows(usable, HAND_OVER_MIN, 2 * HAND_OVER_MIN)

    await engine.until(is_over, "a passcode is still valid")


async def balance_of(engine: Engine, caller: Caller) -> Decimal:
    async with engine.database.connection() as connection:
        account = await accounts.find(connection, caller.id)
    assert account is not None
    return account.balance


async def test_the_sender_notices_what_expired_after_maintenance_looked(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_nothing(*_: object) -> dict[UUID, QueuePlace]:
        return {}

    monkeypatch.setattr(follow_up, "list_expired", find_nothing)
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        caller = await send_both(engine)
        await until_too_late(engine)
        engine.start_worker(BRISK)
        await engine.until_status(NOTICE, "delivered")
        await engine.until_status(NUMBER, "expired")
        assert smsc.submits.received == 1
        assert (await engine.message(NUMBER))["failure_reason"] == "QUEUE_EXPIRED"
        notice = await engine.message(NOTICE)
        assert await balance_of(engine, caller) == BALANCE - notice["cost"]


async def take_over_too_late(engine: Engine, *mistakes: str) -> tuple[Smsc, Caller]:
    """Kill a worker whose passcode got no answer, and let another take over past the lifetime.

    Another passcode and a notice are accepted while there is no worker.
    """
    async with (
        run_smsc(misbehaviours=[Scripted(SWALLOW)]) as smsc,
        run_two_nodes(engine, "shorten_passcodes") as nodes,
    ):
        await engine.add_carrier("one", smsc.port, doubt_wait=1)
        first = await nodes.start_worker()
        await nodes.until_bound()
        caller = await engine.open_account(str(BALANCE))
        await nodes.send(1, caller, [NUMBER], CODE)

        async def is_submitted() -> bool:
            return smsc.submits.received == 1

        await engine.until(is_submitted, "nothing was submitted")
        await nodes.kill(first)
        await nodes.send(0, caller, [WAITING], CODE)
        await nodes.send(0, caller, [NOTICE], "Your order is ready.")
        await until_too_late(engine)
        await nodes.start_worker(*mistakes)
        await engine.until_all("delivered", "expired", "unconfirmed", wait_s=90)
        return smsc, caller


@pytest.mark.long
async def test_a_passcode_of_a_killed_worker_is_not_handed_over_too_late_by_another(engine: Engine) -> None:
    smsc, caller = await take_over_too_late(engine)
    # The first was taken before the worker died.
    assert sorted(text.to for text in smsc.texts) == [NUMBER, NOTICE]
    assert smsc.submits.received == 2
    # The carrier may have the first, so it is paid for.
    taken, late, notice = [await engine.message(one) for one in (NUMBER, WAITING, NOTICE)]
    assert (taken["status"], late["status"]) == ("unconfirmed", "expired")
    assert late["failure_reason"] in {"QUEUE_EXPIRED", "CARRIER_UNAVAILABLE"}
    assert await balance_of(engine, caller) == BALANCE - taken["cost"] - notice["cost"]


@pytest.mark.long
async def test_a_worker_that_knows_no_lifetime_is_found_out(engine: Engine) -> None:
    smsc, _ = await take_over_too_late(engine, "submit_expired")
    assert sorted(text.to for text in smsc.texts) == sorted([NUMBER, NUMBER, WAITING, NOTICE])


@pytest.mark.long
async def test_a_retry_that_is_due_after_the_lifetime_is_not_made(engine: Engine) -> None:
    # Put back before the engine puts back what it changed itself.
    with patch.object(backoff, "_RETRY_WAITS_S", (4.0, 4.0, 4.0)):
        async with run_smsc(misbehaviours=[Scripted(CommandStatus.RSYSERR)]) as smsc:
            await engine.add_carrier("one", smsc.port)
            for _ in range(2):
                engine.start_worker(BRISK)
            await engine.until_bound("one")
            caller = await engine.open_account(str(BALANCE))
            await engine.send(caller, [NUMBER])
            await engine.until_status(NUMBER, "expired")
            assert smsc.submits.received == 1
            assert smsc.texts.to(NUMBER) == []
            assert await balance_of(engine, caller) == BALANCE


@pytest.mark.long
@pytest.mark.parametrize("word", [DROP, SWALLOW], ids=["not taken", "taken"])
async def test_a_doubt_that_ends_after_the_lifetime_is_not_resent(engine: Engine, word: int) -> None:
    async with run_smsc(misbehaviours=[Scripted(word)]) as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=3)
        for _ in range(2):
            engine.start_worker(BRISK)
        await engine.until_bound("one")
        caller = await engine.open_account(str(BALANCE))
        await engine.send(caller, [NUMBER])
        await engine.until_status(NUMBER, "unconfirmed")
        assert smsc.submits.received == 1
        # The carrier may have it, so it is paid for.
        assert await balance_of(engine, caller) < BALANCE


@pytest.mark.long
async def test_the_rest_of_the_lifetime_is_the_carriers_validity(engine: Engine) -> None:
    """A network that takes longer than the rest of the lifetime reports that the passcode expired."""
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        await engine.until_bound("one")
        absent = "+263771209910"
        caller = await engine.open_account(str(BALANCE))
        await engine.send(caller, [absent])
        await engine.until_status(absent, "expired")
        assert (await engine.message(absent))["failure_reason"] == "VALIDITY_EXPIRED"
        assert smsc.texts.to(absent) == []
        assert await balance_of(engine, caller) == BALANCE
