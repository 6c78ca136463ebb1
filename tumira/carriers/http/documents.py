"""What providers send: documents parsed within bounds, and read by plain paths."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import parse_qsl

BODY_MAX: Final = 256 * 1024
FIELDS_MAX: Final = 256
STEPS_MAX: Final = 8
PATHS_MAX: Final = 4
TEXT_MAX: Final = 255

_STEP: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_AMOUNT: Final = re.compile(r"(?:([A-Za-z]{3}) ?)?(-?[0-9]{1,12}(?:\.[0-9]{1,12})?)(?: ?([A-Za-z]{3}))?")
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
# Times of this many milliseconds are after 1973, and of as many seconds after the year 5000.
_MILLISECONDS_MIN: Final = 100_000_000_000
# What some providers write where they have no id.
_NO_ID: Final = ("", "none", "null")


class DocumentPath:
    """Steps through a document, such as `messages.0.status`; without steps, the document itself.

    `a.b|c` names alternatives, of which the first that is there counts.
    """

    __slots__ = ("alternatives",)

    def __init__(self, text: object) -> None:
        if not isinstance(text, str):
            raise TypeError("a path must be a text such as messages.0.status")
        self.alternatives: Final = tuple(_parse_steps(one) for one in text.split("|"))
        if len(self.alternatives) > PATHS_MAX:
            raise ValueError(f"a path may have at most {PATHS_MAX} alternatives")

    def find(self, document: Any, *, fold: bool = False) -> Any:
        """Return what is at the path, None if there is nothing or a null; `fold` ignores case in names."""
        found = (_walk(document, steps, fold=fold) for steps in self.alternatives)
        return next((value for value in found if value is not None), None)


def _parse_steps(text: str) -> Sequence[str]:
    steps = text.split(".") if text else []
    if len(steps) > STEPS_MAX:
        raise ValueError(f"a path may have at most {STEPS_MAX} steps")
    if not all(_STEP.fullmatch(step) for step in steps):
        raise ValueError(f"{text!r} is no path: write names or places in a list, separated by dots")
    return steps


def _walk(document: Any, steps: Sequence[str], *, fold: bool) -> Any:
    found = document
    for step in steps:
        if isinstance(found, Mapping):
            found = _get(found, step, fold=fold)
        elif isinstance(found, list):
            place = int(step) if _DIGITS.fullmatch(step) else len(found)
            found = found[place] if place < len(found) else None
        else:
            return None
    return found


class DocumentPaths:
    """One path, or a few whose values are read together."""

    __slots__ = ("paths",)

    def __init__(self, written: object) -> None:
        texts = written if isinstance(written, list) else [written]
        if not 1 <= len(texts) <= PATHS_MAX:
            raise ValueError(f"write one path, or a list of at most {PATHS_MAX}")
        self.paths: Final = tuple(DocumentPath(text) for text in texts)

    def texts(self, document: Any, *, fold: bool = False) -> Sequence[str]:
        """Return the values that are there."""
        found = (as_text(path.find(document, fold=fold)) for path in self.paths)
        return [text for text in found if text]


def _get(table: Mapping[str, Any], name: str, *, fold: bool) -> Any:
    if name in table or not fold:
        return table.get(name)
    folded = name.casefold()
    return next((value for key, value in table.items() if key.casefold() == folded), None)


def parse_json(body: bytes) -> Any:
    """Read JSON; None if it is none. Numbers keep their digits."""
    if len(body) > BODY_MAX:
        return None
    try:
        return json.loads(body.decode("utf-8-sig"), parse_float=Decimal, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, InvalidOperation):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def parse_form(text: str) -> Mapping[str, str] | None:
    """Read form fields; None if they are malformed or one comes twice, which could be read in two ways."""
    if len(text) > BODY_MAX:
        return None
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError:
        return None
    return dict(pairs) if len(dict(pairs)) == len(pairs) else None


def parse_text(body: bytes, separator: str) -> Sequence[str] | None:
    """Split a plain text, such as `OK: 12345`, into its fields."""
    if len(body) > BODY_MAX:
        return None
    try:
        text = body.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return None
    fields = text.split(separator, FIELDS_MAX) if separator else [text]
    return [field.strip() for field in fields]


def decode(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def as_text(value: Any) -> str | None:
    """Return a plain value as text; None for nothing, a list or a table."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value.strip()
        case int() | Decimal():
            return str(value)
        case _:
            return None


def as_id(value: Any) -> str | None:
    text = as_text(value)
    if text is None or text.casefold() in _NO_ID or len(text) > TEXT_MAX or not text.isprintable():
        return None
    return text


def as_money(value: Any) -> tuple[Decimal, str] | None:
    """Read an amount with or without its currency, such as `KES 0.8000`."""
    found = _AMOUNT.fullmatch((as_text(value) or "").replace(",", ""))
    return None if found is None else (Decimal(found[2]), (found[1] or found[3] or "").upper())


def as_count(value: Any) -> int | None:
    text = as_text(value) or ""
    return int(text) if _DIGITS.fullmatch(text) else None


def as_time(value: Any) -> datetime | None:
    """Read a time: seconds or milliseconds since 1970, or ISO 8601, in UTC where it names no zone."""
    text = as_text(value) or ""
    try:
        if _DIGITS.fullmatch(text):
            count = int(text)
            return datetime.fromtimestamp(count / 1000 if count >= _MILLISECONDS_MIN else count, UTC)
        read = datetime.fromisoformat(text)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
