"""A carrier that is bound and answers no submit gets little, and another carrier takes the messages."""

from typing import Final

import pytest

from tests.support.chaos.breakable import Moody
from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.scripted import DROP, HOLD, Scripted
from tumira.delivery import circuit_breaker
from tumira.delivery.carrier_health import CarrierHealth, list_carriers
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.simulator.misbehaviours import NoAnswers
from tumira.simulator.smsc import run_smsc

WINDOW: Final = 10
NUMBER: Final = numbers(1)[0]


async def is_silent(engine: Engine, carrier: str) -> bool:
    bind = await engine.bind(carrier)
    return bind is not None and bind["silent"] is True


@pytest.mark.long
async def test_a_silent_carrier_gets_a_window_and_the_next_one_all_messages(engine: Engine) -> None:
    async with run_smsc(misbehaviours=[NoAnswers()]) as silent, run_smsc() as second:
        await engine.add_carrier("silent", silent.port, priority=1, window=WINDOW, doubt_wait=1)
        await engine.add_carrier("second", second.port, priority=2)
        engine.start_worker()
        await engine.until_bound("silent", "second")
        await engine.send(await engine.open_account(), numbers(200))
        await engine.until_all("delivered")
        # A window of it, and one message now and then to see whether it answers.
        assert 0 < silent.submits.received < 2 * WINDOW
        assert set(second.texts.counts.values()) == {1}
        assert len(second.texts) == 200


@pytest.mark.long
async def test_a_message_in_doubt_is_sent_again_through_another_carrier_although_the_first_is_well(
    engine: Engine,
) -> None:
    async with run_smsc(misbehaviours=[Scripted(DROP)]) as first, run_smsc() as second:
        await engine.add_carrier("first", first.port, priority=1, doubt_wait=1)
        await engine.add_carrier("second", second.port, priority=2)
        engine.start_worker()
        await engine.until_bound("first", "second")
        caller = await engine.open_account()
        await engine.send(caller, [NUMBER])
        await engine.until_status(NUMBER, "delivered")
        assert len(second.texts.to(NUMBER)) == 1
        assert first.submits.received == 1
        # Only what was in doubt goes there: the first carrier is well.
        (other,) = numbers(1, start=1)
        await engine.send(caller, [other])
        await engine.until_status(other, "delivered")
        assert len(first.texts.to(other)) == 1


@pytest.mark.long
async def test_a_silent_carrier_is_shown_and_is_used_again_once_it_answers(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "OPEN_MIN_S", 0.5)
    moody = Moody()
    moody.silent = True
    async with run_smsc(misbehaviours=[moody]) as smsc:
        await engine.add_carrier("one", smsc.port, window=WINDOW, doubt_wait=1)
        engine.start_worker()
        await engine.until_bound("one")
        await engine.send(await engine.open_account(), numbers(3 * WINDOW))

        await engine.until(lambda: is_silent(engine, "one"), "not shown as silent")
        (shown,) = await list_carriers(engine.database)
        assert shown.health is CarrierHealth.SILENT
        assert shown.binds[0].problem is not None
        assert shown.binds[0].problem.startswith("silent: ")
        received = smsc.submits.received

        async def is_tried() -> bool:
            return smsc.submits.received > received

        # One message at a time, a few on a slow machine, and no second window.
        await engine.until(is_tried, "not tried")
        assert smsc.submits.received < 2 * WINDOW

        moody.silent = False
        await engine.until_all("delivered")
        await engine.until_bound("one")
        (shown,) = await list_carriers(engine.database)
        assert (shown.health, shown.binds[0].problem) == (CarrierHealth.WELL, None)


@pytest.mark.long
async def test_a_quiet_carrier_gets_nothing_more_before_any_message_is_in_doubt(engine: Engine) -> None:
    held = Scripted(*[HOLD] * WINDOW)
    async with run_smsc(misbehaviours=[held]) as quiet, run_smsc() as second:
        await engine.add_carrier("quiet", quiet.port, priority=1, window=WINDOW)
        await engine.add_carrier("second", second.port, priority=2)
        engine.start_worker(SmppTimeouts(response_s=300, quiet_s=0.5))
        await engine.until_bound("quiet", "second")
        await engine.send(await engine.open_account(), numbers(30))

        async def is_taken_elsewhere() -> bool:
            return quiet.submits.received + len(second.texts) == 30

        await engine.until(is_taken_elsewhere, "the rest waits for the quiet carrier")
        assert 0 < quiet.submits.received <= WINDOW
        await engine.until(lambda: is_silent(engine, "quiet"), "not shown as silent")
        held.release()
        await engine.until_all("delivered")
        await engine.until_bound("quiet")
        assert await engine.rows("SELECT FROM incidents") == []
