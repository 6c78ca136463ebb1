"""How many messages a bind may claim, and from which lane it submits next.

The window is the carrier's: a slot is free as soon as the carrier has answered. So that it is filled at once,
a bind claims ahead: as many messages as the window has, or as the carrier takes in a tenth of a second.

Lane 0 is claimed and submitted first. Lane 1 gets one submit in ten while both wait, and everything that lane
0 leaves, except one slot of a window of a hundred or more.
"""

from collections import deque
from math import inf
from typing import Final

from msgspec import Struct

SMALL: Final = 0
BULK: Final = 1

# One submit in ten goes to lane 1 while it waits.
BULK_SHARE: Final = 10
# A window of this size keeps a slot for lane 0. In a smaller one it would be too large a part, and in any
# window the next slot that becomes free is lane 0's.
WINDOW_KEPT: Final = 100

# Messages claimed and not yet submitted, at most, in seconds of the carrier's rate. A passcode goes in front
# of them, but the process that holds them may die, and then they are in doubt.
AHEAD_S: Final = 0.1
AHEAD_WINDOW_MAX: Final = 100
AHEAD_MAX: Final = 1000

# A message accepted in a transaction of this length still finds its turn above the floor.
FLOOR_AGE_S: Final = 5.0
SWEEP_S: Final = 10.0
BOTTOM: Final = -(2**63)

_NOTED_EVERY_S: Final = 0.1


class Room(Struct, frozen=True):
    """What one claim may take: at most `small` from lane 0.

    Of lane 1 it may take `bulk` in any case, and `bulk_max` if lane 0 has nothing.
    """

    small: int
    bulk: int
    bulk_max: int

    def left_for_bulk(self, found: int) -> int:
        assert 0 <= found <= self.small
        return max(self.bulk, self.bulk_max - found)


NO_ROOM: Final = Room(0, 0, 0)


def ahead(window: int, pace: float, rate: float | None) -> int:
    """Return how many messages may be held beyond the free slots of the window.

    `pace` is what the carrier took in a second lately, `rate` what it may be sent; None if it has no limit.
    """
    assert window > 0
    most = max(min(window, AHEAD_WINDOW_MAX), min(int(pace * AHEAD_S), AHEAD_MAX))
    # At least one, or a carrier of three a second would never get any.
    return most if rate is None else min(most, max(1, int(rate * AHEAD_S)))


def room(free: int, most_held: int, small_held: int, bulk_held: int) -> Room:
    """Divide what may be claimed between the lanes.

    `free` are the slots that may be filled now, `most_held` comes from `ahead`. What lane 1 holds takes no
    place from lane 0.
    """
    assert free >= 0
    places = free + most_held
    bulk = max(0, -(-places // BULK_SHARE) - bulk_held)
    return Room(max(0, places - small_held), bulk, max(bulk, places - small_held - bulk_held))


def bulk_window(window: int) -> int:
    """Return how many slots of a window lane 1 may fill."""
    assert window > 0
    return window - 1 if window >= WINDOW_KEPT else window


class LaneOrder:
    """The lane of the next submit: lane 0, except for every tenth while lane 1 waits too.

    Nine submits of lane 0 earn lane 1 the tenth. It cannot save up more than that: neither while it has
    nothing to send nor while its part of the window is full may it earn a burst that delays a passcode.
    """

    __slots__ = ("_owed",)

    def __init__(self) -> None:
        self._owed = 0

    def next(self, *, small: bool, bulk: bool) -> int | None:
        """Return the lane to submit from, given which of them wait and may be submitted; None for neither."""
        if bulk and (not small or self._owed >= BULK_SHARE - 1):
            self._owed = 0
            return BULK
        if small:
            self._owed += bulk
            return SMALL
        return None


class Floor:
    """The turn from which claims of one queue and lane scan, so that no waiting message is skipped.

    Below the floor lie index entries of deleted rows, which a claim would have to walk over. A clock of some
    seconds ago is not enough: an account that is accepted between a claim and the publishing of its clock
    enters below that clock, and may wait there for longer. So the floor also stays at or below the lowest
    turn claimed lately. Periodically it is the very bottom; what is found there pulls the floor down until it
    is claimed.
    """

    __slots__ = ("_clocks", "_lowest", "_swept_at")

    def __init__(self) -> None:
        # Oldest first; of the clocks those that are not old enough yet, and the newest that is.
        self._clocks: deque[tuple[float, int]] = deque()
        self._lowest: deque[tuple[float, int]] = deque()
        self._swept_at = -inf

    def published(self, now: float, clock: int) -> None:
        if not self._clocks or now - self._clocks[-1][0] >= _NOTED_EVERY_S:
            self._clocks.append((now, clock))

    def claimed(self, now: float, lowest: int) -> None:
        while self._lowest and self._lowest[-1][1] >= lowest:
            self._lowest.pop()
        # A noted turn stands for those that follow it soon, and is forgotten as late as they would be.
        if not self._lowest or now - self._lowest[-1][0] >= _NOTED_EVERY_S:
            self._lowest.append((now, lowest))

    def begin(self, now: float) -> int:
        if now - self._swept_at >= SWEEP_S:
            self._swept_at = now
            return BOTTOM
        settled = now - FLOOR_AGE_S
        while len(self._clocks) > 1 and self._clocks[1][0] <= settled:
            self._clocks.popleft()
        while self._lowest and self._lowest[0][0] < settled - _NOTED_EVERY_S:
            self._lowest.popleft()
        if not self._clocks or self._clocks[0][0] > settled:
            return BOTTOM
        return min([self._clocks[0][1], *(turn for _, turn in self._lowest)])
