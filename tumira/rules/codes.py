"""How often is a code sent and tried? Often enough for those with bad lines, too rarely for abuse.

A code is a message that we pay for and that anybody can ask for, to any number. So there are limits: for each
number, with waits that grow; for each address on the internet; and for everybody together.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

DIGITS: Final = 6
LIFETIME: Final = timedelta(minutes=10)
TRIES_MAX: Final = 5

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
# How long a number waits after its first code of a day, after the second, and so on; then it gets no more.
WAITS: Final = tuple(timedelta(seconds=s) for s in (30, 60, 120, 300, 600, 1200, 2400, 3600, 3600))
PER_PHONE_HOUR_MAX: Final = 6

_SHAPE: Final = re.compile(rf"[0-9]{{{DIGITS}}}")
_BETWEEN: Final = re.compile(r"[\s-]+")


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """How many codes may leave in an hour: asked for from one address, and in all."""

    per_address: int = 40
    in_all: int = 500


def new_code() -> str:
    """Make a code."""
    return f"{secrets.randbelow(10**DIGITS):0{DIGITS}d}"


def read_code(text: str) -> str | None:
    """Read a code as people type it, in groups or with spaces around it; None for what cannot be one."""
    code = _BETWEEN.sub("", text)
    return code if _SHAPE.fullmatch(code) else None


def wait_for_phone(sent: Sequence[datetime], now: datetime) -> timedelta:
    """Return how long a number must wait for its next code; `sent` are the last day's, oldest first."""
    if not sent:
        return timedelta(0)
    due = sent[-1] + WAITS[min(len(sent), len(WAITS)) - 1]
    if len(sent) > len(WAITS):
        due = max(due, sent[-len(WAITS) - 1] + DAY)
    if len(sent) >= PER_PHONE_HOUR_MAX:
        due = max(due, sent[-PER_PHONE_HOUR_MAX] + HOUR)
    return max(timedelta(0), due - now)


def wait_for_count(count: int, oldest: datetime | None, count_max: int, now: datetime) -> timedelta:
    """Return how long to wait when so many codes left in the last hour, the oldest of them then."""
    if count < count_max or oldest is None:
        return timedelta(0)
    return max(timedelta(seconds=1), oldest + HOUR - now)


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """How many passwords and codes may be tried in vain in the window, for a number and from an address."""

    per_phone: int = 10
    per_address: int = 60
    window: timedelta = timedelta(minutes=15)


def in_words(wait: timedelta) -> str:
    """Say how long somebody has to wait."""
    seconds = max(1, round(wait.total_seconds()))
    if seconds < 90:  # noqa: PLR2004 - a minute and a half is the longest that reads well in seconds
        return f"{seconds} second{'s' if seconds != 1 else ''}"
    minutes = -(-seconds // 60)
    if minutes < 90:  # noqa: PLR2004 - as above, in minutes
        return f"{minutes} minutes"
    return f"{-(-minutes // 60)} hours"
