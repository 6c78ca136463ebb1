"""Reads ODS workbooks (OpenDocument 1.3): the cells of a sheet as they were shown when it was saved."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tumira.core.translation import _, mark
from tumira.uploads.csv_file import COLUMNS_MAX, CsvError
from tumira.uploads.workbooks.archive import DAMAGED, PASSWORD, TOO_LARGE, Archive
from tumira.uploads.workbooks.number_formats import keep_digits, read_number, write_general
from tumira.uploads.workbooks.sheet import (
    KEPT_MAX,
    NOT_CALCULATED,
    SHEET_NAME_MAX,
    SHEETS_MAX,
    Gathered,
    SheetRow,
)

CONTENT: Final = "content.xml"
_MANIFEST: Final = "META-INF/manifest.xml"
_MACROS: Final = mark("This workbook has macros. Save it without them, as .ods or CSV.")
# Lists of macros, which also stand there when there are none.
_MACRO_LISTS: Final = ("script-lb.xml", "script-lc.xml", "/")

_OFFICE: Final = "urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE: Final = "urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_STYLE: Final = "urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_TEXT: Final = "urn:oasis:names:tc:opendocument:xmlns:text:1.0}"

# Elements that are part of the text of a cell; notes, pictures and tables in a cell are not.
_INLINE: Final = frozenset({"span", "a", "ruby", "ruby-base", "s", "tab", "line-break", "date", "time"})
# What stands beside the sheets, or before their rows, and has rows or texts of its own.
_BESIDE: Final = frozenset({"shapes", "dde-links", "tracked-changes", "forms"})
_NUMBERS: Final = frozenset({"float", "currency", "percentage"})
_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:T([0-9]{2}:[0-9]{2}).*)?")
_DURATION: Final = re.compile(r"PT([0-9]{1,6})H([0-9]{1,2})M([0-9]{1,2})(?:[.,][0-9]*)?S")
_COUNT_DIGITS_MAX: Final = 9


class _Manifest:
    def start(self, name: str, _attributes: Mapping[str, str]) -> None:
        if name == "encryption-data":
            raise CsvError(_(PASSWORD))

    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


class _Content:
    """Collects the rows of one sheet, or the names of the sheets that have rows."""

    def __init__(self, sheet: str | None) -> None:
        self.rows: list[SheetRow] = []
        self.filled: list[str] = []
        self.is_over = False
        self._wanted = sheet
        self._hidden_styles: set[str] = set()
        self._style = ""
        self._sheets = 0
        # The sheet, row and cell that are being read.
        self._sheet: str | None = None
        self._line = 0
        self._repeats = 1
        self._is_hidden = False
        self._cells: dict[int, str] = {}
        self._column = 0
        self._cell: Mapping[str, str] | None = None
        self._is_covered = False
        self._paragraphs = 0
        self._text = Gathered()
        self._is_in_paragraph = False
        self._ends_blank = True
        # How many elements deep we are in something that is passed over.
        self._passed = 0

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._passed or name in _BESIDE:
            self._passed += 1
        elif self._cell is not None:
            self._start_in_cell(name, attributes)
        elif name in {"table-cell", "covered-table-cell"} and self._sheet is not None:
            self._cell = attributes
            self._is_covered = name == "covered-table-cell"
            self._paragraphs = 0
        elif name == "table-row":
            self._repeats = _count(attributes.get(_TABLE + "number-rows-repeated", "1"))
            self._is_hidden = attributes.get(_TABLE + "visibility", "visible") != "visible"
            self._cells = {}
            self._column = 0
        elif name == "table":
            self._begin_sheet(attributes)
        elif name == "style":
            self._style = attributes.get(_STYLE + "name", "")
        elif name == "table-properties" and attributes.get(_TABLE + "display") == "false":
            self._hidden_styles.add(self._style)

    def _begin_sheet(self, attributes: Mapping[str, str]) -> None:
        self._sheets += 1
        if self._sheets > SHEETS_MAX:
            raise CsvError(_(TOO_LARGE))
        name = attributes.get(_TABLE + "name", "")[:SHEET_NAME_MAX]
        is_hidden = attributes.get(_TABLE + "style-name") in self._hidden_styles
        self._sheet = None if is_hidden or self._wanted not in {None, name} else name
        self._line = 0

    def _start_in_cell(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "p":
            self._is_in_paragraph = self._ends_blank = True
            if self._paragraphs:
                self._text.add("\n")
            self._paragraphs += 1
        elif name not in _INLINE or not self._is_in_paragraph:
            self._passed = 1
        elif name == "s":
            self._text.add(" " * min(_count(attributes.get(_TEXT + "c", "1")), KEPT_MAX))
            self._ends_blank = False
        elif name in {"tab", "line-break"}:
            self._text.add("\t" if name == "tab" else "\n")
            self._ends_blank = False

    def end(self, name: str) -> None:
        if self._passed:
            self._passed -= 1
        elif name == "p":
            self._is_in_paragraph = False
        elif name in {"table-cell", "covered-table-cell"}:
            self._end_cell()
        elif name == "table-row":
            self._end_row()
        elif name == "table":
            # All that follows the wanted sheet is of no interest.
            self.is_over = self._wanted is not None and self._sheet is not None
            self._sheet = None

    def text(self, text: str) -> None:
        if not self._is_in_paragraph or self._passed:
            return
        text = _BLANKS.sub(" ", text)
        if self._ends_blank and text.startswith(" "):
            text = text[1:]
        if text:
            self._ends_blank = text.endswith(" ")
            self._text.add(text)

    def _end_cell(self) -> None:
        if self._cell is None:
            return
        shown = "" if self._is_covered else _show(self._cell, self._text.take())
        self._text.take()
        count = _count(self._cell.get(_TABLE + "number-columns-repeated", "1"))
        if shown.strip():
            # Beyond the columns that are allowed, the last one is enough to refuse the row.
            last = self._column + count - 1
            self._cells |= dict.fromkeys((*range(self._column, min(last, COLUMNS_MAX)), last), shown)
        self._column += count
        self._cell = None

    def _end_row(self) -> None:
        if self._cells and self._sheet is not None:
            if self._wanted is None:
                self.filled.append(self._sheet)
                self._sheet = None
            else:
                self.rows.append(SheetRow(self._line + 1, self._cells, self._is_hidden, self._repeats))
        self._line += self._repeats


class OdsWorkbook:
    def __init__(self, archive: Archive) -> None:
        names = archive.names()
        if any(one.startswith(("basic/", "scripts/")) and not one.endswith(_MACRO_LISTS) for one in names):
            raise CsvError(_(_MACROS))
        if _MANIFEST.lower() in names:
            archive.parse_whole(_MANIFEST, _Manifest())
        self._archive = archive

    def list_filled(self) -> Sequence[str]:
        handler = _Content(None)
        self._archive.parse_whole(CONTENT, handler)
        return handler.filled

    def rows(self, sheet: str) -> Iterator[SheetRow]:
        handler = _Content(sheet)
        for _piece in self._archive.parse(CONTENT, handler):
            yield from handler.rows
            handler.rows.clear()
            if handler.is_over:
                return


def _show(cell: Mapping[str, str], text: str) -> str:
    """Return what a cell shows, or its value if it was saved without its text."""
    kind = cell.get(_OFFICE + "value-type", "")
    if kind in _NUMBERS:
        value = read_number(cell.get(_OFFICE + "value", ""))
        if value is None:
            return text
        if text:
            return keep_digits(text, value)
        return f"{write_general(value * 100)}%" if kind == "percentage" else write_general(value)
    if text:
        return text
    match kind:
        case "date":
            return _write_date(cell.get(_OFFICE + "date-value", ""))
        case "time":
            return _write_time(cell.get(_OFFICE + "time-value", ""))
        case "boolean":
            return cell.get(_OFFICE + "boolean-value", "").upper()
        case "string":
            return cell.get(_OFFICE + "string-value", "")[:KEPT_MAX]
    return NOT_CALCULATED if _TABLE + "formula" in cell else ""


def _write_date(text: str) -> str:
    found = _DATE.fullmatch(text)
    if found is None:
        return text[:KEPT_MAX]
    year, month, day, time = found.groups()
    return f"{day}/{month}/{year} {time}" if time and time != "00:00" else f"{day}/{month}/{year}"


def _write_time(text: str) -> str:
    found = _DURATION.fullmatch(text)
    return ":".join(one.zfill(2) for one in found.groups()) if found else text[:KEPT_MAX]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _COUNT_DIGITS_MAX):
        raise CsvError(_(DAMAGED))
    return max(int(text), 1)
