"""Pages of long lists: where one ends, and the cursors in their addresses."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# So many digits of microseconds last for another two hundred years.
_DIGITS_MAX: Final = 16

Row = TypeVar("Row")


def cut(found: Sequence[Row], size: int) -> tuple[Sequence[Row], Row | None]:
    """Return a page of rows of which one more was read, and its last row if more follow."""
    return found[:size], found[size - 1] if len(found) > size else None


def read_number(text: str, most: int, default: int) -> int:
    """Read a row's number; what cannot be one is the default."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return min(int(text), most) if is_number else default


def write_time(at: datetime) -> str:
    """Write a time as exactly as the database keeps it."""
    return str((at - _EPOCH) // _MICROSECOND)


def read_time(text: str) -> datetime | None:
    is_time = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return _EPOCH + int(text) * _MICROSECOND if is_time else None
