"""A carrier that does with each submit what a test says."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from tumira.simulator.connection import Exchange, SmscConnection
from tumira.simulator.misbehaviours import DROPPED, Misbehaviour

ANSWER: Final = 0
# Neither taken nor answered.
DROP: Final = DROPPED
# Taken, and the answer is lost; with its receipt, and without.
LOSE: Final = -2
SWALLOW: Final = -3
# Answered when the next submit comes that is released, whose own answer is lost.
HOLD: Final = -4
RELEASE: Final = -5
# Answered after `late_s`.
LATE: Final = -6
# Taken without a word, and the line is cut.
CUT: Final = -7


class Scripted(Misbehaviour):
    """Does with the n-th submit what its script says, and behaves afterwards.

    A word is one of the above, or the status with which the submit is refused.
    """

    def __init__(self, *words: int, late_s: float = 0) -> None:
        super().__init__()
        self._words = list(words)
        self._word = ANSWER
        self._late_s = late_s
        self._held: list[Callable[[], None]] = []

    def judge(self, line: SmscConnection) -> int:  # noqa: ARG002 - all lines alike
        self._word = self._words.pop(0) if self._words else ANSWER
        return self._word if self._word >= DROP else ANSWER

    def around(self, exchange: Exchange, answer: Callable[[], None]) -> Callable[[], None]:
        doings: Mapping[int, Callable[[], None]] = {
            LOSE: exchange.deliver,
            SWALLOW: lambda: None,
            HOLD: lambda: self._held.append(answer),
            RELEASE: self.release,
            LATE: lambda: self._answer_later(answer),
            CUT: exchange.line.drop,
        }
        return doings.get(self._word, answer)

    def release(self) -> None:
        for answer in self._held:
            answer()

    def _answer_later(self, answer: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self._late_s, answer)
