"""Dates and times of a workbook, written as their number format shows them."""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from msgspec import Struct

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

# What a spreadsheet shows instead of a day that it has not.
NO_DATE: Final = "########"
# The days from the first of 1900 to that of 1904, from which some workbooks count.
DAYS_TO_1904: Final = 1462
_DAY_S: Final = 86_400
_LAST_DAY: Final = 2_958_465
# Spreadsheets have a 29 February in 1900, and count the days before it from another day.
_LEAP_DAY: Final = 60
_FRACTION_MAX: Final = 3
_HALF_DAY_H: Final = 12
_TWO: Final = 2
_SHORT: Final = 3
_LETTER: Final = 5

_TIME: Final = re.compile(r"y+|m+|d+|h+|s+|\[h+\]|\[m+\]|\[s+\]|am/pm|a/p|\.0+|e+", re.IGNORECASE)


class Token(Struct, frozen=True):
    """A piece of a number format: a literal text, or a code that stands for a part of the value."""

    text: str
    is_literal: bool = False


class _Moment(Struct, frozen=True):
    """A day with its time, `days` counted as a spreadsheet does."""

    days: int
    seconds: Decimal
    year: int
    month: int
    day: int


def is_date_code(code: str) -> bool:
    """Tell whether a code of a number format stands for a part of a date or time."""
    return code[:1].lower() in {"y", "m", "d", "h", "s"} or code[:2].lower() in {"[h", "[m", "[s"}


class DateSection:
    """The codes of a section that stand for a date or time."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        codes = [
            None if one.is_literal or not _TIME.fullmatch(one.text) else one.text.lower() for one in tokens
        ]
        places = max((len(code) - 1 for code in codes if code and code.startswith(".")), default=0)
        self._places = min(places, _FRACTION_MAX)
        self._has_halves = any(code in {"am/pm", "a/p"} for code in codes)
        minutes = {
            place for place, code in enumerate(codes) if code in {"m", "mm"} and _is_minute(codes, place)
        }
        # A text, or the code and whether it stands for minutes.
        self._pieces = [
            (token.text, code, place in minutes)
            for place, (token, code) in enumerate(zip(tokens, codes, strict=True))
        ]

    def write(self, serial: Decimal) -> str:
        """Write a count of days since 1900."""
        moment = _read(serial, self._places)
        if moment is None:
            return NO_DATE
        written = []
        for text, code, is_minute in self._pieces:
            if code is None:
                written.append(text)
            elif is_minute:
                written.append(f"{int(moment.seconds // 60 % 60):0{len(code)}}")
            elif code[0] in "ymde":
                written.append(_write_day(moment, code))
            else:
                written.append(_write_time(moment, code, has_halves=self._has_halves))
        return "".join(written)


def _read(serial: Decimal, places: int) -> _Moment | None:
    """Split a count of days, rounded as far as it is shown."""
    if not 0 <= serial <= _LAST_DAY:
        return None
    seconds = (serial * _DAY_S).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    days = int(seconds // _DAY_S)
    left = seconds - days * _DAY_S
    if days in {0, _LEAP_DAY}:
        return _Moment(days, left, 1900, 2 if days else 1, 29 if days else 0)
    day = date(1899, 12, 31 if days < _LEAP_DAY else 30) + timedelta(days)
    return _Moment(days, left, day.year, day.month, day.day)


def _is_minute(codes: Sequence[str | None], place: int) -> bool:
    """Tell minutes from months: they stand behind hours or before seconds."""
    before = next((code for code in reversed(codes[:place]) if code), "")
    after = next((code for code in codes[place + 1 :] if code), "")
    return before.startswith(("h", "[h")) or after.startswith(("s", "[s"))


def _write_day(moment: _Moment, code: str) -> str:
    size = len(code)
    if code[0] in "ye":
        return f"{moment.year % 100:02}" if code[0] == "y" and size <= _TWO else f"{moment.year:04}"
    number = moment.month if code[0] == "m" else moment.day
    if size <= _TWO:
        return f"{number:0{size}}"
    name = MONTHS[moment.month - 1] if code[0] == "m" else WEEKDAYS[(moment.days - 1) % 7]
    if size == _SHORT:
        return name[:_SHORT]
    return name[0] if code[0] == "m" and size == _LETTER else name


def _write_time(moment: _Moment, code: str, *, has_halves: bool) -> str:
    seconds = moment.seconds
    hours = int(seconds // 3600)
    if code in {"am/pm", "a/p"}:
        half = "AM" if hours < _HALF_DAY_H else "PM"
        return half if code == "am/pm" else half[0]
    if code.startswith("."):
        shown = f"{seconds % 1:.{_FRACTION_MAX}f}"[1:]
        return f"{shown:0<{len(code)}}"[: len(code)]
    if code.startswith("["):
        unit_s = {"h": 3600, "m": 60, "s": 1}[code[1]]
        return f"{int((moment.days * _DAY_S + seconds) // unit_s):0{len(code) - 2}}"
    if code.startswith("s"):
        return f"{int(seconds % 60):0{min(len(code), _TWO)}}"
    if has_halves:
        hours = hours % _HALF_DAY_H or _HALF_DAY_H
    return f"{hours:0{min(len(code), _TWO)}}"
