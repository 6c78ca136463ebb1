"""Visits every state of a model, and finds the shortest way to a broken promise."""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

STATES_MAX: Final = 3_000_000

S = TypeVar("S", bound=Hashable)


class Step(Struct, Generic[S], frozen=True, gc=False):
    """One action, and the state after it.

    `breaks` names the promise that the action itself breaks. No message may need a fault to come to its end.
    """

    action: str
    after: S
    breaks: str | None = None
    is_fault: bool = False


class Model(Protocol[S]):
    def start(self) -> S: ...

    def steps(self, state: S) -> Iterable[Step[S]]: ...

    def same(self, state: S) -> S:
        """Return one of all the states that differ in nothing that matters."""
        ...

    def broken(self, state: S) -> str | None:
        """Return the promise that this state breaks."""
        ...

    def is_done(self, state: S) -> bool:
        """Tell whether nothing is left to do; from every state such a state must be reachable."""
        ...


class Exploration(Struct, frozen=True):
    states: int
    steps: int
    # How often each action was taken.
    actions: Mapping[str, int]
    breaks: str | None
    # The actions that lead there.
    trace: Sequence[str]


def explore(model: Model[S]) -> Exploration:
    """Visit all states, nearest first, and stop at the first that breaks a promise."""
    start = model.same(model.start())
    numbers = {start: 0}
    parents: list[tuple[int, str]] = [(0, "")]
    # For each state, the states that lead to it without a fault.
    sources: list[list[int]] = [[]]
    done: list[int] = []
    actions: dict[str, int] = {}
    waiting = deque([start])
    steps = 0

    def result(breaks: str | None, number: int, *last: str) -> Exploration:
        trace = list(reversed(last))
        while number:
            number, action = parents[number]
            trace.append(action)
        return Exploration(len(numbers), steps, actions, breaks, trace[::-1] if breaks else ())

    while waiting:
        state = waiting.popleft()
        number = numbers[state]
        if (breaks := model.broken(state)) is not None:
            return result(breaks, number)
        if model.is_done(state):
            done.append(number)
        for step in model.steps(state):
            steps += 1
            actions[step.action] = actions.get(step.action, 0) + 1
            if step.breaks is not None:
                return result(step.breaks, number, step.action)
            after = model.same(step.after)
            known = numbers.get(after)
            if known is None:
                known = numbers[after] = len(parents)
                parents.append((number, step.action))
                sources.append([])
                waiting.append(after)
                if known > STATES_MAX:
                    raise OverflowError(f"more than {STATES_MAX} states")
            if not step.is_fault:
                sources[known].append(number)
    stuck = _find_stuck(sources, done)
    if stuck is None:
        return result(None, 0)
    return result("Every message comes to an end", stuck)


def _find_stuck(sources: Sequence[Sequence[int]], done: Sequence[int]) -> int | None:
    """Return the first state from which no end can be reached."""
    reached = bytearray(len(sources))
    waiting = list(done)
    for number in waiting:
        reached[number] = 1
    while waiting:
        for source in sources[waiting.pop()]:
            if not reached[source]:
                reached[source] = 1
                waiting.append(source)
    number = reached.find(0)
    return None if number < 0 else number
