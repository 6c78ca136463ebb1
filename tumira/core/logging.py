"""How is a log line written? As JSON, with numbers masked and without what errors quote, and counted.

Lines of libraries, which use Python's own logging, are written in the same way.
"""

import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final

import asyncpg
import structlog

from tumira.core import metrics
from tumira.core.masking import mask_numbers, masked_error, without_quotes

ERRORS_MAX: Final = 10
FRAMES_MAX: Final = 60
DEPTH_MAX: Final = 4
# PostgreSQL's class of errors about values: whatever they say may be a value.
_VALUES: Final = "22"

Event = MutableMapping[str, Any]


def configure(level: int) -> None:
    """Have all log lines from this level on written to standard error."""
    # Addresses of providers hold keys, and one of them a voucher's PIN.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _Libraries)]:
        root.removeHandler(handler)
    # From their warnings on: what libraries say for their own debugging names whole requests.
    root.addHandler(_Libraries(max(level, logging.WARNING)))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _count,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _write_error,
            _mask,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_Lines,
        cache_logger_on_first_use=True,
    )


def _count(_logger: object, _method: str, event: Event) -> Event:
    metrics.LOG_LINES.labels(event["level"]).inc()
    return event


def _write_error(_logger: object, _method: str, event: Event) -> Event:
    """Write where an error came from, and what it says without what it quotes."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        event["exception"] = describe(error)
    if isinstance(event.get("error"), str):
        event["error"] = masked_error(event["error"])
    return event


def describe(error: BaseException) -> str:
    """Return an error with those that led to it, each with where it was raised."""
    parts: list[str] = []
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting and len(parts) < ERRORS_MAX:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        frames = traceback.format_list(traceback.extract_tb(one.__traceback__, limit=-FRAMES_MAX))
        parts.append("".join(frames) + _words(one))
        before = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        waiting.extend(reversed(one.exceptions) if isinstance(one, BaseExceptionGroup) else ())
        if before is not None:
            waiting.append(before)
    return "\nFollowed on, or came with:\n".join(parts)


def _words(error: BaseException) -> str:
    name = type(error).__qualname__
    if isinstance(error, asyncpg.PostgresError):
        # Its detail quotes the row that was refused, so that only the first line is of use.
        state = str(error.sqlstate)
        says = "a value was refused" if state.startswith(_VALUES) else without_quotes(str(error.args[0]))
        return f"{name} ({state}): {says}"
    if isinstance(error, KeyError):
        return name
    return f"{name}: {without_quotes(str(error))}"


def _mask(_logger: object, _method: str, event: Event) -> Event:
    return {key: _masked(value, DEPTH_MAX) for key, value in event.items()}


def _masked(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return mask_numbers(value)
    if value is None or isinstance(value, int | float):
        return value
    if depth and isinstance(value, Mapping):
        return {str(key): _masked(one, depth - 1) for key, one in value.items()}
    if depth and isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_masked(one, depth - 1) for one in value]
    return mask_numbers(str(value))


class _Libraries(logging.Handler):
    """Takes the lines of libraries; each is a line of ours, with the library's name."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # A library's sentence may hold values between its words, so only its pattern is written.
        event = {"event": without_quotes(str(record.msg)), "logger": record.name}
        log = structlog.get_logger()
        write = log.error if record.levelno >= logging.ERROR else log.warning
        with suppress(Exception):
            write(**event, **({} if error is None else {"exc_info": error}))


class _Lines:
    """Writes log lines to standard error; a line that cannot be written is dropped, and work goes on."""

    def __init__(self, *_arguments: object) -> None:
        pass

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - this is the log

    debug = info = warning = error = critical = msg
