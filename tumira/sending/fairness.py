"""Fair queueing: the lane of a send, and the turns of its messages.

A turn is a virtual start time, as in start-time fair queueing. Each flow (account, queue, lane) spends
turns in proportion to the segments it sends, so accounts that wait at the same time are served alternately,
however long their queues are.
"""

from typing import Final

from msgspec import Struct

SMALL_MAX: Final = 10
WEIGHT_DEFAULT: Final = 1
LANE_SMALL: Final = 0
LANE_BULK: Final = 1

_TURNS_PER_SEGMENT: Final = 1000


class TurnRange(Struct, frozen=True):
    """The turns of one batch in one flow: the i-th message has the turn `first + i * step`."""

    first: int
    step: int
    next_turn: int


def lane(recipients: int) -> int:
    """Return the lane of a send: a passcode never waits behind a newsletter of the same account."""
    return LANE_SMALL if recipients <= SMALL_MAX else LANE_BULK


def take_turns(clock: int, next_turn: int, segments: int, weight: int, count: int) -> TurnRange:
    """Give `count` messages of `segments` segments each their turns."""
    assert segments > 0
    assert weight > 0
    assert count >= 0
    # An idle flow starts at the clock: it neither saves up turns for a burst nor pays for the past.
    first = max(clock, next_turn)
    # At least one, or an account of great weight would put a whole batch on a single turn.
    step = max(1, _TURNS_PER_SEGMENT * segments // weight)
    return TurnRange(first, step, first + count * step)
