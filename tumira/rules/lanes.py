"""How many messages may a worker claim now, and from which lane?

A worker asks in three steps, before and after each claim:

1. `free_places` says how many messages it may claim at all.
2. `places` divides them. It selects lane 0 with the limit `small`, and then lane 1 with the limit
   `left_for_bulk(found)`, where `found` is what lane 0 had. Lane 1 so gets its share even if lane 0 could
   fill every place, and all that lane 0 leaves over, as far as a tenth of the window stays free for lane 0.
3. `owed_after` says how much lane 1 is owed from then on. The worker carries this number over from claim to
   claim, one for each order of places that it keeps; it begins with 0.

Lane 1 is taken to wait (`bulk_waits`) unless its last claim came back short of its limit and nothing has
woken the worker since. Where that turns out to be wrong, the share stays unused for this one claim.
"""

from typing import Final

from msgspec import Struct

# One place in so many goes to lane 1 while it waits; one in so many of the window is kept from it.
BULK_SHARE: Final = 10

# What is claimed and not yet handed over, at most, in seconds of the carrier's rate. A passcode goes in front
# of it, but the process that holds it may die, and then all of it waits for the lease to end.
HOLD_S: Final = 0.25

_OWED_MAX: Final = BULK_SHARE - 1


class Places(Struct, frozen=True):
    """What one claim may take: at most `small` from lane 0, and `bulk` to `bulk_max` from lane 1."""

    small: int
    bulk: int
    bulk_max: int

    def left_for_bulk(self, found: int) -> int:
        """Return the limit of lane 1, once lane 0 was found to have so many."""
        assert 0 <= found <= self.small
        return min(self.small + self.bulk - found, self.bulk_max)


def free_places(window: int, outstanding: int, held: int, rate: float | None) -> int:
    """Return how many messages a worker may claim, with so many handed over and unanswered, and so many held.

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

    `bulk_outstanding` is what the worker has of lane 1, held or unanswered; `owed` comes from `owed_after`.
    """
    assert 0 <= free <= window
    assert 0 <= owed <= _OWED_MAX
    bulk_max = min(free, max(0, bulk_window(window) - bulk_outstanding))
    share = (owed + free) // BULK_SHARE if bulk_waits else 0
    bulk = min(share, bulk_max)
    return Places(free - bulk, bulk, bulk_max)


def owed_after(owed: int, small: int, bulk: int) -> int:
    """Return what lane 1 is owed after a claim of so many from each lane, in places of lane 0.

    Nine places of lane 0 earn lane 1 the tenth. It cannot save up more than that one place: neither while it
    has nothing to send nor while it has its part of the window may it earn a burst that a passcode waits for.
    """
    return min(_OWED_MAX, max(0, owed + small - _OWED_MAX * bulk))
