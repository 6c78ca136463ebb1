"""The circuit breaker of one carrier.

It is closed while the carrier works, and opens when the carrier keeps refusing or does not answer: nothing
is sent for a while. Then it is half open: a single message is sent, and its response decides. No response at
all opens it again.

A carrier that was silent gets its window back as it responds: two submits may be outstanding at first, and
one more after each response. Each unanswered submit leaves a message in doubt, so the risk is kept small.
"""

from math import inf
from typing import Final

REFUSALS_MAX: Final = 20
# Fewer than refusals: a message that is not answered waits for long, and may have to be sent twice.
UNANSWERED_MAX: Final = 5
TRUST_MIN: Final = 2
TRUST_MAX: Final = 64
PAUSE_MAX_S: Final = 2.0
OPEN_MIN_S: Final = 5.0
OPEN_MAX_S: Final = 60.0
# The outcome of the probe may never be known; then another one is sent.
PROBE_WAIT_S: Final = 60.0


class CircuitBreaker:
    """Judges a carrier by its latest responses; times are seconds on a monotonic clock."""

    __slots__ = ("_open_s", "_open_until", "_probe_until", "_refusals", "_trust", "is_silent", "unanswered")

    def __init__(self) -> None:
        self._refusals = 0
        # How many submits in a row were not answered in time; and whether that is why it is open.
        self.unanswered = 0
        self.is_silent = False
        # How many submits may wait for an answer after a silence; None for as many as the window has.
        self._trust: int | None = None
        # None while closed.
        self._open_until: float | None = None
        self._open_s = 0.0
        self._probe_until = -inf

    def is_healthy(self, now: float) -> bool:
        """Tell whether the circuit is closed; half open does not count."""
        return self.places(now, 2) > 1

    def places(self, now: float, most: int) -> int:
        """Return how many messages may be sent now: none, a single probe, or `most`."""
        assert most >= 0
        if self._open_until is None:
            return most
        if now < self._open_until or now < self._probe_until:
            return 0
        return min(1, most)

    def window(self, most: int) -> int:
        """Return how many submits may be outstanding, at most `most`."""
        return most if self._trust is None else min(most, self._trust)

    def wait_s(self, now: float) -> float:
        """Return how long `places` will be 0 if no response comes."""
        if self._open_until is None:
            return 0.0
        return max(0.0, self._open_until - now, self._probe_until - now)

    def spend(self, now: float, count: int) -> None:
        """Note that messages were sent; while half open, the next one waits for the response to this one."""
        if self._open_until is not None and now >= self._open_until and count > 0:
            self._probe_until = now + PROBE_WAIT_S

    def half_open(self, now: float) -> None:
        """Let a single message show whether the carrier takes messages again."""
        self._open_until = now if self._open_until is None else max(now, self._open_until)
        self._probe_until = -inf

    def succeeded(self, now: float) -> None:
        """Note that the carrier works: it took a message, or refused it permanently."""
        self.unanswered = 0
        if self._open_until is None:
            self._refusals = 0
            if self._trust is not None:
                self._trust = self._trust + 1 if self._trust < TRUST_MAX else None
        elif now >= self._open_until:
            self._close()

    def refused(self, now: float) -> None:
        self.unanswered = 0
        if self._open_until is None:
            self._refusals += 1
            if self._refusals >= REFUSALS_MAX:
                self._open(now)
        elif self._is_tried(now):
            self._open(now)

    def throttled(self, now: float, pause_s: float) -> None:
        """Note that the carrier throttled us, and how long we pause for it."""
        self.unanswered = 0
        if self._open_until is None:
            # A short pause finds the right rate. A pause that had to be doubled is time lost that another
            # carrier could have used.
            if pause_s >= PAUSE_MAX_S:
                self._open(now)
        elif self._is_tried(now):
            self._open(now)

    def silent(self, now: float, sent_at: float) -> None:
        """Note that a submit of that time was not answered in time."""
        self.unanswered += 1
        if self._open_until is None:
            most = UNANSWERED_MAX if self._trust is None else min(UNANSWERED_MAX, self._trust)
            if self.unanswered >= most:
                self._open(now, silent=True)
        elif sent_at >= self._open_until:
            # It was the probe. Submits from before it opened say nothing new.
            self._open(now, silent=True)

    def _is_tried(self, now: float) -> bool:
        """Tell whether the probe is outstanding.

        Responses to earlier submits say nothing new, and must not double the wait.
        """
        assert self._open_until is not None
        return self._open_until <= now < self._probe_until

    def _open(self, now: float, *, silent: bool = False) -> None:
        self.is_silent = silent
        # It may have been silent before it refused; then it still has to show more than one answer.
        self._trust = TRUST_MIN if silent or self._trust is not None else None
        self._open_s = min(OPEN_MAX_S, max(OPEN_MIN_S, 2 * self._open_s))
        self._open_until = now + self._open_s
        self._probe_until = -inf

    def _close(self) -> None:
        self.is_silent = False
        self._open_until = None
        self._open_s = 0.0
        self._probe_until = -inf
        self._refusals = 0
