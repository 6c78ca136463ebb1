"""Endpoint health: when to send an event again, back off, warn and disable.

After 20 failures in a row one event is sent every few minutes, until one is delivered; the waiting events are
then sent at once. An endpoint to which nothing was delivered for five days is disabled.
"""

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from msgspec import Struct, structs

# The waits between the attempts at one event, and how many attempts there are in all, over about three days.
RETRY_WAITS: Final = (
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
ATTEMPTS_MAX: Final = 11

FAILURES_MAX: Final = 20
BACKOFF: Final = timedelta(minutes=5)
# Spreads attempts that failed together.
JITTER: Final = 0.1
RETRY_AFTER_MAX: Final = timedelta(days=1)

# How long nothing but failures leads to the first and the second warning.
WARN_AFTER: Final = (timedelta(hours=1), timedelta(hours=24))
DISABLE_AFTER: Final = timedelta(days=5)
# Fewer failures prove nothing, however long ago the first of them was.
FAILURES_MIN: Final = 10

CONCURRENCY_FIRST: Final = 4
CONCURRENCY_MAX: Final = 16


class Health(Struct, frozen=True):
    """The failures of an endpoint since the last delivery."""

    failures: int = 0
    failing_since: datetime | None = None
    # Nothing is sent before this time; the column is `rest_until`.
    backoff_until: datetime | None = None
    # How many warnings were given.
    warnings: int = 0
    succeeded_at: datetime | None = None

    @property
    def is_probing(self) -> bool:
        """Tell whether one event at a time is sent, to find out whether the endpoint works again."""
        return self.failures >= FAILURES_MAX

    def is_backing_off(self, now: datetime) -> bool:
        return self.backoff_until is not None and now < self.backoff_until

    def must_be_disabled(self, now: datetime) -> bool:
        return (
            self.failing_since is not None
            and self.failures >= FAILURES_MIN
            and now - self.failing_since >= DISABLE_AFTER
        )


def retry_wait(attempts: int, chance: float) -> timedelta:
    """Return how long an event waits after this many failed attempts; `chance` is from 0 up to 1."""
    assert attempts >= 1
    return _spread(RETRY_WAITS[min(attempts, len(RETRY_WAITS)) - 1], chance)


def _spread(wait: timedelta, chance: float) -> timedelta:
    assert 0 <= chance < 1
    return wait * (1 - JITTER + 2 * JITTER * chance)


def succeeded(health: Health, now: datetime) -> Health:
    """Return the health after a delivery.

    A backoff that the endpoint asked for stays: other events were in flight when it asked.
    """
    return Health(backoff_until=None if health.is_probing else health.backoff_until, succeeded_at=now)


def failed(health: Health, now: datetime, retry_after: timedelta | None, chance: float) -> Health:
    """Return the health after another failure; the endpoint may have asked for a wait."""
    failures = health.failures + 1
    since = health.failing_since or now
    backoffs = [health.backoff_until]
    if failures >= FAILURES_MAX:
        backoffs.append(now + _spread(BACKOFF, chance))
    if retry_after is not None:
        backoffs.append(now + min(retry_after, RETRY_AFTER_MAX))
    return structs.replace(
        health,
        failures=failures,
        failing_since=since,
        backoff_until=max((until for until in backoffs if until is not None), default=None),
        warnings=max(health.warnings, sum(now - since >= after for after in WARN_AFTER)),
    )


def next_concurrency(before: int, *, delivered: bool) -> int:
    """Return how many events may be in flight at once: one more after a delivery, half after a failure."""
    return min(CONCURRENCY_MAX, before + 1) if delivered else max(1, before // 2)


def read_retry_after(text: str | None, now: datetime) -> timedelta | None:
    """Read a Retry-After header, in seconds or with a date; None if it is neither."""
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
