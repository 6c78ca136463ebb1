"""How is a password kept, and how is one compared? As Argon2id, beside the event loop, two at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Final, ParamSpec, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# 19 MiB and two passes: what OWASP asks for, and about 30 ms on a small machine.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# Hashing holds no lock of Python's, and must not take all processors from those who answer calls.
WAITING_MAX: Final = 100
_BESIDE: Final = ThreadPoolExecutor(2, thread_name_prefix="passwords")


class TooManyWaitError(OSError):
    """So many passwords wait to be hashed that more would wait for seconds."""


async def hash_secret(secret: str) -> str:
    """Return what is kept of a password or a code."""
    return await _beside(_HASHER.hash, secret)


async def matches(secret: str, hashed: str | None) -> bool:
    """Tell whether this is the password or code; where there is none, take as long to say no."""
    return await _beside(_matches, secret, hashed)


async def _beside(
    work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    if _BESIDE._work_queue.qsize() >= WAITING_MAX:  # noqa: SLF001 - the pool tells nobody otherwise
        raise TooManyWaitError
    return await asyncio.get_running_loop().run_in_executor(_BESIDE, partial(work, *args, **kwargs))


def _matches(secret: str, hashed: str | None) -> bool:
    try:
        _HASHER.verify(hashed or _nobodys(), secret)
    except (VerificationError, InvalidHashError):
        return False
    return bool(hashed)


@cache
def _nobodys() -> str:
    return _HASHER.hash("nobody's")
