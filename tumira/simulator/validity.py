"""Reads how long a submitted message is valid."""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final

CACHED: Final = 4096

# Years, months, days, hours, minutes, seconds; tenths, quarters of an hour from UTC, and how to read it.
_WRITTEN: Final = re.compile(r"(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d)(\d\d)([R+-])")
_YEAR_DAYS: Final = 365
_MONTH_DAYS: Final = 30


@lru_cache(CACHED)
def read_relative(written: str) -> float | None:
    """Return the seconds of a relative validity period; None for any other, and for zeros."""
    match = _WRITTEN.fullmatch(written)
    if match is None or match[9] != "R":
        return None
    years, months, days, hours, minutes, seconds = (int(one) for one in match.groups()[:6])
    days += years * _YEAR_DAYS + months * _MONTH_DAYS
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() or None


def read_validity_s(written: str, now_s: float) -> float | None:
    """Return the seconds that a message stays valid; None if its sender left that to the carrier."""
    match = _WRITTEN.fullmatch(written)
    if match is None or match[9] == "R":
        return read_relative(written)
    year, month, day, hour, minute, second, tenths, quarters = (int(one) for one in match.groups()[:8])
    ahead = timedelta(minutes=15 * quarters)
    try:
        zone = timezone(ahead if match[9] == "+" else -ahead)
        end = datetime(2000 + year, month, day, hour, minute, second, tenths * 100_000, zone)
    except ValueError:
        return None
    return (end - datetime.fromtimestamp(now_s, UTC)).total_seconds()
