"""Local days: both countries keep the same time all year."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Final

# Harare and Johannesburg; their midnight ends a day.
LOCAL_TIME: Final = timedelta(hours=2)

_DAY_MS: Final = 86_400_000
_LOCAL_TIME_MS: Final = int(LOCAL_TIME.total_seconds()) * 1000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


def local_time(at: datetime) -> datetime:
    return at.astimezone(timezone(LOCAL_TIME))


def local_day(at: datetime) -> date:
    return (at.astimezone(UTC) + LOCAL_TIME).date()


def local_midnight(day: date) -> datetime:
    """Return the moment at which a local day begins."""
    return datetime.combine(day, time(), UTC) - LOCAL_TIME


def local_ordinal(at_ms: int) -> int:
    """Return the ordinal of the local day of a moment in milliseconds.

    Where every message is counted to its day, making a date for each would cost more than the counting.
    """
    return _EPOCH_ORDINAL + (at_ms + _LOCAL_TIME_MS) // _DAY_MS
