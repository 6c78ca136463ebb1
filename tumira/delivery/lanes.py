"""How many messages a worker may claim, and from which lane.

A worker asks in three steps, before and after each claim:

1. `free_places` says how many messages it may claim at all.
2. `places` divides them. It selects lane 0 with the limit `small`, and then lane 1 with the limit
   `left_for_bulk(found)`, where `found` is what lane 0 had. So lane 1 gets its share even if lane 0 could
   fill every place, and all that lane 0 leaves, as long as a tenth of the window stays free for lane 0.
3. `owed_after` says how much lane 1 is owed from then on. The worker carries this number from claim to
   claim; it begins with 0.

Lane 1 is assumed to wait (`bulk_waits`) unless its last claim came back short of its limit and nothing has
woken the worker since. Where that is wrong, the share stays unused for this one claim.
"""

from collections import deque
from math import inf
from typing import Final

from msgspec import Struct

# One place in ten goes to lane 1 while it waits; one in ten of the window is kept from it.
BULK_SHARE: Final = 10

# Messages claimed and not yet submitted, at most, in seconds of the carrier's rate. A passcode goes in front
# of it, but the process that holds it may die, and then all of it waits for the lease to end.
HOLD_S: Final = 0.25

# A message accepted in a transaction of this length still finds its turn above the floor.
FLOOR_AGE_S: Final = 5.0
SWEEP_S: Final = 10.0
BOTTOM: Final = -(2**63)

_OWED_MAX: Final = BULK_SHARE - 1
_NOTED_EVERY_S: Final = 0.1


class Places(Struct, frozen=True):
    """What one claim may take: at most `small` from lane 0, and `bulk` to `bulk_max` from lane 1."""

    small: int
    bulk: int
    bulk_max: int

    def left_for_bulk(self, found: int) -> int:
        assert 0 <= found <= self.small
        return min(self.small + self.bulk - found, self.bulk_max)


def free_places(window: int, outstanding: int, held: int, rate: float | None) -> int:
    """Return how many messages a worker may claim, given those outstanding and those held.

    `rate` is what the carrier takes in a second now; None if it has no limit.
    """
    assert window > 0
    assert outstanding >= 0
    assert held >= 0
    room = window - outstanding - held
    if rate is not None:
        # At least one, or a carrier of three a second would never get any.
        room = min(room, max(1, int(rate * HOLD_S)) - held)
    return max(0, room)


def bulk_window(window: int) -> int:
    """Return how much of a window lane 1 may fill: all but a tenth, and the one place of a window of one."""
    assert window > 0
    kept = -(-window // BULK_SHARE)
    return max(1, window - kept)


def places(free: int, window: int, bulk_outstanding: int, owed: int, *, bulk_waits: bool) -> Places:
    """Divide the free places between the lanes.

    `bulk_outstanding` counts lane 1, held or unanswered; `owed` comes from `owed_after`.
    """
    assert 0 <= free <= window
    assert 0 <= owed <= _OWED_MAX
    bulk_max = min(free, max(0, bulk_window(window) - bulk_outstanding))
    share = (owed + free) // BULK_SHARE if bulk_waits else 0
    bulk = min(share, bulk_max)
    return Places(free - bulk, bulk, bulk_max)


def owed_after(owed: int, small: int, bulk: int) -> int:
    """Return what lane 1 is owed after a claim, in places of lane 0.

    Nine places of lane 0 earn lane 1 the tenth. It cannot save up more than that one place: neither while it
    has nothing to send nor while its part of the window is full may it earn a burst that delays a passcode.
    """
    return min(_OWED_MAX, max(0, owed + small - _OWED_MAX * bulk))


class Floor:
    """The turn from which claims of one country and lane scan, so that no waiting message is skipped.

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
