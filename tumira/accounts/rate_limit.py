"""The rate limit: whether an account may make another call now, and if not, when.

The rolling window of an account is a list of entries in ascending order, each a time and the number of calls
it stands for. The time is the latest moment at which any of these calls may have happened, in microseconds
since 1970 by the database's clock, and an entry leaves when 60 seconds have passed since. So an entry never
leaves before its calls are 60 seconds old, and no 60 seconds ever hold more calls than the limit.

Up to `EXACT_MAX` calls a minute, each call is an entry with its own time. Above that the calls of a second
share an entry that bears the end of this second, which keeps the list at 61 entries and holds a call against
the account for at most one second too long. Entries of both kinds may stand in one list, as they do after
the limit was changed.

When the clock was set back, entries bear times that are still to come. Their calls happened before now, so
they are dated at the end of this second: they leave after a minute, and not when the old time is reached.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Final

from msgspec import Struct

WINDOW_S: Final = 60
EXACT_MAX: Final = 600

_SECOND_US: Final = 1_000_000
_WINDOW_US: Final = WINDOW_S * _SECOND_US


class CallWindow(Struct, frozen=True):
    """The entries of one account: when, and how many calls."""

    times_us: tuple[int, ...]
    counts: tuple[int, ...]


class RateDecision(Struct, frozen=True):
    """Whether a call is allowed, and the window after it.

    `window` is written back, also for a call that was refused; it is the given object when nothing changed.
    After a refusal, a call that waits `reset_s` seconds finds a place, unless another call takes it first.
    Otherwise `reset_s` says when the next place becomes free, and is 0 when none is taken.
    """

    allowed: bool
    remaining: int
    reset_s: int
    window: CallWindow


def take(window: CallWindow, limit: int, now_us: int) -> RateDecision:
    """Take a place for one call, if there is one."""
    assert limit > 0
    window = _without_future(window, now_us)
    oldest, total = _counted(window, now_us)
    if total >= limit:
        # A limit that was lowered may lie far below what is counted; then many calls must leave first.
        reset_s = _until_left_s(window, oldest, total - limit + 1, now_us)
        return RateDecision(allowed=False, remaining=0, reset_s=reset_s, window=window)
    add = _add_exact if limit <= EXACT_MAX else _add_to_second
    added = add(window, oldest, now_us)
    reset_s = _until_left_s(added, 0, 1, now_us)
    return RateDecision(allowed=True, remaining=limit - total - 1, reset_s=reset_s, window=added)


def changed_count(before: CallWindow, after: CallWindow) -> int | None:
    """Return the last count if a window differs in nothing else from what it was before calls were taken.

    Then it keeps the very tuple of times, as it nearly always does on a busy account.
    """
    return after.counts[-1] if after.times_us is before.times_us and after.counts else None


def look(window: CallWindow, limit: int, now_us: int) -> RateDecision:
    """Return the state of the window without taking a place; `allowed` is what `take` would answer."""
    assert limit > 0
    seen = _without_future(window, now_us)
    oldest, total = _counted(seen, now_us)
    reset_s = _until_left_s(seen, oldest, max(1, total - limit + 1), now_us) if total else 0
    return RateDecision(
        allowed=total < limit, remaining=max(0, limit - total), reset_s=reset_s, window=window
    )


def _without_future(window: CallWindow, now_us: int) -> CallWindow:
    """Date what a clock that was since set back has dated later than the end of this second."""
    end_us = _end_of_second(now_us)
    past = bisect_right(window.times_us, end_us)
    later = len(window.times_us) - past
    return CallWindow(window.times_us[:past] + (end_us,) * later, window.counts) if later else window


def _end_of_second(now_us: int) -> int:
    return (now_us // _SECOND_US + 1) * _SECOND_US


def _counted(window: CallWindow, now_us: int) -> tuple[int, int]:
    """Return the place of the oldest entry still in the window, and the calls from there on."""
    oldest = bisect_right(window.times_us, now_us - _WINDOW_US)
    return oldest, sum(window.counts[oldest:])


def _until_left_s(window: CallWindow, oldest: int, leaving: int, now_us: int) -> int:
    """Return the whole seconds, rounded up, until `leaving` calls have left the window."""
    last = oldest
    if leaving > 1:
        last += bisect_left(list(accumulate(window.counts[oldest:])), leaving)
    return -((now_us - _WINDOW_US - window.times_us[last]) // _SECOND_US)


def _add_exact(window: CallWindow, oldest: int, now_us: int) -> CallWindow:
    """Add a call as an entry of its own."""
    # Whatever is counted already happened before now, so an entry that bears the end of this second may be
    # dated now. That keeps the order.
    past = bisect_right(window.times_us, now_us, oldest)
    later = len(window.times_us) - past
    return CallWindow(
        window.times_us[oldest:past] + (now_us,) * (later + 1),
        (*window.counts[oldest:], 1),
    )


def _add_to_second(window: CallWindow, oldest: int, now_us: int) -> CallWindow:
    """Add a call to the entry of its second."""
    end_us = _end_of_second(now_us)
    # From here on stands the entry of this very second.
    past = bisect_left(window.times_us, end_us, oldest)
    if not oldest and past == len(window.times_us) - 1:
        # As nearly always with this many calls: only the count of the last entry changes.
        return CallWindow(window.times_us, (*window.counts[:past], window.counts[past] + 1))
    return CallWindow(
        (*window.times_us[oldest:past], end_us),
        (*window.counts[oldest:past], sum(window.counts[past:]) + 1),
    )
