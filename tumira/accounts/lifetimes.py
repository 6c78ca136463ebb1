"""How long an account's messages are worth delivering."""

from datetime import timedelta
from typing import Final

from msgspec import Struct

PASSCODE_MINUTES_MIN: Final = 2
PASSCODE_MINUTES_MAX: Final = 60
MESSAGE_HOURS_MIN: Final = 1
# Networks cap it at one to two days, and a receipt is awaited for three.
MESSAGE_HOURS_MAX: Final = 48


class Lifetimes(Struct, frozen=True):
    """How long passcodes and other messages are worth delivering, from their acceptance."""

    passcode_s: int = 600
    message_s: int = 86_400

    def of(self, *, is_passcode: bool) -> timedelta:
        return timedelta(seconds=self.passcode_s if is_passcode else self.message_s)

    @property
    def passcode_minutes(self) -> int:
        return self.passcode_s // 60

    @property
    def message_hours(self) -> int:
        return self.message_s // 3600
