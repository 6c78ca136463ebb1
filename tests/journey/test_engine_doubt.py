"""A message in doubt is neither lost nor needlessly sent twice."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from tests.support.delivery.engine import Engine, numbers
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.simulator.connection import Exchange, SmscConnection
from tumira.simulator.misbehaviours import DROPPED, Misbehaviour, NoReceipts, ResponseDelay
from tumira.simulator.smsc import run_smsc

# Doubts come and go in a second.
BRISK: Final = SmppTimeouts(response_s=0.5, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)
NUMBER: Final = numbers(1)[0]
OTHER: Final = numbers(1, start=1)[0]
LONG: Final = "Your statement is ready. " * 8

ANSWER: Final = "answer"
# Taken, with its receipt, but the answer is lost.
LOSE: Final = "lose"
# Neither taken nor answered.
DROP: Final = "drop"
# Answered when the next submit comes that is answered late.
HOLD: Final = "hold"
RELEASE: Final = "answer what was held, lose this one"


class Script(Misbehaviour):
    """Does with the n-th submit what its script says, and behaves afterwards."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self._words = list(words)
        self._word = ANSWER
        self._held: list[Callable[[], None]] = []

    def judge(self, line: SmscConnection) -> int:  # noqa: ARG002 - all lines alike
        self._word = self._words.pop(0) if self._words else ANSWER
        return DROPPED if self._word == DROP else 0

    def around(self, exchange: Exchange, answer: Callable[[], None]) -> Callable[[], None]:
        doings: Mapping[str, Callable[[], None]] = {
            ANSWER: answer,
            LOSE: exchange.deliver,
            HOLD: lambda: self._held.append(answer),
            RELEASE: self._release,
        }
        return doings[self._word]

    def _release(self) -> None:
        for answer in self._held:
            answer()


async def test_segments_that_are_known_from_two_tries_make_a_message_whole(engine: Engine) -> None:
    script = Script(LOSE, HOLD, ANSWER, RELEASE)
    async with run_smsc(misbehaviours=[script, NoReceipts()]) as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=1)
        engine.start_worker(BRISK)
        caller = await engine.open_account()
        await engine.send(caller, [NUMBER], LONG)
        await engine.until_status(NUMBER, "sent")
        await engine.send(caller, [OTHER])
        await engine.until_status(OTHER, "sent")


@pytest.mark.parametrize("words", [(LOSE, DROP), (DROP, LOSE)], ids=" ".join)
async def test_the_segment_that_was_lost_is_sent_again_with_the_reference_of_the_other(
    engine: Engine, words: Sequence[str]
) -> None:
    async with run_smsc(misbehaviours=[Script(*words)]) as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=3)
        engine.start_worker(BRISK)
        await engine.send(await engine.open_account(), [NUMBER], LONG)
        await engine.until_status(NUMBER, "delivered")
        assert smsc.texts.to(NUMBER) == [LONG]


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
