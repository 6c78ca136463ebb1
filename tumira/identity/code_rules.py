"""Limits on sending and trying codes: generous for bad lines, tight for abuse.

Anyone can ask for a code to any number, and we pay for it. So there are limits for each number, with waits
that grow for each address that asks, for each address, and for all codes together.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tumira.core.translation import ngettext

DIGITS: Final = 6
LIFETIME: Final = timedelta(minutes=10)
TRIES_MAX: Final = 5

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
# How long an address waits after its first code of a day for a number, after the second, and so on. After
# the last one it gets no more.
WAITS: Final = tuple(timedelta(seconds=s) for s in (30, 60, 120, 300, 600, 1200, 2400, 3600, 3600))
PER_HOUR_MAX: Final = 6
# For a number from all addresses together: what its owner can be bothered with. Twice what one address gets,
# so that one stranger alone does not use up the codes of a number.
PER_PHONE_DAY_MAX: Final = 20

_SHAPE: Final = re.compile(rf"[0-9]{{{DIGITS}}}")
_BETWEEN: Final = re.compile(r"[\s-]+")


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """Codes an hour: those asked for from one address, and those sent for each purpose."""

    per_address: int = 40
    in_all: int = 500


def new_code() -> str:
    return f"{secrets.randbelow(10**DIGITS):0{DIGITS}d}"


def read_code(text: str) -> str | None:
    """Read a code as people type it, in groups or with spaces around it; None for any other text."""
    code = _BETWEEN.sub("", text)
    return code if _SHAPE.fullmatch(code) else None


def wait_for_phone(here: Sequence[datetime], everywhere: Sequence[datetime], now: datetime) -> timedelta:
    """Return how long a number waits for its next code.

    Given are the times of the last day's codes, oldest first: those that were asked for from here, and those
    from everywhere.
    """
    due = now
    if here:
        due = max(due, here[-1] + WAITS[min(len(here), len(WAITS)) - 1])
    if len(here) > len(WAITS):
        due = max(due, here[-len(WAITS) - 1] + DAY)
    if len(here) >= PER_HOUR_MAX:
        due = max(due, here[-PER_HOUR_MAX] + HOUR)
    if everywhere:
        due = max(due, everywhere[-1] + WAITS[0])
    if len(everywhere) >= PER_PHONE_DAY_MAX:
        due = max(due, everywhere[-PER_PHONE_DAY_MAX] + DAY)
    return due - now


def wait_for_count(count: int, oldest: datetime | None, count_max: int, now: datetime) -> timedelta:
    """Return the wait after `count` codes in the last hour, the first of them at `oldest`."""
    if count < count_max or oldest is None:
        return timedelta(0)
    return max(timedelta(seconds=1), oldest + HOUR - now)


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """The failed attempts that are allowed in the window; None for no limit."""

    # For a number from one address; for a number from all addresses; from an address for all numbers.
    per_pair: int | None = None
    per_phone: int | None = None
    per_address: int | None = None
    window: timedelta = timedelta(minutes=15)


def in_words(wait: timedelta) -> str:
    """Write a wait for a page."""
    seconds = max(1, round(wait.total_seconds()))
    if seconds < 90:  # noqa: PLR2004 - a minute and a half is the longest that reads well in seconds
        return ngettext("{count} second", "{count} seconds", seconds).format(count=seconds)
    minutes = -(-seconds // 60)
    if minutes < 90:  # noqa: PLR2004 - as above, in minutes
        return ngettext("{count} minute", "{count} minutes", minutes).format(count=minutes)
    hours = -(-minutes // 60)
    return ngettext("{count} hour", "{count} hours", hours).format(count=hours)
