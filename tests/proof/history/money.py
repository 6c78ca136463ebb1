"""Whether balances that were told can be explained by one order of all movements.

This is a check of linearizability of one account: each movement and each read takes effect at one moment
between its begin and its end, and a balance that was told is the sum of all movements until then. The search
follows the ends of the operations and orders no operation before it has to (just-in-time linearization).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

STATES_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class Step:
    """A movement of money or a read, in ten-thousandths of a dollar; `after` is the balance that it told.

    A step without an end may have happened or not.
    """

    name: str
    began: float
    ended: float
    amount: int
    after: int | None = None


class UndecidedError(Exception):
    """There are too many orders to try."""


# The balance, and those of the steps under way that have taken effect.
_State = tuple[int, frozenset[int]]


def find_contradiction(balance: int, steps: Sequence[Step]) -> str | None:
    """Return why no order of the steps explains all balances that were told, or None if one does."""
    states: set[_State] = {(balance, frozenset())}
    under_way: set[int] = set()
    for _, is_end, place in _moments(steps):
        if not is_end:
            under_way.add(place)
            continue
        reached = _end(states, place, under_way, steps)
        if not reached:
            step = steps[place]
            balances = sorted({state[0] for state in states})
            return f"{step.name} told {step.after} after {step.amount}; before it were {balances[:5]}"
        states = reached
        under_way.discard(place)
    return None


def _moments(steps: Sequence[Step]) -> Sequence[tuple[float, bool, int]]:
    begins = [(step.began, False, place) for place, step in enumerate(steps)]
    ends = [(step.ended, True, place) for place, step in enumerate(steps) if step.ended != float("inf")]
    return sorted(begins + ends)


def _end(states: set[_State], last: int, under_way: set[int], steps: Sequence[Step]) -> set[_State]:
    """Return where all states can be once a step has taken effect, whichever others did before it."""
    reached: set[_State] = set()
    seen: set[_State] = set(states)
    waiting = list(states)
    while waiting:
        balance, done = state = waiting.pop()
        if last in done:
            reached.add((balance, done - {last}))
            continue
        for place in _next(state, under_way, steps):
            new = (balance + steps[place].amount, done | {place})
            if new not in seen:
                seen.add(new)
                waiting.append(new)
        if len(seen) > STATES_MAX:
            raise UndecidedError(f"more than {STATES_MAX} orders until {steps[last].name}")
    return reached


def _next(state: _State, under_way: set[int], steps: Sequence[Step]) -> Iterator[int]:
    """Return the steps that may take effect now.

    Of movements of the same amount that told nothing, the first to end: a later one instead never helps, for
    all of them may take effect now.
    """
    balance, done = state
    soonest: dict[int, int] = {}
    for place in under_way - done:
        step = steps[place]
        if step.after is not None:
            if balance + step.amount == step.after:
                yield place
        elif step.amount not in soonest or _is_sooner(place, soonest[step.amount], steps):
            soonest[step.amount] = place
    yield from soonest.values()


def _is_sooner(one: int, other: int, steps: Sequence[Step]) -> bool:
    return (steps[one].ended, one) < (steps[other].ended, other)
