"""Reads an uploaded CSV file: its encoding, delimiter, header, rows and column of numbers.

A file is text with a row on each line, as spreadsheets save it when asked for CSV: in one of a few encodings,
with commas, semicolons or tabs, with a header or without one. Which of these it is, is found by looking; a
file that could be read in two ways is refused where the wrong reading would send wrong messages.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from msgspec import Struct

from tumira.core.translation import _
from tumira.uploads.file_kinds import refuse_kind

BYTES_MAX: Final = 10 * 1024 * 1024
ROWS_MAX: Final = 10_000
COLUMNS_MAX: Final = 50
CELL_MAX: Final = 2_000

# The names of the column with the numbers, the first that is there counting.
NUMBER_NAMES: Final = ("to", "phone", "number", "mobile", "cell", "msisdn")

DELIMITERS: Final = (",", ";", "\t")

# Every cell as long as allowed, every character of it a quote and so written twice, between quotes.
_RECORD_MAX: Final = COLUMNS_MAX * (2 * CELL_MAX + len('"",'))
# How many rows are looked at to find the delimiter, and to tell a header.
HEADER_SAMPLE: Final = 20
# Blank rows are passed over, but not without end; and nobody needs to know how many millions are too many.
LINES_MAX: Final = 10 * ROWS_MAX
_COUNTED_MAX: Final = 1_000_000
# Short files are looked at whole, to tell UTF-16 from other text with NULs.
_BYTES_LOOKED_AT: Final = 4096

_BYTE_ORDER_MARKS: Final = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# Bytes that are one character in UTF-8, and in Windows-1252 nothing that anybody writes: accented letters,
# typographic marks, emoji. Others are left out: É before a closing quote is a character of UTF-8 too.
_PLAINLY_UTF_8: Final = re.compile(
    rb"\xc3[\x80-\xbf]|\xe2[\x80-\xbf]{2}|\xef[\xbb-\xbf][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
)
_LINE_END: Final = re.compile(rb"\r\n?|\n")
_TEXT_LINE_END: Final = re.compile(r"\r\n?|\n")
# Not what Python calls a line: a cell may well hold a form feed or U+2028.
_LINE: Final = re.compile(rf"[^\r\n]{{1,{_RECORD_MAX}}}(?:\r\n?|\n)?|\r\n?|\n")
# A row has to have more than blanks and delimiters, whichever of them is the one of the file.
_FILLED: Final = re.compile(r"[^\s,;]")
_FILLED_LINE: Final = re.compile(r"[^\s,;][^\r\n]*")
# Excel writes the delimiter into a first line that it does not show as a row.
_NAMED_DELIMITER: Final = re.compile(r'"?sep=([,;\t])"?[,;\t]*(?:\r\n?|\n)', re.IGNORECASE)
_BLANKS: Final = "\t\n\r ,;"
_OWN_APOSTROPHE: Final = re.compile(r"\s*'(?=\s*[+0-9])")
_NUMBER: Final = re.compile(r"\s*(?:'\s*)?\+?[0-9](?:[\s().\u2010-\u2015\-]{0,3}[0-9]){6,16}\s*")


class CsvError(ValueError):
    """A file cannot be used; the words say what to do."""


class CsvRow(Struct, frozen=True):
    """A row, as many cells as there are columns; `line` counts as a spreadsheet does, blank rows too."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A file that was read. Its columns have different names, whatever the case of their letters."""

    columns: tuple[str, ...]
    rows: Sequence[CsvRow]
    number_column: int


def read_csv(data: bytes) -> CsvFile:
    """Read a file; a CsvError says what is wrong with it."""
    if len(data) > BYTES_MAX:
        raise too_many_bytes()
    text = _without_blank_end(_decode(data))
    named = _NAMED_DELIMITER.match(text)
    start = named.end() if named else 0
    delimiter = named[1] if named else _find_delimiter(text)
    rows = _read_rows(text, start, delimiter)
    if not rows:
        raise CsvError(_("The file is empty. Choose a file with one row per recipient."))
    return _lay_out(rows)


def can_be_number(cell: str) -> bool:
    """Tell whether a cell looks like a phone number, of whatever country."""
    return _NUMBER.fullmatch(cell) is not None


def name_key(name: str) -> str:
    """Return a key that is equal for column names that look the same to a person."""
    return " ".join(name.split()).casefold()


def find_number_column(columns: Sequence[str]) -> int:
    """Return the place of the column with the numbers: the first one with such a name, or else the first."""
    keys = [name_key(column) for column in columns]
    return next((keys.index(name) for name in NUMBER_NAMES if name in keys), 0)


def _decode(data: bytes) -> str:
    if problem := refuse_kind(data):
        raise CsvError(problem)
    encoding = _find_encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding.startswith("utf-16"):
            raise CsvError(_("The file is damaged or incomplete. Save it again as CSV UTF-8.")) from None
        # Damaged, or joined from files in different encodings.
        line = len(_LINE_END.findall(data, 0, error.start)) + 1
        said = _("Line {line} has characters that cannot be read. Check that line, and save as CSV UTF-8.")
        raise CsvError(said.format(line=f"{line:,}")) from None
    if "\0" in text:
        said = _("This is not a CSV file. Open it in your spreadsheet program and save it as .xlsx or CSV.")
        raise CsvError(said)
    return text.lstrip("\ufeff")


def _find_encoding(data: bytes) -> str:
    for beginning, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(beginning):
            return encoding
    # UTF-16 without a mark is told by its NULs: in Latin text nearly every second byte is one.
    sample = data[:_BYTES_LOOKED_AT]
    first, second = sample[::2].count(0), sample[1::2].count(0)
    plenty = len(sample) // 4
    if second > plenty and first <= second // 10:
        return "utf-16-le"
    if first > plenty and second <= first // 10:
        return "utf-16-be"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        # From an older program on Windows, or Latin-1, a subset of its encoding.
        return "utf-8" if _PLAINLY_UTF_8.search(data) else "windows-1252"
    return "utf-8"


class _Lines:
    """The lines of a text from a given place, until a record exceeds the maximum length."""

    def __init__(self, text: str, start: int = 0) -> None:
        self.end = start
        self.in_record = 0
        self.too_long = False
        self._found: Final = _LINE.finditer(text, start)
        self._length: Final = len(text)
        self._record_start = start

    def __iter__(self) -> Iterator[str]:
        for found in self._found:
            self.end = found.end()
            self.in_record += 1
            # Looked at before it is copied or parsed: what is too long may be the whole file.
            if self.end - self._record_start >= _RECORD_MAX and self.end < self._length:
                self.too_long = True
                return
            yield found[0]

    def end_record(self) -> None:
        self._record_start = self.end
        self.in_record = 0


def _records(lines: _Lines, delimiter: str) -> Iterator[list[str]]:
    """Yield the records of a text, blank ones too; `csv.Error` where quotes are wrong."""
    for record in csv.reader(lines, delimiter=delimiter, strict=True):
        lines.end_record()
        yield record


def _without_blank_end(text: str) -> str:
    """Remove blank rows at the end: a spreadsheet may save a million of them."""
    filled = len(text.rstrip(_BLANKS))
    line_end = _TEXT_LINE_END.search(text, filled)
    return text[: line_end.end()] if line_end else text


def _is_blank(cells: Sequence[str]) -> bool:
    return _FILLED.search("".join(cells)) is None


def _find_delimiter(text: str) -> str:
    """Return the delimiter that makes the first rows most alike; the comma if there is none at all."""
    # Blank rows say nothing, and a file may begin with more of them than are looked at.
    filled = _FILLED.search(text)
    place = filled.start() if filled else 0
    start = max(text.rfind("\n", 0, place), text.rfind("\r", 0, place)) + 1
    return max(DELIMITERS, key=lambda delimiter: _likeness(text, start, delimiter))


def _likeness(text: str, start: int, delimiter: str) -> tuple[float, int, int]:
    """Return what part of the first rows is equally wide, how many numbers are in them, and how wide."""
    sample: list[list[str]] = []
    wrong = 0
    try:
        sample.extend(islice(_records(_Lines(text, start), delimiter), HEADER_SAMPLE))
    except csv.Error:
        # Quotes that are wrong with one delimiter may be right with another.
        wrong = 1
    filled = [cells for cells in sample if not _is_blank(cells)]
    widths = Counter(len(cells) for cells in filled if len(cells) > 1)
    if not widths:
        return (0.0, 0, 0)
    width, alike = max(widths.items(), key=lambda item: (item[1], item[0]))
    numbers = sum(can_be_number(cell) for cells in filled for cell in cells[:COLUMNS_MAX])
    return (alike / (len(filled) + wrong), numbers, width)


def _read_rows(text: str, start: int, delimiter: str) -> Sequence[CsvRow]:
    lines = _Lines(text, start)
    rows: list[CsvRow] = []
    line = 0
    try:
        for line, cells in enumerate(_records(lines, delimiter), 1):
            if line > LINES_MAX:
                raise too_many_lines()
            if _is_blank(cells):
                continue
            check_row(line, cells)
            rows.append(CsvRow(line, tuple(cells)))
            # One more than allowed may be the header.
            if len(rows) > ROWS_MAX + 1:
                raise too_many_rows(rows, _count_rows(text, lines.end, delimiter))
    except csv.Error as error:
        raise _unreadable(line + 1, lines, error) from None
    if lines.too_long:
        raise _unreadable(line + 1, lines, None)
    return rows


def too_many_bytes() -> CsvError:
    said = _("The file is larger than {most} MB. Split it, or remove columns.")
    return CsvError(said.format(most=BYTES_MAX // 1024 // 1024))


def too_many_lines() -> CsvError:
    said = _("The file has more than {most} rows, most of them blank. Remove the blank rows.")
    return CsvError(said.format(most=f"{LINES_MAX:,}"))


def too_many_columns(line: int, count: int) -> CsvError:
    said = _("Row {line} has {count} columns. Reduce them to at most {most}.")
    return CsvError(said.format(line=f"{line:,}", count=f"{count:,}", most=COLUMNS_MAX))


def check_row(line: int, cells: Sequence[str]) -> None:
    """Refuse a row that is too wide, or has too long a cell."""
    if len(cells) > COLUMNS_MAX:
        raise too_many_columns(line, len(cells))
    if max(map(len, cells)) <= CELL_MAX:
        return
    column = next(place for place, cell in enumerate(cells, 1) if len(cell) > CELL_MAX)
    length = len(cells[column - 1])
    # What a quote that is not closed swallows ends at the next quote, if there is one.
    broken = "\n" in cells[column - 1] or "\r" in cells[column - 1]
    said = _("Row {line} has {length} characters in column {column}; the limit is {most}.").format(
        line=f"{line:,}", length=f"{length:,}", column=column, most=f"{CELL_MAX:,}"
    )
    raise CsvError(f"{said} {_('Look for a missing closing quote.') if broken else _('Shorten it.')}")


def _unreadable(line: int, lines: _Lines, error: csv.Error | None) -> CsvError:
    # A cell that is longer than the csv module takes is no matter of quotes, unless it runs over lines.
    if lines.in_record <= 1 and (error is None or "field limit" in str(error)):
        said = _("Row {line} is too long. Choose a table with one row per recipient.")
    else:
        said = _(
            "Row {line} has a missing closing quote, or text after one. Put quotes around the whole cell, "
            'and write a quote inside it twice: "".'
        )
    return CsvError(said.format(line=f"{line:,}"))


def _count_rows(text: str, start: int, delimiter: str) -> int:
    """Count the rows from here on, for the message alone: quotes that are wrong there do not matter."""
    if text.find('"', start) < 0:
        return sum(1 for _ in islice(_FILLED_LINE.finditer(text, start), _COUNTED_MAX))
    count = 0
    with suppress(csv.Error):
        for cells in islice(_records(_Lines(text, start), delimiter), _COUNTED_MAX):
            count += not _is_blank(cells)
    return count


def too_many_rows(rows: Sequence[CsvRow], more: int) -> CsvError:
    """Say how many rows a file has: the first ones, of which one may be the header, and `more`."""
    count = len(rows) + more - _has_header(rows)
    most = _("more than {count}").format(count=f"{_COUNTED_MAX:,}")
    written = f"{count:,}" if count < _COUNTED_MAX else most
    said = _("The file has {count} rows; the limit is {most}. Split it and upload the parts.")
    return CsvError(said.format(count=written, most=f"{ROWS_MAX:,}"))


def _has_header(rows: Sequence[CsvRow]) -> bool:
    """Tell a header: it names the numbers, or has none where rows below it have one."""
    # A recipient must not be lost because the column beside the number says `to`.
    if any(map(can_be_number, rows[0].cells)):
        return False
    if not {name_key(cell) for cell in rows[0].cells}.isdisjoint(NUMBER_NAMES):
        return True
    return any(can_be_number(cell) for row in rows[1 : 1 + HEADER_SAMPLE] for cell in row.cells)


def _count_titles(rows: Sequence[CsvRow]) -> int:
    """Count the rows above a header that names the numbers: titles, which have fewer cells than it has."""
    filled: list[int] = []
    for row in rows[:HEADER_SAMPLE]:
        if any(map(can_be_number, row.cells)):
            break
        count = sum(1 for cell in row.cells if cell.strip())
        if not {name_key(cell) for cell in row.cells}.isdisjoint(NUMBER_NAMES):
            return len(filled) if all(one < count for one in filled) else 0
        filled.append(count)
    return 0


def _lay_out(rows: Sequence[CsvRow]) -> CsvFile:
    """Name the columns, find the one with the numbers, and give all rows the same width."""
    rows = rows[_count_titles(rows) :]
    has_header = _has_header(rows)
    header = rows[0].cells if has_header else ()
    body = rows[1:] if has_header else rows
    if not body:
        raise CsvError(_("The file has only a header. Add one row per recipient."))
    if len(body) > ROWS_MAX:
        raise too_many_rows(rows, 0)
    width = max(len(row.cells) for row in chain((rows[0],), body))
    number_column = find_number_column(header)
    return CsvFile(
        _name_columns(header, width), [_fit(row, width, number_column) for row in body], number_column
    )


def _name_columns(header: Sequence[str], width: int) -> tuple[str, ...]:
    """Name each column by its header, or by its place if that is blank or was there before."""
    names: dict[str, str] = {}
    given = {name_key(name) for name in header}
    for place in range(width):
        name = " ".join(header[place].split()) if place < len(header) else ""
        if not name or name_key(name) in names:
            name = f"column{place + 1}"
            while name_key(name) in given or name_key(name) in names:
                name += "_"
        names[name_key(name)] = name
    return tuple(names.values())


def _fit(row: CsvRow, width: int, number_column: int) -> CsvRow:
    cells = row.cells
    if len(cells) < width:
        cells += ("",) * (width - len(cells))
    # A spreadsheet would calculate `+263 …`, so our own downloads have an apostrophe before it.
    if "'" in cells[number_column] and (own := _OWN_APOSTROPHE.match(cells[number_column])):
        number = cells[number_column][own.end() :]
        cells = (*cells[:number_column], number, *cells[number_column + 1 :])
    return row if cells is row.cells else CsvRow(row.line, cells)
