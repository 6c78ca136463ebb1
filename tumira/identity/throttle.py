"""Limits on guessing passwords and codes, which do not lock out the owner of a number.

Attempts count for a number together with the address they come from. A browser in which the owner has signed
in before has attempts of its own. Guessing from many addresses is stopped by the limit of the number, which
does not apply to such a browser nor to a code sent to the phone (decision 0033).
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from tumira.identity.code_rules import (
    CORRECTION_LIMITS,
    DEVICE_LIMITS,
    FACTOR_LIMITS,
    OPERATOR_LIMITS,
    PASSWORD_LIMITS,
    PROOF_LIMITS,
    AttemptLimits,
)
from tumira.identity.principal import Browser, is_operator
from tumira.identity.store import attempts, devices
from tumira.identity.store.attempts import AttemptKind, Budget
from tumira.postgres.connection import Connection

_LIMITS: Final[Mapping[AttemptKind, AttemptLimits]] = {
    AttemptKind.PASSWORD: PASSWORD_LIMITS,
    AttemptKind.FACTOR: FACTOR_LIMITS,
    AttemptKind.RESET_FACTOR: FACTOR_LIMITS,
    AttemptKind.PROOF: PROOF_LIMITS,
    AttemptKind.CORRECTION: CORRECTION_LIMITS,
}


async def take(connection: Connection, kind: AttemptKind, subject: str, browser: Browser) -> timedelta | None:
    """Count an attempt before anything is compared; or return how long the next one has to wait."""
    return await attempts.take(connection, await _budget_of(connection, kind, subject, browser))


async def _budget_of(connection: Connection, kind: AttemptKind, subject: str, browser: Browser) -> Budget:
    device = browser.device_sha256
    if device is not None and await devices.is_known(connection, subject, device):
        return Budget(AttemptKind.DEVICE, subject, f"device:{device.hex()}", DEVICE_LIMITS)
    limits = _LIMITS[kind]
    if kind is AttemptKind.PASSWORD and is_operator(subject):
        limits = OPERATOR_LIMITS
    return Budget(kind, subject, browser.address, limits)


async def take_proof(connection: Connection, phone: str, address: str) -> timedelta | None:
    """Count an attempt of a signed-in customer, together with others signed in to the same account."""
    return await attempts.take(connection, Budget(AttemptKind.PROOF, phone, address, PROOF_LIMITS))


async def forgive(connection: Connection, subject: str, browser: Browser) -> None:
    """Delete the failed attempts of a principal who has signed in now."""
    await attempts.forgive(connection, subject, browser.address)
    if browser.device_sha256 is not None:
        await attempts.forgive(connection, subject, f"device:{browser.device_sha256.hex()}")
