"""Background loops: a step that runs again and again, and the log lines of its failures."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NoReturn

import structlog

from tumira.core.database_errors import is_unavailable
from tumira.core.errors import OperatorError

# A failure that lasts is logged at its beginning and then at this interval.
REMINDER_S: Final = 600.0
# A loop that failed waits this long, then twice as long and so on, but never less than between two steps.
RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 2.0
# Two to this power is more than any wait.
_DOUBLINGS_MAX: Final = 20

# `log_failure` repeats the same line at most this often.
REPEAT_S: Final = 10.0
# Far more than the loops, binds and endpoints of one worker that fail within ten seconds.
_KNOWN_MAX: Final = 1_000

_log: Final = structlog.get_logger()
_logged_at: Final[dict[tuple[str, ...], float]] = {}

# Returns the seconds until the next step, or None for the usual interval.
Step = Callable[[], Awaitable[float | None]]


async def forever(
    name: str,
    step: Step,
    every_s: float,
    *,
    retry_max_s: float = RETRY_MAX_S,
    wake: asyncio.Event | None = None,
    **fields: str,
) -> NoReturn:
    """Run a step every `every_s` seconds until cancelled, which is how a process shuts down.

    `name` is a verb with its object: a failure is logged as "could not <name>", once per outage. A step that
    has more to do returns 0. Setting `wake` ends a pause early, also one after a failure.
    """
    outage = _Outage(name, fields)
    while True:
        try:
            asked_s = await step()
        except Exception as error:  # noqa: BLE001 - a background loop outlives every failure of its step
            outage.failed(error)
            pause_s = outage.pause_s(every_s, retry_max_s)
        else:
            outage.ended()
            pause_s = every_s if asked_s is None else asked_s
        await _pause(pause_s, wake)


async def _pause(pause_s: float, wake: asyncio.Event | None) -> None:
    if wake is None:
        await asyncio.sleep(pause_s)
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(pause_s):
            await wake.wait()
    wake.clear()


class _Outage:
    """Failures of one loop in a row: what was logged of them, and how long the next attempt waits."""

    def __init__(self, name: str, fields: dict[str, str]) -> None:
        self._name = name
        self._fields = fields
        self._failures = 0
        self._logged: type[BaseException] | None = None
        self._logged_at = 0.0

    def failed(self, error: Exception) -> None:
        self._failures += 1
        now = time.monotonic()
        if type(error) is self._logged and now - self._logged_at < REMINDER_S:
            return
        self._logged, self._logged_at = type(error), now
        _write(f"could not {self._name}", error, self._fields)

    def ended(self) -> None:
        if self._failures:
            _log.info("works again", loop=self._name, failures=self._failures, **self._fields)
        self._failures = 0
        self._logged = None

    def pause_s(self, every_s: float, retry_max_s: float) -> float:
        doubled_s = RETRY_FIRST_S * 2.0 ** min(self._failures - 1, _DOUBLINGS_MAX)
        return max(every_s, min(retry_max_s, doubled_s))


def log_failure(message: str, error: Exception, **fields: str) -> None:
    """Log a failure outside `forever`.

    For a database that is away at most every ten seconds, without a trace.
    """
    if is_unavailable(error):
        say_unavailable(message, error, **fields)
    else:
        _write(message, error, fields)


def say_unavailable(message: str, error: BaseException, **fields: str) -> None:
    """Log that something waits for the database; the same line with the same fields every ten seconds."""
    now = time.monotonic()
    key = (message, *fields.values())
    if now - _logged_at.get(key, -REPEAT_S) < REPEAT_S:
        return
    if len(_logged_at) >= _KNOWN_MAX:
        _logged_at.clear()
    _logged_at[key] = now
    _log.warning(message, error=repr(error), **fields)


def _write(message: str, error: Exception, fields: dict[str, str]) -> None:
    if isinstance(error, OperatorError):
        _log.error(message, problem=str(error), **fields)
    elif is_unavailable(error):
        _log.warning(message, error=repr(error), **fields)
    else:
        _log.error(message, exc_info=error, **fields)
