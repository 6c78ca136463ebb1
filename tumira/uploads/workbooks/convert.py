"""Converts a sheet of a workbook to CSV, in a process of its own.

The process is this module, run by `uploads/workbooks/reader`. It gets a file through its standard input and
answers with one outcome. It opens no file and no connection, has bounded memory and time, and may be killed
at any moment.
"""

import csv
import io
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from tumira.core.translation import _, mark
from tumira.uploads.csv_file import (
    BYTES_MAX,
    COLUMNS_MAX,
    HEADER_SAMPLE,
    LINES_MAX,
    ROWS_MAX,
    CsvError,
    CsvRow,
    check_row,
    too_many_bytes,
    too_many_columns,
    too_many_lines,
    too_many_rows,
)
from tumira.uploads.workbooks.archive import Archive
from tumira.uploads.workbooks.ods import CONTENT, OdsWorkbook
from tumira.uploads.workbooks.sheet import SheetRow, Workbook
from tumira.uploads.workbooks.xlsx import XlsxWorkbook

CPU_S_MAX: Final = 20
MEMORY_MAX: Final = 512 * 1024**2
NICENESS: Final = 10

# Names the encoding and the delimiter, so that neither has to be found by looking.
BEGINNING: Final = "\ufeffsep=,\r\n"

_KINDS: Final = (
    (("xl/workbook.bin",), mark("an Excel binary workbook")),
    (("index/document.iwa", "index.zip", "index.xml.gz"), mark("a Numbers document")),
    (("word/document.xml",), mark("a Word document")),
    (("ppt/presentation.xml",), mark("a presentation")),
)
_OTHER_KIND: Final = mark("This is {kind}. Save it as .xlsx or CSV and upload that.")
_ARCHIVE: Final = mark("This is an archive. Unpack it and upload the workbook or CSV file inside.")


class Conversion(Struct, frozen=True):
    """A workbook, and the sheet that was chosen."""

    data: bytes
    sheet: str | None


class Converted(Struct, frozen=True, tag=True):
    """A sheet as CSV, and how many of its rows are hidden."""

    data: bytes
    hidden: int


class ManySheets(Struct, frozen=True, tag=True):
    """Several sheets have rows, and none of them was chosen."""

    names: Sequence[str]


class Unreadable(Struct, frozen=True, tag=True):
    """The workbook cannot be used, for this reason."""

    problem: str


class TooMuchMemory(Struct, frozen=True, tag=True):
    """The workbook needs more memory than it may have."""


Answer = Converted | ManySheets | Unreadable | TooMuchMemory
encode: Final = msgspec.msgpack.Encoder().encode
read_answer: Final[Callable[[bytes | bytearray], Answer]] = msgspec.msgpack.Decoder(Answer).decode


def convert(data: bytes, sheet: str | None) -> Converted | ManySheets:
    """Convert the chosen sheet, or the only sheet with rows; a CsvError says what is wrong."""
    workbook = _open(Archive(data))
    names = workbook.list_filled()
    if not names:
        raise CsvError(_("The workbook is empty. Choose a workbook with one row per recipient."))
    if sheet is None or sheet not in names:
        if len(names) > 1:
            return ManySheets(names)
        sheet = names[0]
    return _convert(workbook.rows(sheet))


def _open(archive: Archive) -> Workbook:
    names = archive.names()
    for parts, kind in _KINDS:
        if not names.isdisjoint(parts):
            raise CsvError(_(_OTHER_KIND).format(kind=_(kind)))
    if "[content_types].xml" in names:
        return XlsxWorkbook(archive)
    if CONTENT not in names:
        raise CsvError(_(_ARCHIVE))
    return OdsWorkbook(archive)


def _convert(rows: Iterator[SheetRow]) -> Converted:
    """Write a row on each line, blank lines too, so that lines are counted as the sheet counts them."""
    written = io.StringIO()
    written.write(BEGINNING)
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    first: list[CsvRow] = []
    size = count = hidden = 0
    line = 1
    for row in rows:
        count += row.count
        hidden += row.count * row.is_hidden
        if count > ROWS_MAX + 1:
            # The rest is only counted, for the message.
            continue
        if row.line + row.count > LINES_MAX:
            raise too_many_lines()
        cells = _lay_out(row)
        written.write("\r\n" * (row.line - line))
        line = row.line + row.count
        size += sum(map(len, cells)) * row.count
        if size > BYTES_MAX:
            raise too_many_bytes()
        writer.writerows([cells] * row.count)
        if len(first) <= HEADER_SAMPLE:
            first.append(CsvRow(row.line, tuple(cells)))
    if count > ROWS_MAX + 1:
        raise too_many_rows(first, count - len(first))
    data = written.getvalue().encode()
    if len(data) > BYTES_MAX:
        raise too_many_bytes()
    return Converted(data, hidden)


def _lay_out(row: SheetRow) -> Sequence[str]:
    width = max(row.cells) + 1
    if width > COLUMNS_MAX:
        raise too_many_columns(row.line, width)
    cells = [row.cells.get(column, "") for column in range(width)]
    check_row(row.line, cells)
    return cells


def _answer(wanted: Conversion) -> Answer:
    try:
        return convert(wanted.data, wanted.sheet)
    except CsvError as error:
        return Unreadable(str(error))
    except MemoryError:
        return TooMuchMemory()


def _main(given: BinaryIO, answer: BinaryIO) -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    # It writes to its standard output alone.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer.write(encode(_answer(msgspec.msgpack.decode(given.read(), type=Conversion))))
    answer.flush()


if __name__ == "__main__":
    _main(sys.stdin.buffer, sys.stdout.buffer)
