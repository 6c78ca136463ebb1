"""Histograms of times, in buckets that are each twice as wide as the one before.

Counts of many workers and slots of time can be added up, and a percentile read from the sum: never further
from the truth than its bucket is wide.
"""

from collections.abc import Mapping
from typing import Final

# Below this, all times are one bucket: the shortest that matters between two machines.
FIRST_MS: Final = 10
# From 46 hours on; nobody waits for a receipt for more than 72.
LAST: Final = 25
LONGEST_MS: Final = 72 * 3_600_000

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
# So many of a unit still read well.
_ENOUGH: Final = 10


def bucket_of(ms: int) -> int:
    """Return the bucket of a time; clocks differ, so a negative time counts as zero."""
    if ms < FIRST_MS:
        return 0
    return min((ms // FIRST_MS).bit_length(), LAST)


def bounds_ms(bucket: int) -> tuple[int, int]:
    assert 0 <= bucket <= LAST
    low = 0 if bucket == 0 else FIRST_MS << (bucket - 1)
    return low, LONGEST_MS if bucket == LAST else FIRST_MS << bucket


def percentile_ms(counts: Mapping[int, int], percent: int) -> int | None:
    """Return the time within which this percentage was done; None where nothing was counted."""
    assert 0 < percent <= 100  # noqa: PLR2004 - per cent
    total = sum(counts.values())
    if total == 0:
        return None
    # The first time that at least so many do not exceed, with those of a bucket spread evenly over it.
    rank = total * percent / 100
    below = 0
    for bucket in sorted(counts):
        count = counts[bucket]
        if count and below + count >= rank:
            low, high = bounds_ms(bucket)
            return round(low + (high - low) * (rank - below) / count)
        below += count
    raise AssertionError("the counts do not add up")


def write_ms(ms: int) -> str:
    """Write a time for people, with two digits or so: `80 ms`, `1.4 s`, `25 s`, `3.5 min`, `12 h`."""
    if ms < _SECOND_MS:
        return f"{ms} ms"
    for unit_ms, unit in ((_SECOND_MS, "s"), (_MINUTE_MS, "min")):
        if ms < 100 * unit_ms:
            return _short(ms / unit_ms, unit)
    return _short(ms / _HOUR_MS, "h")


def _short(value: float, unit: str) -> str:
    if value >= _ENOUGH:
        return f"{value:.0f} {unit}"
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"
