"""Authenticator codes (RFC 6238: SHA-1, six digits, every 30 seconds) and recovery codes."""

import hmac
import re
import secrets
from base64 import b32encode
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final

from pyotp import TOTP

from tumira.identity.code_rules import DIGITS

SECRET_BYTES: Final = 20
# Clocks of phones are off by some seconds, and typing takes some more.
STEPS_AROUND: Final = 1
RECOVERY_CODES: Final = 10

_ISSUER: Final = "Tumira"
_GROUP: Final = 4
# Without look-alikes such as l and 1; 16 of them are 79 bits, too many to be guessed from a hash.
_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
_LENGTH: Final = 16
_RECOVERY: Final = re.compile(rf"[{_ALPHABET}]{{{_LENGTH}}}")
_SEPARATORS: Final = re.compile(r"[\s-]+")


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def authenticator(secret: bytes) -> TOTP:
    """Return what an authenticator app computes with this secret."""
    return TOTP(b32encode(secret).decode(), digits=DIGITS)


def matching_step(secret: bytes, code: str, now: datetime, last_step: int) -> int | None:
    """Return the 30-second step of a code; None unless it is near now and after the last step used."""
    app = authenticator(secret)
    current = app.timecode(now)
    for step in range(current - STEPS_AROUND, current + STEPS_AROUND + 1):
        if step > last_step and hmac.compare_digest(app.generate_otp(step).encode(), code.encode()):
            return step
    return None


def write_secret(secret: bytes) -> str:
    """Write a secret for typing, in groups of four."""
    return " ".join(_groups(b32encode(secret).decode()))


def write_uri(secret: bytes, phone: str) -> str:
    """Write a secret as the link that authenticator apps read, with the names they show."""
    return authenticator(secret).provisioning_uri(phone, issuer_name=_ISSUER)


def new_random_code() -> str:
    """Make a recovery code or a one-time password, such as `abcd-efgh-jkmn-pqrs`."""
    return "-".join(_groups("".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))))


def new_recovery_codes() -> Sequence[str]:
    return [new_random_code() for _ in range(RECOVERY_CODES)]


def read_recovery_code(text: str) -> str | None:
    """Read a recovery code as people type it; None for any other text."""
    code = _SEPARATORS.sub("", text).lower()
    return code if _RECOVERY.fullmatch(code) else None


def hash_recovery_code(code: str) -> bytes:
    return sha256(_SEPARATORS.sub("", code).encode()).digest()


def _groups(text: str) -> Sequence[str]:
    return [text[start : start + _GROUP] for start in range(0, len(text), _GROUP)]
