"""Which code does somebody's device show now? RFC 6238: SHA-1, six digits, a new one every 30 seconds."""

import hmac
import re
import secrets
import struct
from base64 import b32encode
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha1, sha256
from typing import Final
from urllib.parse import quote

from tumira.identity.code_rules import DIGITS

SECRET_BYTES: Final = 20
STEP_S: Final = 30
# Clocks of phones are off by some seconds, and typing takes some more.
STEPS_AROUND: Final = 1
RECOVERY_CODES: Final = 10

_ISSUER: Final = "Tumira"
_GROUP: Final = 4
# Without what looks like something else; 16 of them are 79 bits, too many to be guessed from a hash.
_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
_RECOVERY_LENGTH: Final = 16
_RECOVERY: Final = re.compile(rf"[{_ALPHABET}]{{{_RECOVERY_LENGTH}}}")
_BETWEEN: Final = re.compile(r"[\s-]+")


def new_secret() -> bytes:
    """Make what the owner's device and we make codes from."""
    return secrets.token_bytes(SECRET_BYTES)


def step_at(now: datetime) -> int:
    """Return the number of the 30 seconds in which a moment lies."""
    return int(now.timestamp()) // STEP_S


def code_at(secret: bytes, step: int) -> str:
    """Return the code of a step (RFC 4226, section 5.3)."""
    digest = hmac.digest(secret, struct.pack(">Q", step), sha1)
    offset = digest[-1] & 0xF
    number = int.from_bytes(digest[offset : offset + 4]) & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}d}"


def matching_step(secret: bytes, code: str, now: datetime, last_step: int) -> int | None:
    """Return the step whose code this is, near now and after the last one that was taken; None for none."""
    current = step_at(now)
    for step in range(current - STEPS_AROUND, current + STEPS_AROUND + 1):
        if step > last_step and hmac.compare_digest(code_at(secret, step).encode(), code.encode()):
            return step
    return None


def write_secret(secret: bytes) -> str:
    """Write a secret for somebody who types it into their device."""
    return _in_groups(b32encode(secret).decode())


def write_uri(secret: bytes, phone: str) -> str:
    """Write a secret for a device that reads it, with the names under which it is kept there."""
    return (
        f"otpauth://totp/{_ISSUER}:{quote(phone, safe='')}"
        f"?secret={b32encode(secret).decode().rstrip('=')}&issuer={_ISSUER}"
    )


def new_recovery_codes() -> Sequence[str]:
    """Make the codes for when the device is lost."""
    return [
        _in_groups("".join(secrets.choice(_ALPHABET) for _ in range(_RECOVERY_LENGTH)))
        for _ in range(RECOVERY_CODES)
    ]


def read_recovery_code(text: str) -> str | None:
    """Read a recovery code as people type it; None for what cannot be one."""
    code = _BETWEEN.sub("", text).lower()
    return code if _RECOVERY.fullmatch(code) else None


def hash_recovery_code(code: str) -> bytes:
    """Return what is kept of a recovery code as it was read."""
    return sha256(_BETWEEN.sub("", code).encode()).digest()


def _in_groups(text: str) -> str:
    separator = " " if text.isupper() else "-"
    return separator.join(text[start : start + _GROUP] for start in range(0, len(text), _GROUP))
