"""Argon2id hashing of passwords and codes, in a small thread pool that addresses share fairly."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Final, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

Result = TypeVar("Result")

# 19 MiB and two passes: what OWASP asks for, and about 30 ms on a small machine.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# Hashing releases Python's lock, and must leave processors for answering calls.
WORKERS: Final = 2
# About two seconds of work for both workers; beyond that the caller is asked to come back.
WAITING_MAX: Final = 128
# What one address may have waiting: enough for an office behind one address, an eighth of the queue.
WAITING_PER_ADDRESS_MAX: Final = 16

# The address of the command line's own jobs.
LOCAL: Final = "local"


class HashingBusyError(Exception):
    """The queue for hashing passwords is full, either as a whole or for one address."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason: Final = reason


class HashingPool:
    """A few threads and a bounded queue in which addresses take turns.

    One address can fill its own share of the queue, and then delays each job of another address by at most
    one of its own.
    """

    def __init__(
        self,
        workers: int = WORKERS,
        waiting_max: int = WAITING_MAX,
        per_address_max: int = WAITING_PER_ADDRESS_MAX,
    ) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="passwords")
        self._waiting_max = waiting_max
        self._per_address_max = per_address_max
        self._lock = threading.Lock()
        self._count = 0
        # By address, in the order in which they get their turn.
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    async def run(self, address: str, work: Callable[[], Result]) -> Result:
        """Run a job when it is the turn of its address; raise when the queue is full."""
        done: Future[Result] = Future()
        with self._lock:
            if len(self._waiting.get(address, ())) >= self._per_address_max:
                raise HashingBusyError("one address has too many passwords waiting to be hashed")
            if self._count >= self._waiting_max:
                raise HashingBusyError("too many passwords are waiting to be hashed")
            self._waiting.setdefault(address, deque()).append((done, work))
            self._count += 1
        # One call for each job, which takes whichever job is next and not necessarily this one.
        self._threads.submit(self._run_next)
        return await asyncio.wrap_future(done)

    def _run_next(self) -> None:
        with self._lock:
            address = next(iter(self._waiting))
            jobs = self._waiting.pop(address)
            done, work = jobs.popleft()
            if jobs:
                # To the end of the queue: all other addresses come before its next job.
                self._waiting[address] = jobs
            self._count -= 1
        # The caller may have disconnected while the job waited.
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - the caller that waits gets it
            done.set_exception(error)


_POOL: Final = HashingPool()


async def hash_secret(secret: str, address: str) -> str:
    return await _POOL.run(address, partial(_hash, secret))


async def matches(secret: str, hashed: str | None, address: str) -> bool:
    """Compare a password or code; without a hash it takes as long to answer no."""
    return await _POOL.run(address, partial(_matches, secret, hashed))


def _hash(secret: str) -> str:
    return _HASHER.hash(secret)


def _matches(secret: str, hashed: str | None) -> bool:
    try:
        _HASHER.verify(hashed or _nobodys(), secret)
    except (VerificationError, InvalidHashError):
        return False
    return bool(hashed)


@cache
def _nobodys() -> str:
    return _HASHER.hash("nobody's")
