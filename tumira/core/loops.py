"""What is said while the database is away? Each loop says it once, then now and then, not at every try."""

import time
from typing import Final

import structlog

AGAIN_S: Final = 10.0
# Far more than there are loops, binds and endpoints of one worker that fail in ten seconds.
KNOWN_MAX: Final = 1_000

_log: Final = structlog.get_logger()
_said_at: Final[dict[tuple[str, ...], float]] = {}


def say_unavailable(words: str, error: BaseException, **facts: str) -> None:
    """Warn that something waits for the database; the same for the same bind or endpoint rarely."""
    now = time.monotonic()
    key = (words, *facts.values())
    if now - _said_at.get(key, -AGAIN_S) < AGAIN_S:
        return
    if len(_said_at) >= KNOWN_MAX:
        _said_at.clear()
    _said_at[key] = now
    _log.warning(words, error=repr(error), **facts)
