"""The most passcodes that an account sends to a number and to a range of numbers."""

from typing import Final

from msgspec import Struct

NUMBER_MAX: Final = 20
NUMBER_DAY_MAX: Final = 50
RANGE_MAX: Final = 50
# An account with a higher rate has more users in each range: it may send this share of its calls of a minute
# to one range in ten minutes, which is 1 % of its traffic.
RATE_SHARE: Final = 10
# The most that a limit can be set to.
NUMBER_MOST: Final = 100
NUMBER_DAY_MOST: Final = 250
RANGE_MOST: Final = 100_000


class PasscodeLimits(Struct, frozen=True):
    """Limits on passcodes as they are stored; None for the default.

    In ten minutes to a number, in a day to a number, and in ten minutes to a range.
    """

    is_on: bool = True
    number: int | None = None
    number_day: int | None = None
    range: int | None = None

    def effective(self, rate_limit: int) -> "EffectiveLimits":
        return EffectiveLimits(
            self.number or NUMBER_MAX,
            self.number_day or NUMBER_DAY_MAX,
            self.range or default_range_max(rate_limit),
        )


class EffectiveLimits(Struct, frozen=True):
    """Limits on passcodes as they apply, in the order of `PasscodeLimits`."""

    number: int
    number_day: int
    range: int


def default_range_max(rate_limit: int) -> int:
    """Return the default limit of a range for an account with this limit of calls a minute."""
    return max(RANGE_MAX, rate_limit // RATE_SHARE)
