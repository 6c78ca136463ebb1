"""How is an endpoint, and what follows from it? It rests, is warned about, and is disabled in the end.

After so many failures in a row only one event is tried every few minutes, until one arrives; what waits is
then sent at once. An endpoint at which nothing arrived for five days is disabled.
"""

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from msgspec import Struct, structs

FAILURES_MAX: Final = 20
REST: Final = timedelta(minutes=5)
SPREAD: Final = 0.1
RETRY_AFTER_MAX: Final = timedelta(days=1)

# After this time with nothing but failures there is a warning, and another.
WARN_AFTER: Final = (timedelta(hours=1), timedelta(hours=24))
DISABLE_AFTER: Final = timedelta(days=5)
# So few failures are no proof, however long ago the first of them was.
FAILURES_MIN: Final = 10

PLACES_FIRST: Final = 4
PLACES_MAX: Final = 16


class Health(Struct, frozen=True):
    """How an endpoint has done since something last arrived there."""

    failures: int = 0
    failing_since: datetime | None = None
    # Nothing is sent before; None for at once.
    rest_until: datetime | None = None
    # How many of the warnings were given.
    warnings: int = 0
    succeeded_at: datetime | None = None

    @property
    def is_on_trial(self) -> bool:
        """Tell whether one event at a time is tried, to see whether the endpoint works again."""
        return self.failures >= FAILURES_MAX

    def rests(self, now: datetime) -> bool:
        """Tell whether nothing is to be sent now."""
        return self.rest_until is not None and now < self.rest_until

    def is_hopeless(self, now: datetime) -> bool:
        """Tell whether it has to be disabled."""
        return (
            self.failing_since is not None
            and self.failures >= FAILURES_MIN
            and now - self.failing_since >= DISABLE_AFTER
        )


def succeeded(health: Health, now: datetime) -> Health:
    """Return how an endpoint is that took an event: well.

    A rest that it asked for itself it still has: others of its events were under way when it asked.
    """
    return Health(rest_until=None if health.is_on_trial else health.rest_until, succeeded_at=now)


def failed(health: Health, now: datetime, retry_after: timedelta | None, chance: float) -> Health:
    """Return how an endpoint is after one more failure; it may have said itself how long to wait."""
    failures = health.failures + 1
    since = health.failing_since or now
    rests = [health.rest_until]
    if failures >= FAILURES_MAX:
        rests.append(now + REST * (1 - SPREAD + 2 * SPREAD * chance))
    if retry_after is not None:
        rests.append(now + min(retry_after, RETRY_AFTER_MAX))
    return structs.replace(
        health,
        failures=failures,
        failing_since=since,
        rest_until=max((rest for rest in rests if rest is not None), default=None),
        warnings=max(health.warnings, sum(now - since >= after for after in WARN_AFTER)),
    )


def places(before: int, *, arrived: bool) -> int:
    """Return how many events may be under way at once after one arrived or failed.

    An endpoint that hangs is left with one, and one that answers soon has all.
    """
    return min(PLACES_MAX, before + 1) if arrived else max(1, before // 2)


def read_retry_after(text: str | None, now: datetime) -> timedelta | None:
    """Return how long an endpoint asks to be left alone, in seconds or until a date; None for nonsense."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        return min(timedelta(seconds=int(digits[:9] or 0)), RETRY_AFTER_MAX)
    try:
        until = parsedate_to_datetime(text)
        return max(timedelta(0), min(until - now, RETRY_AFTER_MAX))
    except (ValueError, TypeError, OverflowError):
        return None
