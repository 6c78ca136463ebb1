"""Reads XLSX workbooks (ECMA-376): the cells of a sheet as Excel shows them."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from msgspec import Struct

from tumira.core.translation import _, mark
from tumira.uploads.csv_file import CsvError
from tumira.uploads.workbooks.archive import DAMAGED, TOO_LARGE, Archive
from tumira.uploads.workbooks.date_formats import DAYS_TO_1904
from tumira.uploads.workbooks.number_formats import BUILT_IN, GENERAL, NumberFormat, read_number
from tumira.uploads.workbooks.sheet import NOT_CALCULATED, SHEET_NAME_MAX, SHEETS_MAX, Gathered, SheetRow

STRINGS_MAX: Final = 500_000
STRING_CHARACTERS_MAX: Final = 16_000_000
STYLES_MAX: Final = 65_536
LINE_MAX: Final = 1_048_576

_ROOT: Final = "_rels/.rels"
_OUTSIDE: Final = mark(
    "A sheet of this workbook is in another file. Copy its rows into this workbook, or save the sheet as CSV."
)
_MACROS: Final = mark("This workbook has macros. Save it without them, as .xlsx or CSV.")
_REFERENCE: Final = re.compile(r"([A-Za-z]{1,3})([0-9]{1,7})")
_ESCAPED: Final = re.compile(r"_x([0-9A-Fa-f]{4})_")
_TRUE: Final = frozenset({"1", "true", "on"})
_DAY_0: Final = datetime(1899, 12, 30, tzinfo=UTC)
_DAY_S: Final = 86_400
_BLANK: Final = 32
# Of characters that are written as two.
_HALVES: Final = range(0xD800, 0xE000)


class _Relation(Struct, frozen=True):
    """What a part refers to; `target` is a part, None if it is outside of the workbook."""

    kind: str
    target: str | None


class _Relations:
    """The parts that a part refers to, by id."""

    def __init__(self, archive: Archive, of_part: str) -> None:
        folder, name = posixpath.split(of_part)
        self._folder = folder
        self.found: dict[str, _Relation] = {}
        path = posixpath.join(folder, "_rels", f"{name}.rels") if of_part else _ROOT
        if path.lower() in archive.names():
            archive.parse_whole(path, self)

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name != "Relationship":
            return
        kind = attributes.get("Type", "").rpartition("/")[2]
        target: str | None = posixpath.normpath(
            posixpath.join("/", self._folder, attributes.get("Target", ""))
        ).lstrip("/")
        if attributes.get("TargetMode") == "External":
            target = None
        self.found[attributes.get("Id", "")] = _Relation(kind, target)

    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...

    def find(self, kind: str) -> str | None:
        return next((one.target for one in self.found.values() if one.kind == kind), None)


class _Book:
    """The sheets of a workbook in their order, and the day that dates are counted from."""

    def __init__(self) -> None:
        self.sheets: list[tuple[str, str]] = []
        self.date_shift = 0

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "workbookPr" and attributes.get("date1904", "") in _TRUE:
            self.date_shift = DAYS_TO_1904
        elif name == "sheet" and attributes.get("state", "visible") == "visible":
            if len(self.sheets) == SHEETS_MAX:
                raise CsvError(_(TOO_LARGE))
            key = next((value for one, value in attributes.items() if one.endswith("}id")), "")
            self.sheets.append((attributes.get("name", "")[:SHEET_NAME_MAX], key))

    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


class _Styles:
    """The number format of each style."""

    def __init__(self, date_shift: int) -> None:
        self._codes: dict[int, str] = {}
        self._numbers: list[int] = []
        self._is_in_cells = False
        self._formats: dict[int, NumberFormat] = {}
        self._date_shift = date_shift

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "numFmt" and len(self._codes) < STYLES_MAX:
            self._codes[_integer(attributes.get("numFmtId", ""))] = attributes.get("formatCode", "")
        elif name == "cellXfs":
            self._is_in_cells = True
        elif name == "xf" and self._is_in_cells:
            if len(self._numbers) == STYLES_MAX:
                raise CsvError(_(TOO_LARGE))
            self._numbers.append(_integer(attributes.get("numFmtId", "0")))

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._is_in_cells = False

    def text(self, text: str) -> None: ...

    def find(self, style: int) -> NumberFormat:
        found = self._formats.get(style)
        if found is None:
            number = self._numbers[style] if style < len(self._numbers) else 0
            code = self._codes.get(number) or BUILT_IN.get(number, GENERAL)
            found = self._formats[style] = NumberFormat(code, self._date_shift)
        return found

    def read_day(self, text: str) -> Decimal | None:
        """Read a date in ISO 8601 as a count of days."""
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            return None
        since = moment.replace(tzinfo=UTC) - _DAY_0
        return Decimal(since.days - self._date_shift) + Decimal(since.seconds) / _DAY_S


class _Strings:
    """The texts that cells share; the runs of a formatted text are joined, readings left out."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._text = Gathered()
        self._is_in_text = False
        self._in_reading = 0
        self._left = STRING_CHARACTERS_MAX

    def start(self, name: str, _attributes: Mapping[str, str]) -> None:
        self._is_in_text = name == "t" and not self._in_reading
        self._in_reading += name == "rPh"

    def end(self, name: str) -> None:
        self._is_in_text = False
        self._in_reading -= name == "rPh"
        if name == "si":
            text = _unescape(self._text.take())
            self._left -= len(text)
            if self._left < 0 or len(self.found) == STRINGS_MAX:
                raise CsvError(_(TOO_LARGE))
            self.found.append(text)

    def text(self, text: str) -> None:
        if self._is_in_text:
            self._text.add(text)


class _Sheet:
    """Collects the rows of a sheet as they are parsed."""

    def __init__(self, strings: Sequence[str], styles: _Styles) -> None:
        self.rows: list[SheetRow] = []
        self._strings = strings
        self._styles = styles
        self._text = Gathered()
        self._is_in_data = False
        self._is_in_text = False
        self._in_reading = 0
        self._line = 0
        self._column = -1
        self._is_hidden = False
        self._cells: dict[int, str] | None = None
        # Of the cell that is being read.
        self._kind = ""
        self._style = 0
        self._has_formula = self._has_value = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "c" and self._cells is not None:
            self._begin_cell(attributes)
        elif name == "v":
            self._is_in_text = self._has_value = True
        elif name == "t":
            self._is_in_text = not self._in_reading
            self._has_value = True
        elif name == "rPh":
            self._in_reading += 1
        elif name == "f":
            self._has_formula = True
        elif name == "sheetData":
            self._is_in_data = True
        elif name == "row" and self._is_in_data:
            line = _integer(attributes["r"]) if "r" in attributes else self._line + 1
            if not self._line < line <= LINE_MAX:
                raise CsvError(_(DAMAGED))
            self._line = line
            self._column = -1
            self._is_hidden = attributes.get("hidden", "") in _TRUE
            self._cells = {}

    def _begin_cell(self, attributes: Mapping[str, str]) -> None:
        self._column = _column(attributes["r"]) if "r" in attributes else self._column + 1
        self._kind = attributes.get("t", "n")
        self._style = _integer(attributes.get("s", "0"))
        self._has_formula = self._has_value = False

    def end(self, name: str) -> None:
        self._is_in_text = False
        if name == "c" and self._cells is not None:
            if self._has_value or self._has_formula:
                shown = self._show(self._text.take())
                if shown.strip():
                    self._cells[self._column] = shown
        elif name == "rPh":
            self._in_reading -= 1
        elif name == "sheetData":
            self._is_in_data = False
        elif name == "row":
            if self._cells:
                self.rows.append(SheetRow(self._line, self._cells, self._is_hidden))
            self._cells = None

    def text(self, text: str) -> None:
        if self._is_in_text:
            self._text.add(text)

    def _show(self, text: str) -> str:
        """Return what a cell shows: its saved result if it is a formula."""
        if not self._has_value or (self._has_formula and self._kind == "n" and not text):
            return NOT_CALCULATED
        match self._kind:
            case "s":
                place = _integer(text)
                if place >= len(self._strings):
                    raise CsvError(_(DAMAGED))
                return self._styles.find(self._style).write_text(self._strings[place])
            case "inlineStr" | "str":
                return self._styles.find(self._style).write_text(_unescape(text))
            case "b":
                return "TRUE" if text.strip() in _TRUE else "FALSE"
            case "e":
                return text
        value = self._styles.read_day(text) if self._kind == "d" else read_number(text)
        return text if value is None else self._styles.find(self._style).write(value)


class XlsxWorkbook:
    def __init__(self, archive: Archive) -> None:
        if "xl/vbaproject.bin" in archive.names():
            raise CsvError(_(_MACROS))
        self._archive = archive
        book_part = _Relations(archive, "").find("officeDocument") or "xl/workbook.xml"
        self._book = _Book()
        archive.parse_whole(book_part, self._book)
        self._relations = _Relations(archive, book_part)
        if self._relations.find("vbaProject"):
            raise CsvError(_(_MACROS))
        self._styles = _Styles(self._book.date_shift)
        if part := self._relations.find("styles"):
            archive.parse_whole(part, self._styles)
        self._strings: Sequence[str] | None = None

    def list_filled(self) -> Sequence[str]:
        return [name for name, _key in self._book.sheets if next(self.rows(name), None) is not None]

    def rows(self, sheet: str) -> Iterator[SheetRow]:
        relation = self._relations.found.get(dict(self._book.sheets)[sheet])
        if relation is None or (relation.kind != "worksheet" and relation.target is not None):
            # A chart or a dialogue.
            return
        if relation.target is None:
            raise CsvError(_(_OUTSIDE))
        handler = _Sheet(self._read_strings(), self._styles)
        for _piece in self._archive.parse(relation.target, handler):
            yield from handler.rows
            handler.rows.clear()

    def _read_strings(self) -> Sequence[str]:
        if self._strings is None:
            handler = _Strings()
            if part := self._relations.find("sharedStrings"):
                self._archive.parse_whole(part, handler)
            self._strings = handler.found
        return self._strings


def _integer(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LINE_MAX))):
        raise CsvError(_(DAMAGED))
    return int(text)


def _column(reference: str) -> int:
    """Return the column of a reference such as AB12, from 0."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise CsvError(_(DAMAGED))
    column = 0
    for letter in found[1].upper():
        column = 26 * column + ord(letter) - ord("A") + 1
    return column - 1


def _unescape(text: str) -> str:
    """Replace what stands for characters that XML cannot hold; most of these are line ends."""
    return _ESCAPED.sub(_character, text) if "_x" in text else text


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    if code in _HALVES:
        return found[0]
    return chr(code) if code >= _BLANK or chr(code) in "\t\n\r" else ""
