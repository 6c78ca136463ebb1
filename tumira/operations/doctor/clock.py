"""The clock of this machine: against the database's, and whether it is synchronised."""

import ctypes
import time
from typing import Final

from tumira.operations.doctor.diagnosis import Diagnosis, ok, problem, warning
from tumira.postgres import clock
from tumira.postgres.connection import Connection

NEAR_S: Final = 2.0
# The times of certificates and of signed requests have to be right within a minute or so.
FAR_S: Final = 60.0

_ADVICE: Final = "Synchronise the clock: install chrony or systemd-timesyncd, and check `timedatectl`."
# adjtimex(2): `struct timex` has 208 bytes, and all zeros ask without changing anything.
_TIMEX_BYTES: Final = 256
_TIME_ERROR: Final = 5


def check_synchronised() -> Diagnosis:
    """Ask the kernel whether a program keeps its clock right."""
    return judge_state(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))


def judge_state(state: int) -> Diagnosis:
    """Judge what adjtimex returns: negative where it may not be asked."""
    if state < 0:
        return warning("clock", "The kernel does not say whether the clock is synchronised.", _ADVICE)
    if state == _TIME_ERROR:
        return warning("clock", "The clock is not synchronised with a time server.", _ADVICE)
    return ok("clock", "The clock is synchronised with a time server.")


async def check_against_database(connection: Connection) -> Diagnosis:
    before = time.time()
    now = await clock.read_now(connection)
    after = time.time()
    return judge_offset((before + after) / 2 - now.timestamp(), (after - before) / 2, "the database's clock")


def judge_offset(offset_s: float, unsure_s: float, other: str) -> Diagnosis:
    """Judge how far this machine is ahead of another clock."""
    if abs(offset_s) <= NEAR_S + unsure_s:
        return ok("clock", f"The clock agrees with {other}.")
    words = f"The clock is {abs(offset_s):,.0f} s {'ahead of' if offset_s > 0 else 'behind'} {other}."
    if abs(offset_s) > FAR_S:
        return problem("clock", words, f"{_ADVICE} Certificates and signed requests fail meanwhile.")
    return warning("clock", words, _ADVICE)
