"""How is a password kept, and how is one compared? As Argon2id, beside the event loop, two at a time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

# 19 MiB and two passes: what OWASP asks for, and about 30 ms on a small machine.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# Hashing holds no lock of Python's, and must not take all processors from those who answer calls.
_BESIDE: Final = ThreadPoolExecutor(2, thread_name_prefix="passwords")


async def hash_secret(secret: str) -> str:
    """Return what is kept of a password or a code."""
    return await asyncio.get_running_loop().run_in_executor(_BESIDE, _HASHER.hash, secret)


async def matches(secret: str, hashed: str | None) -> bool:
    """Tell whether this is the password or code; where there is none, take as long to say no."""
    return await asyncio.get_running_loop().run_in_executor(_BESIDE, _matches, secret, hashed)


def _matches(secret: str, hashed: str | None) -> bool:
    try:
        _HASHER.verify(hashed or _nobodys(), secret)
    except (VerificationError, InvalidHashError):
        return False
    return bool(hashed)


@cache
def _nobodys() -> str:
    return _HASHER.hash("nobody's")
