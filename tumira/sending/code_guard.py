"""The guard against SMS pumping: how many passcodes an account sends to a number and to its neighbours.

A script on a sign-up form asks for codes to numbers that nobody reads. So passcodes are counted for each
account and range, which is a number without its last four digits. `PasscodeLimits` has the limits: to a
number in ten minutes and in a day, to a range in ten minutes. A range over its limit is stopped for twelve
hours, or until the account's owner lifts it; a number over its limit gets codes again as its earlier ones
grow old.

Of each code the second is kept in which it was accepted, rounded up, and the last four digits of its number:
first all seconds, in four octets each, then all digits, in two. Hundreds are counted as fast as one. A code
counts until the window has passed since its second, so no window ever holds more codes than the limit. A
range keeps its codes of a day, at most `KEPT_MAX` of them and those of the last ten minutes; so the daily
limit is exact for accounts that send fewer codes a day than that to a range.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from tumira.accounts.passcode_limits import EffectiveLimits
from tumira.content.passcodes import is_passcode
from tumira.content.verdict import Verdict
from tumira.core.errors import RecipientCode
from tumira.core.ids import AccountId
from tumira.pricing.quote import ValidRequest
from tumira.sending.fairness import SMALL_MAX

WINDOW_S: Final = 600
DAY_S: Final = 86_400
STOP_S: Final = 12 * 3600
KEPT_MAX: Final = 256
CODE_OCTETS: Final = 6

# As the arrays have them.
_SECOND: Final = struct.Struct("=I")
_DIGITS: Final = struct.Struct("=H")
_SECOND_US: Final = 1_000_000
_LAST_DIGITS: Final = 4

# An account, and the beginning of the numbers of a range.
RangeKey = tuple[AccountId, str]


class StopKind(StrEnum):
    """Which limit a passcode was over."""

    NUMBER = "number"
    RANGE = "range"


class RangeCodes(Struct, frozen=True):
    """The passcodes that an account lately sent to one range, oldest first, and what follows from them."""

    codes: bytes = b""
    # Stopped before this time; zero for a range that never was.
    stopped_until_us: int = 0
    # By the owner: everything passes.
    is_lifted: bool = False


class GuardDecision(Struct, frozen=True):
    """The numbers to which no passcode is sent, and the ranges as they are if the others are sent."""

    stopped: Mapping[str, StopKind]
    ranges: Mapping[RangeKey, RangeCodes]

    @property
    def barred(self) -> Mapping[str, RecipientCode]:
        return dict.fromkeys(self.stopped, RecipientCode.RECIPIENT_LIMIT)


NOTHING_STOPPED: Final = GuardDecision({}, {})


def carries_passcode(request: ValidRequest, verdict: Verdict | None = None) -> bool:
    """Tell whether a send is a passcode: a text to more than a few numbers is none, whatever it says.

    `verdict` is that on its text, if it is classified already.
    """
    if len(request.to) > SMALL_MAX:
        return False
    return is_passcode(request.body) if verdict is None else verdict.is_passcode


def range_of(number: str) -> str:
    return number[:-_LAST_DIGITS]


def decide(
    account_id: AccountId,
    limits: EffectiveLimits,
    numbers: Iterable[str],
    ranges: Mapping[RangeKey, RangeCodes],
    now_us: int,
) -> GuardDecision:
    """Decide to which numbers a passcode may go; the caller keeps the ranges if it sends to them."""
    stopped: dict[str, StopKind] = {}
    changed: dict[RangeKey, RangeCodes] = {}
    for number in numbers:
        key = (account_id, range_of(number))
        before = changed.get(key) or ranges.get(key) or RangeCodes()
        if before.is_lifted:
            continue
        if now_us < before.stopped_until_us:
            stopped[number] = StopKind.RANGE
            continue
        after = _add(before.codes, int(number[-_LAST_DIGITS:]), limits, now_us)
        if not isinstance(after, StopKind):
            changed[key] = RangeCodes(after)
            continue
        stopped[number] = after
        if after is StopKind.RANGE:
            changed[key] = RangeCodes(before.codes, now_us + STOP_S * _SECOND_US)
    return GuardDecision(stopped, changed)


def _add(codes: bytes, last_digits: int, limits: EffectiveLimits, now_us: int) -> bytes | StopKind:
    """Return the codes of a range with one more, or the limit that it would exceed."""
    now_s = now_us // _SECOND_US
    if not codes:
        return _SECOND.pack(now_s + 1) + _DIGITS.pack(last_digits)
    count = len(codes) // CODE_OCTETS
    if count < min(limits.number, limits.number_day, limits.range, KEPT_MAX):
        # Nearly always: no limit can be reached. The times are in order.
        newest, oldest = _SECOND.unpack_from(codes, 4 * count - 4)[0], _SECOND.unpack_from(codes)[0]
        if newest <= now_s + 1 and oldest > now_s - DAY_S:
            end = 4 * count
            return codes[:end] + _SECOND.pack(now_s + 1) + codes[end:] + _DIGITS.pack(last_digits)
    seconds, numbers = array("I", codes[: 4 * count]), array("H", codes[4 * count :])
    if seconds[-1] > now_s + 1:
        # A clock that was since set back has dated them later than the end of this second.
        seconds = array("I", [min(second, now_s + 1) for second in seconds])
    today, lately = bisect_right(seconds, now_s - DAY_S), bisect_right(seconds, now_s - WINDOW_S)
    if (
        numbers[lately:].count(last_digits) >= limits.number
        or numbers[today:].count(last_digits) >= limits.number_day
    ):
        return StopKind.NUMBER
    if count - lately >= limits.range:
        return StopKind.RANGE
    first = max(today, min(lately, count - KEPT_MAX + 1))
    seconds.append(now_s + 1)
    numbers.append(last_digits)
    return seconds[first:].tobytes() + numbers[first:].tobytes()
