"""A message in doubt is neither lost nor needlessly sent twice."""

from collections.abc import Sequence
from typing import Final

import pytest

from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.scripted import ANSWER, DROP, HOLD, LOSE, RELEASE, Scripted
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.simulator.misbehaviours import NoReceipts, ResponseDelay
from tumira.simulator.smsc import run_smsc

# Doubts come and go in a second.
BRISK: Final = SmppTimeouts(response_s=0.5, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)
NUMBER: Final = numbers(1)[0]
OTHER: Final = numbers(1, start=1)[0]
LONG: Final = "Your statement is ready. " * 8


@pytest.mark.long
async def test_segments_that_are_known_from_two_tries_make_a_message_whole(engine: Engine) -> None:
    script = Scripted(LOSE, HOLD, ANSWER, RELEASE)
    async with run_smsc(misbehaviours=[script, NoReceipts()]) as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=1)
        engine.start_worker(BRISK)
        caller = await engine.open_account()
        await engine.send(caller, [NUMBER], LONG)
        await engine.until_status(NUMBER, "sent")
        await engine.send(caller, [OTHER])
        await engine.until_status(OTHER, "sent")


@pytest.mark.parametrize("words", [(LOSE, DROP), pytest.param((DROP, LOSE), marks=pytest.mark.long)], ids=str)
async def test_the_segment_that_was_lost_is_sent_again_with_the_reference_of_the_other(
    engine: Engine, words: Sequence[int]
) -> None:
    async with run_smsc(misbehaviours=[Scripted(*words)]) as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=3)
        engine.start_worker(BRISK)
        await engine.send(await engine.open_account(), [NUMBER], LONG)
        await engine.until_status(NUMBER, "delivered")
        assert smsc.texts.to(NUMBER) == [LONG]


@pytest.mark.long
async def test_a_worker_that_ends_between_two_segments_leaves_nothing_in_flight(engine: Engine) -> None:
    async with run_smsc(misbehaviours=[ResponseDelay(400)]) as smsc:
        await engine.add_carrier("one", smsc.port, ["ZW"], window=1)
        worker = engine.start_worker()
        await engine.send(await engine.open_account(), [NUMBER], LONG)

        async def submitted() -> bool:
            return smsc.submits.received == 1

        await engine.until(submitted, "nothing was submitted")
        await engine.stop_worker(worker)
        assert await engine.rows("SELECT FROM in_flight") == []
        assert await engine.audit() == []

        engine.start_worker()
        await engine.until_status(NUMBER, "delivered")
        assert smsc.texts.to(NUMBER) == [LONG]
        assert await engine.rows("SELECT FROM incidents") == []
