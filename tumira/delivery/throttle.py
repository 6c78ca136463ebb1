"""Throttle: how fast messages may go to a carrier.

A token bucket fills at the rate and holds a quarter of a second of it. When the carrier throttles us, the
rate is halved and nothing is sent for a while; while it takes messages, the rate recovers step by step, so
that it settles just below what the carrier can take.
"""

from math import inf
from typing import Final

BUCKET_S: Final = 0.25
PAUSE_MIN_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
# A carrier may ask for a longer pause than ours, up to this.
PAUSE_ASKED_MAX_S: Final = 300.0
RATE_MIN: Final = 1.0
FORGET_S: Final = 60.0

_RECOVERY: Final = 1 / 20
_RECOVERY_UNLIMITED: Final = 1 / 10
# An answer after an hour of silence says nothing about that hour.
_RECOVERY_STEP_MAX_S: Final = 1.0
# Added to a wait, so that rounding never makes it end a hair too soon and be followed by another one.
_HAIR_S: Final = 1e-6


class Throttle:
    """The throttle of one connection, at most `tps` messages a second, 0 for no limit.

    Times are seconds on a monotonic clock. It is plain arithmetic, because it runs for every message.
    """

    __slots__ = (
        "_filled_at",
        "_pause_s",
        "_rate",
        "_recovered_at",
        "_recovery",
        "_second",
        "_sent",
        "_sent_before",
        "_throttled_at",
        "_tokens",
        "_tps",
        "paused_until",
    )

    def __init__(self, tps: float) -> None:
        assert tps >= 0
        self.paused_until = -inf
        self._tps = tps if tps > 0 else inf
        self._rate = self._tps
        # By how much the rate grows in a second of answers.
        self._recovery = 0.0
        # Never filled before, so the first look finds it full.
        self._filled_at = -inf
        self._tokens = 0.0
        self._pause_s = 0.0
        self._throttled_at = -inf
        self._recovered_at = -inf
        # Messages sent in the current second of the clock and in the one before it.
        self._second = -inf
        self._sent = 0
        self._sent_before = 0

    def allowance(self, now: float, most: int, kept: int = 0) -> int:
        """Return how many messages may be sent now, at most `most`, so that `kept` more may follow."""
        if now < self.paused_until:
            return 0
        self._fill(now)
        return most if self._tokens - kept >= most else max(0, int(self._tokens) - kept)

    def spend(self, now: float, count: int) -> None:
        """Note that messages were sent; more than allowed is a debt that the next ones wait for."""
        self._fill(now)
        self._tokens -= count
        self._count(now)
        self._sent += count

    @property
    def kept(self) -> int:
        """How many messages of lane 0 may always follow lane 1 at once: one, if the bucket holds two."""
        return 1 if self._bucket() >= 2 else 0  # noqa: PLR2004 - two messages

    def wait_s(self, now: float, count: int = 1) -> float:
        """Return how long it takes until that many more may be sent, if nothing else happens."""
        self._fill(now)
        # The bucket is as full as now, or as it will be when the pause ends.
        pause_s = self._filled_at - now
        if self._tokens < count:
            pause_s += (count - self._tokens) / self._rate
        return pause_s + _HAIR_S if pause_s > 0 else 0.0

    def throttled(self, now: float, wait_s: float = 0.0) -> float:
        """Slow down because the carrier throttled us, and return the pause in force.

        `wait_s` is how long the carrier asked us to wait, if it did; it counts up to a limit.
        """
        wait_s = min(wait_s, PAUSE_ASKED_MAX_S)
        # Submits in flight when the pause began are throttled too; that is one event, not many.
        if now < self.paused_until:
            self._pause_until(max(self.paused_until, now + wait_s))
            return self._pause_s
        self._fill(now)
        if self._rate == inf:
            self._count(now)
            self._rate = float(max(self._sent, self._sent_before))
        self._rate = max(self._rate / 2, min(RATE_MIN, self._tps))
        self._recovery = self._rate * _RECOVERY_UNLIMITED if self._tps == inf else self._tps * _RECOVERY
        self._pause_s = min(PAUSE_MAX_S, max(PAUSE_MIN_S, 2 * self._pause_s))
        self._throttled_at = now
        # The bucket is as small as the rate now, and nothing is saved up while nothing goes.
        self._tokens = min(self._tokens, 1.0)
        pause_s = max(self._pause_s, wait_s)
        self._pause_until(now + pause_s)
        return pause_s

    def _pause_until(self, until: float) -> None:
        self.paused_until = self._recovered_at = self._filled_at = until

    def succeeded(self, now: float) -> None:
        """Note that the carrier took a message, and speed up for the time since the last one."""
        if self._pause_s == 0 and self._rate == self._tps:
            return
        # Taken during the pause means sent before it, which says nothing about the rate since.
        if now < self.paused_until:
            return
        self._pause_s = 0.0
        self._fill(now)
        passed_s = min(_RECOVERY_STEP_MAX_S, max(0.0, now - self._recovered_at))
        self._recovered_at = now
        self._rate = min(self._tps, self._rate + self._recovery * passed_s)

    def rate(self, now: float) -> float | None:
        """Return the messages a second apart from any pause; None for no limit."""
        self._fill(now)
        return None if self._rate == inf else self._rate

    def pace(self, now: float) -> int:
        """Return how many messages were sent in the last second of the clock, or in this one if more."""
        self._count(now)
        return max(self._sent, self._sent_before)

    def retune(self, now: float, tps: float) -> None:
        """Change the limit, as when a carrier's binds are redistributed, and keep what was learnt."""
        assert tps >= 0
        self._fill(now)
        limit = tps if tps > 0 else inf
        if limit == self._tps:
            return
        is_slowed = self._rate < self._tps
        self._tps = limit
        if not is_slowed:
            self._rate = limit
        elif limit == inf:
            self._recovery = self._rate * _RECOVERY_UNLIMITED
        else:
            self._rate = min(self._rate, limit)
            self._recovery = limit * _RECOVERY
        self._tokens = inf if self._rate == inf else min(self._tokens, self._bucket())

    def _bucket(self) -> float:
        return max(1.0, self._rate * BUCKET_S)

    def _fill(self, now: float) -> None:
        if now <= self._filled_at:
            return
        if self._rate != inf:
            if self._tps == inf and now - self._throttled_at >= FORGET_S:
                self._rate = inf
            self._tokens = min(self._bucket(), self._tokens + self._rate * (now - self._filled_at))
        else:
            self._tokens = inf
        self._filled_at = now

    def _count(self, now: float) -> None:
        second = now // 1
        if second != self._second:
            self._sent_before = self._sent if second == self._second + 1 else 0
            self._sent = 0
            self._second = second
