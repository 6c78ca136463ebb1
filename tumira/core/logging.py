"""Log lines as JSON, without personal data or secrets."""

import logging
import re
import sys
import traceback
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final

import asyncpg
import structlog

from tumira.core import metrics

# Enough to tell networks apart, and numbers that failed; not enough to call anybody.
_HEAD: Final = 5
_TAIL: Final = 3
# With a plus, or as carriers write it, without; digits beside letters are those of an id.
_NUMBER: Final = re.compile(r"\+[0-9]{7,15}|(?<![\w.])[0-9]{10,15}(?!\w)")
# What Python and PostgreSQL put between quotes is a value, unless it is the plain name of a column or so.
# One that is not closed was cut off. An apostrophe inside of a word is none.
_QUOTED: Final = re.compile(
    r"(?<!\w)(?P<prefix>b?)(?:'(?:[^'\\]|\\.)*(?:'|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z))", re.DOTALL
)
_NAME: Final = re.compile(r'"[a-z_][a-z0-9_]{0,62}"')
# An error as Python writes it, whose arguments are its words, and those whose arguments are values.
_WRITTEN: Final = re.compile(r"(?P<type>[\w.]+)\((?P<words>.*)\)", re.DOTALL)
_OF_VALUES: Final = frozenset({"KeyError", "UnicodeDecodeError", "UnicodeEncodeError"})
_LEFT_OUT: Final = "…"


def mask_numbers(text: str) -> str:
    """Return a text with the middle of every phone number hidden: `+26377•••567`."""
    return _NUMBER.sub(_mask_number, text)


def _mask_number(found: "re.Match[str]") -> str:
    number = found[0]
    plus = "+" if number.startswith("+") else ""
    digits = number.removeprefix("+")
    head, tail = (_HEAD, _TAIL) if len(digits) > _HEAD + _TAIL else (2, 2)
    return f"{plus}{digits[:head]}•••{digits[-tail:]}"


def without_quotes(text: str) -> str:
    """Return an error's text without quoted values; names of columns and the like stay."""
    return mask_numbers(_QUOTED.sub(_leave_out, text))


def _leave_out(found: "re.Match[str]") -> str:
    quoted = found[0]
    return quoted if _NAME.fullmatch(quoted) else _emptied(found)


def _emptied(found: "re.Match[str]") -> str:
    mark = found[0][len(found["prefix"])]
    return found["prefix"] + mark + _LEFT_OUT + mark


def masked_error(written: str) -> str:
    """Return an error as `repr` writes it, without quoted values."""
    shape = _WRITTEN.fullmatch(written)
    if shape is None:
        return without_quotes(written)
    if shape["type"] in _OF_VALUES:
        return f"{shape['type']}({_LEFT_OUT})"
    return f"{shape['type']}({_QUOTED.sub(_shorten, shape['words'])})"


def _shorten(found: "re.Match[str]") -> str:
    """Return one argument of an error, which is a sentence, without quoted values."""
    is_value = found["prefix"] or found.string[max(0, found.start() - 1) : found.start()] == "="
    quoted = found[0]
    if is_value or len(quoted) == 1 or quoted[-1] != quoted[0]:
        return _emptied(found)
    words = quoted[1:-1].replace("\\'", "'").replace('\\"', '"')
    return quoted[0] + without_quotes(words) + quoted[-1]


ERRORS_MAX: Final = 10
FRAMES_MAX: Final = 60
DEPTH_MAX: Final = 4
# PostgreSQL's class of errors about values: whatever they say may be a value.
_VALUES: Final = "22"

Event = MutableMapping[str, Any]


def configure(level: int) -> None:
    """Write all log lines from this level on to standard error."""
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
    """Write where an error came from, and its text without quoted values."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        event["exception"] = describe(error)
    if isinstance(event.get("error"), str):
        event["error"] = masked_error(event["error"])
    return event


def describe(error: BaseException) -> str:
    """Return an error with its causes, each with the place where it was raised."""
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
    """Writes the log lines of libraries as ours, with the library's name."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # A library's sentence may hold values between its words, so only its pattern is written.
        event = {"event": without_quotes(str(record.msg)), "logger": record.name}
        log = structlog.get_logger()
        write = log.error if record.levelno >= logging.ERROR else log.warning
        with suppress(Exception):
            write(**event, **({} if error is None else {"exc_info": error}))


class _Lines:
    """Writes log lines to standard error; a line that cannot be written is dropped."""

    def __init__(self, *_arguments: object) -> None:
        pass

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - this is the log

    debug = info = warning = error = critical = msg
