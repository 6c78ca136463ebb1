"""Reading of CSV files from many programs."""
# ruff: noqa: RUF001 - Characters that look like others stand in files.

import csv
import gc
import io
import re
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tumira.html.tables import write_rows
from tumira.uploads.csv_file import (
    BYTES_MAX,
    CELL_MAX,
    COLUMNS_MAX,
    DELIMITERS,
    NUMBER_NAMES,
    ROWS_MAX,
    CsvError,
    CsvFile,
    CsvRow,
    can_be_number,
    read_csv,
)

NUMBER = "+263771200001"
OTHER = "+27821230001"
EMOJI = "\N{GRINNING FACE}"
TEN_MB = 10_000_000


def read(data: bytes | str) -> CsvFile:
    return read_csv(data if isinstance(data, bytes) else data.encode())


def problem_of(data: bytes | str) -> str:
    with pytest.raises(CsvError) as refused:
        read(data)
    return str(refused.value)


def cells_of(data: bytes | str) -> Sequence[tuple[str, ...]]:
    return [row.cells for row in read(data).rows]


def write(rows: Sequence[Sequence[str]], delimiter: str = ",", line_end: str = "\r\n") -> str:
    text = io.StringIO(newline="")
    if line_end == "\r\n":
        writer = csv.writer(text, delimiter=delimiter)
    else:
        # A carriage return is quoted of itself only where it is part of the end of a line.
        writer = csv.writer(text, delimiter=delimiter, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    writer.writerows(rows)
    return text.getvalue()


def test_a_plain_file_is_read_with_its_header() -> None:
    assert read(f"to,name\r\n{NUMBER},Moyo\r\n{OTHER},Nkosi\r\n") == CsvFile(
        columns=("to", "name"),
        rows=[CsvRow(2, (NUMBER, "Moyo")), CsvRow(3, (OTHER, "Nkosi"))],
        number_column=0,
    )


# Columns


@pytest.mark.parametrize(
    ("header", "column"),
    [
        *((f"name, {name.title()} ", 1) for name in NUMBER_NAMES),
        ("number,phone,to", 2),
        ("cell,number,phone", 2),
        ("msisdn,cell,number", 2),
        ("phone,PHONE,Phone", 0),
    ],
)
def test_the_column_with_the_numbers_is_found_by_its_name_the_first_in_their_order(
    header: str, column: int
) -> None:
    file = read(f"{header}\nMoyo,nothing like a number,3\n")
    assert (file.number_column, len(file.rows)) == (column, 1)


@pytest.mark.parametrize(
    ("text", "columns", "first_line"),
    [
        (f"telephone,name\n{NUMBER},Moyo\n", ("telephone", "name"), 2),
        (f"{NUMBER},Moyo\n{OTHER},Nkosi\n", ("column1", "column2"), 1),
        # A row with a number is no header, whatever stands beside it, and neither is one where none has any.
        (f"{NUMBER},to\n{OTHER},from\n", ("column1", "column2"), 1),
        ("name,town\nMoyo,Harare\n", ("column1", "column2"), 1),
        (
            f"to,Name,,NAME,column3\n{NUMBER},a,b,c,d,e\n",
            ("to", "Name", "column3_", "column4", "column3", "column6"),
            2,
        ),
        (f'to,"first\r\n name "\n{NUMBER},a\n', ("to", "first name"), 2),
    ],
)
def test_columns_are_named_by_the_header_or_else_by_their_places(
    text: str, columns: Sequence[str], first_line: int
) -> None:
    file = read(text)
    assert (file.columns, file.number_column, file.rows[0].line) == (columns, 0, first_line)


# Rows


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_a_spreadsheet_counts_rows(line_end: str) -> None:
    lines = ["to,note", "", f'{NUMBER},"two{line_end}lines"', " , ", f"{OTHER},b", "", ",", ""]
    assert read(line_end.join(lines)).rows == [
        CsvRow(3, (NUMBER, f"two{line_end}lines")),
        CsvRow(5, (OTHER, "b")),
    ]


FORMULAS = ['=HYPERLINK("http://x","y")', "=1+1", "@SUM(A1)", "-2+3", "+1+1", "|calc", "%0A"]
ODD_LINES = "a\x0bb\x0cc\x1cd\x85e\u2028f"


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        # All rows are as wide as the widest.
        (f"to,name\n{NUMBER}\n{OTHER},a,b\n", [(NUMBER, "", ""), (OTHER, "a", "b")]),
        # What Python alone calls the end of a line is part of a cell.
        (f"to,note\n{NUMBER},{ODD_LINES}\n", [(NUMBER, ODD_LINES)]),
        # Blank rows at the end are cut off, the last cell is not.
        (f"to,note\n{NUMBER},thanks; \n" + ",,;\t\n" * 500_000, [(NUMBER, "thanks; ")]),
        # Quotes are those of RFC 4180.
        (
            f'"to","note"\r\n"{NUMBER}","a ""b"", c"\r\n{OTHER},5" pipe\r\n',
            [(NUMBER, 'a "b", c'), (OTHER, '5" pipe')],
        ),
        (
            write([["to", "note"], *([NUMBER, formula] for formula in FORMULAS)]),
            [(NUMBER, formula) for formula in FORMULAS],
        ),
        # The apostrophe of our own downloads is taken off the number.
        ("name,to\n'x,'+263 77 120 0001\n", [("'x", "+263 77 120 0001")]),
        ("name,to\n'x,' +263-771-200001\n", [("'x", " +263-771-200001")]),
        # The line in which Excel names the delimiter is no row.
        (f"sep=;\nto;name\n{NUMBER};Moyo\n", [(NUMBER, "Moyo")]),
    ],
    ids=["width", "lines", "blank end", "quotes", "formulas", "apostrophe", "apostrophe and space", "sep"],
)
def test_cells_are_read_as_they_were_written(text: str, cells: Sequence[tuple[str, ...]]) -> None:
    assert cells_of(text) == cells


def test_a_download_can_be_uploaded_again() -> None:
    rows = [["to", "note"], ["+263 77 120 0001", 'a "b"; c'], [NUMBER, "two\nlines"]]
    assert cells_of(write_rows(rows)) == [tuple(row) for row in rows[1:]]


# Delimiters


@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_the_delimiter_is_the_one_that_makes_rows_alike(delimiter: str) -> None:
    others = "".join(one for one in DELIMITERS if one != delimiter)
    rows = [["to", "name", "note"]]
    rows += [[NUMBER, f"Moyo{others[0] * number}", f"a{others * (number % 3)}b"] for number in range(10)]
    assert [list(cells) for cells in cells_of("\n".join(delimiter.join(row) for row in rows))] == rows[1:]


@pytest.mark.parametrize(
    ("text", "width"),
    [
        (f"{NUMBER};1,50\n{OTHER};2,75\n", 2),
        (f"{NUMBER}\tDear Moyo, hello\n{OTHER}\tDear Nkosi, hello\n", 2),
        (f"{NUMBER}\n{OTHER}\n{NUMBER};Moyo\n", 2),
        (f'to,note\n{NUMBER},"a;b\na;b\na;b"\n', 2),
        (f'"Moyo, T";{NUMBER}\n"Nkosi, S";{OTHER}\n', 2),
        (f"{NUMBER}\n{OTHER}\n", 1),
        ("\r\n" * 100 + f"to;a,b\r\n{NUMBER};c,d\r\n", 2),
        (f"sep=\t\nto\ta;b\n{NUMBER}\tc;d\n", 2),
    ],
)
def test_the_delimiter_is_not_mistaken_for_what_stands_in_cells(text: str, width: int) -> None:
    file = read(text)
    assert len(file.columns) == width
    assert all(any(map(can_be_number, row.cells)) for row in file.rows)


# Encodings


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        *(
            (one, "Zoë Müller")
            for one in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1")
        ),
        ("windows-1252", "“café” – it’s €5…"),
        *((one, EMOJI + "\N{ZERO WIDTH JOINER}" + EMOJI * 20) for one in ("utf-8", "utf-8-sig", "utf-16")),
    ],
)
def test_the_encoding_is_found(encoding: str, text: str) -> None:
    file = read(f"to,{text}\n{NUMBER},{text}\n".encode(encoding))
    assert (file.columns, file.rows[0].cells) == (("to", text), (NUMBER, text))


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_file_in_two_encodings_is_refused_with_the_line(start: bytes) -> None:
    lines = [b"to,name", b"1,Zo\xc3\xab", b"2,Moyo\r\n3,Ren\xe9", b"4,Nkosi"]
    assert problem_of(start + b"\n".join(lines)).startswith("Line 4 has characters that cannot be read")


@pytest.mark.parametrize(
    "data",
    [
        "to\nZoë\nZoë".encode()[:-1],
        b"\xef\xbb\xbfto\n\xff",
        b"to\n\xe9\x81",
        f"to\n{EMOJI}".encode("utf-16")[:-2],
        f"to\n{NUMBER}".encode("utf-16")[:-1],
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    assert "as CSV UTF-8" in problem_of(data)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04" + b"xl/workbook.xml" * 10,
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100,
        b"\xd0\xcf\x11\xe0" + bytes(100) + "EncryptedPackage".encode("utf-16-le"),
        b"%PDF-1.7\n",
        b"\xef\xbb\xbf<html><table><tr><td>+263771200001",
        b'<?xml version="1.0"?><office:document>',
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"to,name\n1,\0\n",
        b"to,name\n1,\xe9\0\n",
        f"to\n{NUMBER}".encode("utf-32"),
        bytes(1000),
    ],
)
def test_what_is_no_text_is_to_be_saved_as_a_table(data: bytes) -> None:
    assert re.search(r"save it as (\.xlsx or )?CSV\.$", problem_of(data))


def test_titles_above_the_header_are_no_rows() -> None:
    file = read_csv(f"Debtors\n\nJune 2026,,\nname,phone,owes\nAnna,{NUMBER},5\n".encode())
    assert file.columns == ("name", "phone", "owes")
    assert [(row.line, row.cells) for row in file.rows] == [(5, ("Anna", NUMBER, "5"))]
    assert file.number_column == 1
    # Rows as wide as the header are no titles, and one with a number is a recipient.
    for first in ("Anna,none,5", f"Anna,{NUMBER},5"):
        assert len(read_csv(f"{first}\nname,phone,owes\nBen,{NUMBER},5\n".encode()).rows) >= 2


# Limits


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\n\r\n , \n;;\n", b"to,name\n", b"to"])
def test_a_file_without_a_row_is_refused(data: bytes) -> None:
    assert "one row per recipient" in problem_of(data)


@pytest.mark.parametrize("header", ["", "to\n"])
def test_ten_thousand_rows_are_read_and_more_are_refused_with_their_count(header: str) -> None:
    assert len(read(header + f"{NUMBER}\n\n" * ROWS_MAX).rows) == ROWS_MAX
    for row, count in (
        (NUMBER, ROWS_MAX + 1),
        (f'"{NUMBER}"', ROWS_MAX + 2),
        (f'{NUMBER},"a\nb"', 23_456),
        (f"{NUMBER}\n,,", 23_456),
    ):
        assert f" {count:,} rows; the limit is 10,000" in problem_of(header + f"{row}\n" * count)


def test_millions_of_rows_are_not_all_counted() -> None:
    assert "more than 1,000,000 rows" in problem_of("1\n" * (TEN_MB // 2))
    assert "most of them blank" in problem_of("\n" * TEN_MB + NUMBER)


def test_a_file_that_is_too_large_is_not_looked_at() -> None:
    assert "larger than 10 MB" in problem_of(b"PK\x03\x04" + bytes(BYTES_MAX))


def test_cells_and_columns_have_a_limit() -> None:
    full = ['"' * CELL_MAX] * COLUMNS_MAX
    assert cells_of(write([[NUMBER], full])) == [(NUMBER, *[""] * (COLUMNS_MAX - 1)), tuple(full)]
    long = problem_of(f"to,note\n\n{NUMBER},{'x' * (CELL_MAX + 1)}\n")
    assert long.startswith("Row 3 has 2,001 characters in column 2")
    assert problem_of(f"to\n{NUMBER}{',x' * COLUMNS_MAX}\n").startswith("Row 2 has 51 columns")


@pytest.mark.parametrize(
    "text",
    [
        f'{NUMBER},"Moyo\n',
        f'{NUMBER},"Moyo\n' + f"{OTHER},Nkosi\n" * 50_000,
        f'{NUMBER},"Moyo\n' + f'{OTHER},"Nkosi, S"\n' * 9_000,
        # Text behind a closing quote.
        f'{NUMBER},"Moyo" T\n',
    ],
)
def test_a_quote_that_is_never_closed_is_told_by_its_row(text: str) -> None:
    assert problem_of(f"to,name\n\n{text}").startswith("Row 3 has a missing closing quote")


def test_a_quote_that_is_closed_much_later_is_told_by_its_length() -> None:
    problem = problem_of(f'to,name\n{NUMBER},"Moyo\n' + f"{OTHER},Nkosi\n" * 200 + '{OTHER},Dube"\n')
    assert problem.startswith("Row 2 has ")
    assert "a missing closing quote" in problem


def steps_of(action: Callable[[], object]) -> int:
    steps = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    # What others have the garbage collector call would be counted too.
    before = sys.gettrace()
    gc.collect()
    gc.disable()
    sys.settrace(trace)
    try:
        with suppress(CsvError):
            action()
    finally:
        sys.settrace(before)
        gc.enable()
    return steps


@pytest.mark.parametrize("data", [b"x", b'"', b'"",', b"\n", b"\xe9"])
def test_ten_megabytes_in_a_line_are_refused_without_looking_at_each_character(data: bytes) -> None:
    whole = data * (TEN_MB // len(data))
    tracemalloc.start()
    try:
        assert steps_of(lambda: read_csv(whole)) < 1000
        assert tracemalloc.get_traced_memory()[1] < 4 * TEN_MB
    finally:
        tracemalloc.stop()
    assert "one row per recipient" in problem_of(whole)


def test_an_open_quote_is_not_followed_to_the_end_of_the_file() -> None:
    def steps(count: int) -> int:
        data = b'to,"\n' + b"+27821230001,Nkosi\n" * count
        return steps_of(lambda: read_csv(data))

    assert steps(20_000) == steps(400_000)


# Anything


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=20)
WESTERN = st.text("abc éèüñôÉ\"',;\t\r\n=", max_size=20)
PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
WAYS = [("utf-8", TEXT), ("utf-16", TEXT), ("utf-16-be", PLAIN), ("windows-1252", WESTERN)]


@pytest.mark.parametrize(("encoding", "text"), WAYS)
@given(data=st.data(), delimiter=st.sampled_from(DELIMITERS), line_end=st.sampled_from(["\r\n", "\n", "\r"]))
@settings(max_examples=40)
def test_what_a_program_writes_is_read_as_it_was(
    encoding: str, text: st.SearchStrategy[str], data: st.DataObject, delimiter: str, line_end: str
) -> None:
    rows = data.draw(st.lists(st.tuples(st.just(NUMBER), text, text), min_size=1, max_size=8))
    written = write([("to", "name", "note"), *rows], delimiter, line_end)
    assert read(written.encode(encoding)) == CsvFile(
        columns=("to", "name", "note"),
        rows=[CsvRow(line, cells) for line, cells in enumerate(rows, 2)],
        number_column=0,
    )


@given(st.binary(max_size=500) | st.text("\",;\t\r\n 'to01+é", max_size=60).map(str.encode))
@example(b"\xff\xfe\x00\xd8")
@example(b"'")
@example(b'"')
@example(b"\r")
@settings(max_examples=50)
def test_any_bytes_are_refused_or_read_within_the_limits(data: bytes) -> None:
    try:
        file = read_csv(data)
    except CsvError:
        return
    width = len(file.columns)
    assert 0 <= file.number_column < width <= COLUMNS_MAX
    assert 0 < len(file.rows) <= ROWS_MAX
    assert len({name.casefold() for name in file.columns}) == width
    lines = [row.line for row in file.rows]
    assert lines == sorted(set(lines))
    for row in file.rows:
        assert len(row.cells) == width
        assert any(cell.strip() for cell in row.cells)
        assert all(len(cell) <= CELL_MAX and "\0" not in cell for cell in row.cells)
