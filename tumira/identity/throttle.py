"""Limits on guessing passwords and codes that keep out who guesses and not who owns the number.

Tries count for a number together with the address they come from. A browser in which the owner has signed in
before has tries of its own. Whoever guesses from many addresses meets the limit of the number, which neither
such a browser nor a code sent to the phone has to pass (decision 0033).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
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
_OPERATOR: Final = "operator:"


@dataclass(frozen=True, slots=True)
class Browser:
    """Somebody at a browser who is not signed in, or not any more once they are again."""

    address: str
    browser: str
    # The session that the browser had, which ends when another begins: nobody can plant one.
    old_token: str | None
    # What the browser was given when somebody signed in there before.
    device: str | None = None

    @property
    def device_sha256(self) -> bytes | None:
        """Return what is kept of the browser's token."""
        return None if self.device is None else sha256(self.device.encode()).digest()


def operator_subject(phone: str) -> str:
    """Return under which name an operator's tries are counted, apart from those of a customer's account."""
    return _OPERATOR + phone


async def budget_of(connection: Connection, kind: AttemptKind, phone: str, guest: Browser) -> Budget:
    """Return what a try counts against."""
    device = guest.device_sha256
    if device is not None and await devices.is_known(connection, phone, device):
        return Budget(AttemptKind.DEVICE, phone, f"device:{device.hex()}", DEVICE_LIMITS)
    limits = _LIMITS[kind]
    if kind is AttemptKind.PASSWORD and phone.startswith(_OPERATOR):
        limits = OPERATOR_LIMITS
    return Budget(kind, phone, guest.address, limits)


async def take(connection: Connection, kind: AttemptKind, phone: str, guest: Browser) -> timedelta | None:
    """Count a try before anything is hashed or compared; or say how long the next one has to wait."""
    return await attempts.take(connection, await budget_of(connection, kind, phone, guest))


async def take_proof(connection: Connection, phone: str, address: str) -> timedelta | None:
    """Count a try of somebody who is signed in; only others who are signed in to the same account count."""
    return await attempts.take(connection, Budget(AttemptKind.PROOF, phone, address, PROOF_LIMITS))


async def forgive(connection: Connection, phone: str, guest: Browser) -> None:
    """Forget what somebody mistyped who has shown now who they are."""
    await attempts.forgive(connection, phone, guest.address)
    if guest.device_sha256 is not None:
        await attempts.forgive(connection, phone, f"device:{guest.device_sha256.hex()}")
