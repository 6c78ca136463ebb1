"""Limits on guessing passwords and codes, which do not lock out the owner of a number.

Attempts count for a number together with the address they come from. A browser in which the owner has signed
in before has attempts of its own. Guessing from many addresses is stopped by the limit of the number, which
does not apply to such a browser nor to a code sent to the phone (decision 0033).
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from tumira.identity.code_rules import AttemptLimits
from tumira.identity.principal import Browser, is_operator
from tumira.identity.store import attempts, devices
from tumira.identity.store.attempts import AttemptKind
from tumira.postgres.connection import Connection

_LIMITS: Final[Mapping[AttemptKind, AttemptLimits]] = {
    # A guesser with many addresses gets 30 attempts in 15 minutes for one number. Meanwhile its owner signs
    # in on a known device, or chooses a new password with a code: neither counts here.
    AttemptKind.PASSWORD: AttemptLimits(per_pair=10, per_phone=30, per_address=60),
    # The second factor needs the password or the phone first, and many addresses could guess a million codes
    # soon. So this is a limit for the number.
    AttemptKind.FACTOR: AttemptLimits(per_phone=10, per_address=60),
    AttemptKind.RESET_FACTOR: AttemptLimits(per_phone=10, per_address=60),
    AttemptKind.PROOF: AttemptLimits(per_phone=10),
    AttemptKind.CORRECTION: AttemptLimits(per_pair=10, per_address=60),
}
DEVICE_LIMITS: Final = AttemptLimits(per_pair=10)
# No limit for the number: an operator cannot be sent a code, and has a second factor in any case.
OPERATOR_LIMITS: Final = AttemptLimits(per_pair=10, per_address=60)


async def take(connection: Connection, kind: AttemptKind, subject: str, browser: Browser) -> timedelta | None:
    """Count an attempt before anything is compared; or return how long the next one has to wait."""
    device = browser.device_sha256
    if device is not None and await devices.is_known(connection, subject, device):
        return await attempts.take(connection, AttemptKind.DEVICE, subject, _origin(device), DEVICE_LIMITS)
    limits = _LIMITS[kind]
    if kind is AttemptKind.PASSWORD and is_operator(subject):
        limits = OPERATOR_LIMITS
    return await attempts.take(connection, kind, subject, browser.address, limits)


async def forgive(connection: Connection, subject: str, browser: Browser) -> None:
    """Delete the failed attempts of a principal who has signed in now."""
    await attempts.forgive(connection, subject, browser.address)
    if browser.device_sha256 is not None:
        await attempts.forgive(connection, subject, _origin(browser.device_sha256))


def _origin(device: bytes) -> str:
    return f"device:{device.hex()}"
