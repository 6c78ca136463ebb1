"""Carriers take over from each other, and back."""

import asyncio
from typing import Final

import pytest

from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.scripted import Scripted
from tests.support.processes.ports import free_port
from tests.support.processes.service import Caller
from tumira.carriers import store as carriers
from tumira.carriers.manage import remove_carrier
from tumira.core.ids import MessageId
from tumira.delivery import circuit_breaker, supervisor
from tumira.delivery.lanes import Room
from tumira.delivery.outcomes import Ended
from tumira.delivery.responses import CommandStatus
from tumira.delivery.settle import settle
from tumira.delivery.store import queue
from tumira.delivery.store.binds import BindState
from tumira.delivery.store.queue import ClaimRequest
from tumira.simulator.misbehaviours import ResponseDelay
from tumira.simulator.smsc import Smsc, run_smsc


async def test_a_carrier_that_was_in_trouble_is_tried_again_and_used_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "OPEN_MIN_S", 0.5)
    async with run_smsc(misbehaviours=[Scripted(*[CommandStatus.RSYSERR] * 20)]) as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        await engine.send(await engine.open_account(), numbers(20))
        await engine.until_all("delivered", wait_s=60)
        assert set(smsc.texts.counts.values()) == {1}


async def send_one(engine: Engine, caller: Caller, place: int) -> str:
    number = numbers(1, start=place)[0]
    await engine.send(caller, [number])
    await engine.until_status(number, "delivered")
    return number


async def test_the_next_carrier_takes_over_while_the_first_is_away_and_gives_it_back(engine: Engine) -> None:
    port = free_port()
    async with run_smsc() as second:
        await engine.add_carrier("first", port, priority=1)
        await engine.add_carrier("second", second.port, priority=2)
        caller = await engine.open_account()
        async with run_smsc(port) as first:
            engine.start_worker()
            await engine.until_bound("first", "second")
            await engine.send(caller, numbers(50))
            await engine.until_all("delivered")
            assert (len(first.texts), len(second.texts)) == (50, 0)
        await engine.until_state("first", BindState.DOWN)
        number = await send_one(engine, caller, 100)
        assert second.texts.to(number)
        async with run_smsc(port) as first:
            await engine.until_bound("first")

            async def is_taken_back() -> bool:
                number = await send_one(engine, caller, 200 + len(first.texts) + len(second.texts))
                return bool(first.texts.to(number))

            # Whoever serves a country is decided again every second.
            await engine.until(is_taken_back, "the first is not used again")


BLOCKED: Final = (
    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
IDLE_TRANSACTIONS: Final = """
SELECT pid, xact_start FROM pg_stat_activity
 WHERE datname = current_database() AND state = 'idle in transaction'
"""


@pytest.mark.long
async def test_no_transaction_is_kept_open_for_a_carrier_that_waits_in_reserve(engine: Engine) -> None:
    async with run_smsc() as first, run_smsc() as second:
        await engine.add_carrier("first", first.port, priority=1)
        await engine.add_carrier("second", second.port, priority=2)
        engine.start_worker()

        await engine.until_bound("first", "second")
        open_now = set(await engine.rows(IDLE_TRANSACTIONS))

        async def all_ended() -> bool:
            return not open_now & set(await engine.rows(IDLE_TRANSACTIONS))

        # Well before PostgreSQL would end them, and their connections with them.
        await engine.until(all_ended, "kept open", wait_s=3)


@pytest.mark.long
async def test_carriers_of_one_priority_share_and_submit_nothing_twice(engine: Engine) -> None:
    async with run_smsc() as one, run_smsc() as other:
        await engine.add_carrier("one", one.port, window=10)
        await engine.add_carrier("other", other.port, window=10)
        engine.start_worker()
        await engine.until_bound("one", "other")
        await engine.send(await engine.open_account(), numbers(300))
        await engine.until_all("delivered")
        assert len(one.texts) > 0
        assert len(other.texts) > 0
        assert set((one.texts.counts + other.texts.counts).values()) == {1}
        assert len(one.texts) + len(other.texts) == 300


@pytest.mark.long
async def test_a_carrier_that_is_added_or_removed_is_followed_without_a_restart(engine: Engine) -> None:
    async with run_smsc() as one, run_smsc() as other:
        engine.start_worker()
        await engine.add_carrier("one", one.port, priority=2)
        caller = await engine.open_account()
        assert one.texts.to(await send_one(engine, caller, 1))

        await engine.add_carrier("other", other.port, priority=1)
        await engine.until_bound("other")
        await remove_carrier(engine.database, "one")
        await engine.until(lambda: has_left(one), "the removed carrier is still bound")
        assert other.texts.to(await send_one(engine, caller, 2))

        await engine.add_carrier("one", one.port, priority=0)
        await remove_carrier(engine.database, "other")
        await engine.until(lambda: has_left(other), "the removed carrier is still bound")
        assert one.texts.to(await send_one(engine, caller, 3))


async def has_left(smsc: Smsc) -> bool:
    return not smsc.lines


async def test_a_worker_whose_lease_was_stolen_parts_from_the_carrier_and_sends_nothing(
    engine: Engine,
) -> None:
    async with run_smsc(misbehaviours=[ResponseDelay(1200)]) as smsc:
        await engine.add_carrier("one", smsc.port, window=20, doubt_wait=1)
        engine.start_worker()
        await engine.until_bound("one")
        await engine.send(await engine.open_account(), numbers(30))

        async def submitted() -> bool:
            return smsc.submits.received > 0

        await engine.until(submitted, "nothing was submitted")
        await engine.rows("UPDATE binds SET worker = 'thief', leased_until = now() + interval '1 hour'")
        await engine.until(lambda: has_left(smsc), "still bound")
        received = smsc.submits.received

        async def is_recorded() -> bool:
            return not await engine.rows("SELECT FROM in_flight")

        await engine.until(is_recorded, "still in flight")
        await engine.send(await engine.open_account(), numbers(1, start=500))
        assert await engine.audit() == []
        assert smsc.submits.received == received
        await engine.rows("UPDATE binds SET leased_until = now()")
        await engine.until_all("delivered")
        # What was under way when it happened was in doubt, and nothing else was sent twice.
        doubted = await engine.rows("SELECT FROM incidents WHERE kind = 'resend'")
        assert len(smsc.texts) <= 31 + len(doubted)
        assert len(doubted) <= received


@pytest.mark.long
async def test_what_a_living_worker_claimed_without_learning_of_it_is_put_in_doubt(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LOST_CLAIM_S", 0.5)
    await engine.add_carrier("one", free_port())
    engine.start_worker()
    await engine.until_state("one", BindState.DOWN)
    (worker,) = await engine.rows("SELECT id FROM workers")
    await engine.send(await engine.open_account(), numbers(1))
    async with engine.database.transaction() as connection:
        carrier = (await carriers.list_active(connection))[0]
        wanted = ClaimRequest("ZW", 1, 0, 1, 0, 0)
        assert await queue.claim(
            connection, [wanted], Room(1, 0, 1), worker=worker["id"], bind="one/1", carrier_id=carrier.id
        )

    async def in_doubt() -> bool:
        return bool(await engine.rows("SELECT FROM retries WHERE in_doubt"))

    await engine.until(in_doubt, "nobody misses it")
    (incident,) = await engine.rows("SELECT kind, detail FROM incidents")
    assert tuple(incident) == ("doubt", "its claim was lost")
    assert await engine.rows("SELECT FROM in_flight") == []


@pytest.mark.long
async def test_a_message_that_is_settled_while_it_is_claimed_leaves_the_queue(engine: Engine) -> None:
    async with run_smsc() as smsc:
        caller = await engine.open_account()
        await engine.send(caller, numbers(1))
        async with engine.database.connection() as ending:
            await ending.execute("BEGIN")
            rows = await ending.fetch("SELECT id FROM messages FOR NO KEY UPDATE")
            await engine.add_carrier("one", smsc.port, ["ZW"])
            engine.start_worker()

            async def blocked() -> bool:
                return bool(await engine.rows(BLOCKED))

            await engine.until(blocked, "nobody claims it")
            await settle(ending, [Ended(MessageId(rows[0]["id"]), "queued", "failed", "NO_ROUTE")], worker="")
            await ending.execute("COMMIT")

        async def left() -> bool:
            return not await engine.rows("SELECT FROM queue")

        await engine.until(left, "still in the queue")


@pytest.mark.long
async def test_a_carrier_that_is_changed_again_and_again_strands_no_message(engine: Engine) -> None:
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port, ["ZW"])
        engine.start_worker()
        caller = await engine.open_account()
        for change in range(5):
            for part in range(2):
                await engine.send(caller, numbers(1000), f"Your code is {change}{part}.")
            await engine.add_carrier("one", smsc.port, ["ZW"], window=64 + change)
            await asyncio.sleep(0.7)

        async def submitted() -> bool:
            return not await engine.rows("SELECT FROM queue")

        await engine.until(submitted, "still waiting")
        await engine.until_all("delivered")
        assert await engine.rows("SELECT FROM incidents") == []
        assert set(smsc.texts.counts.values()) == {1}
