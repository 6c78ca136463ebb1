"""Waits between attempts.

The `chance` of each wait is a random number from 0 up to 1. It spreads attempts that failed together.
"""

from typing import Final

# How often a message is tried again after its first try, by why that was needed.
RETRIES_MAX: Final = 3
RETRIES_UNKNOWN_MAX: Final = 1
RESENDS_MAX: Final = 3

_RETRY_WAITS_S: Final = (2.0, 10.0, 60.0)
_RETRY_SPREAD: Final = 0.25
_RECONNECT_WAIT_MAX_S: Final = 60.0
# Two to this power is more than the longest wait; a carrier that is away for days must not make it grow.
_DOUBLINGS_MAX: Final = 6
_RESTART_WAIT_FIRST_S: Final = 0.5
_RESTART_WAIT_MAX_S: Final = 5.0


def retry_wait_s(tries: int, chance: float) -> float:
    """Return how long a message waits after a temporary refusal by a carrier."""
    assert tries >= 1
    assert 0 <= chance < 1
    wait_s = _RETRY_WAITS_S[min(tries, len(_RETRY_WAITS_S)) - 1]
    return wait_s * (1 - _RETRY_SPREAD + 2 * _RETRY_SPREAD * chance)


def reconnect_wait_s(failures: int, chance: float) -> float:
    """Return how long to wait before the next attempt to connect, after failures in a row."""
    assert failures >= 0
    assert 0 <= chance < 1
    if failures == 0:
        return 0.0
    wait_s = min(_RECONNECT_WAIT_MAX_S, 2.0 ** min(failures - 1, _DOUBLINGS_MAX))
    return wait_s * (0.5 + 0.5 * chance)


def restart_wait_s(failures: int) -> float:
    """Return how long to wait before a process is started again, after failures in a row."""
    assert failures >= 1
    if failures == 1:
        return 0.0
    return min(_RESTART_WAIT_MAX_S, _RESTART_WAIT_FIRST_S * 2.0 ** min(failures - 2, _DOUBLINGS_MAX))
