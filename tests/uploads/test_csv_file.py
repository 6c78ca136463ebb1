"""Reading of CSV files from many programs."""
# ruff: noqa: RUF001 - Characters that look like others stand in files.

import csv
import io
import sys
import tracemalloc
from collections.abc import Callable, Sequence
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
    Row,
    Sheet,
    SheetCode,
    SheetFault,
    can_be_number,
    read_sheet,
)

NUMBER = "+263771200001"
OTHER = "+27821230001"
EMOJI = "\N{GRINNING FACE}"
TEN_MB = 10_000_000


def sheet_of(data: bytes | str) -> Sheet:
    sheet = read_sheet(data if isinstance(data, bytes) else data.encode())
    assert isinstance(sheet, Sheet), sheet
    return sheet


def fault_of(data: bytes | str) -> SheetFault:
    fault = read_sheet(data if isinstance(data, bytes) else data.encode())
    assert isinstance(fault, SheetFault), fault
    return fault


def cells_of(data: bytes | str) -> Sequence[tuple[str, ...]]:
    return [row.cells for row in sheet_of(data).rows]


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
    assert sheet_of(f"to,name\r\n{NUMBER},Moyo\r\n{OTHER},Nkosi\r\n") == Sheet(
        columns=("to", "name"),
        rows=[Row(2, (NUMBER, "Moyo")), Row(3, (OTHER, "Nkosi"))],
        number_column=0,
        has_header=True,
        encoding="utf-8",
        delimiter=",",
    )


# Columns


@pytest.mark.parametrize("name", NUMBER_NAMES)
def test_the_column_with_the_numbers_is_found_by_its_name(name: str) -> None:
    sheet = sheet_of(f"name, {name.title()} \nMoyo,nothing like a number\n")
    assert (sheet.number_column, sheet.has_header) == (1, True)


@pytest.mark.parametrize(
    ("header", "column"),
    [("number,phone,to", 2), ("cell,number,phone", 2), ("msisdn,cell,number", 2), ("phone,PHONE,Phone", 0)],
)
def test_of_several_names_the_first_in_the_order_counts(header: str, column: int) -> None:
    assert sheet_of(f"{header}\n1,2,3\n").number_column == column


def test_without_such_a_name_the_first_column_has_the_numbers() -> None:
    sheet = sheet_of(f"telephone,name\n{NUMBER},Moyo\n")
    assert (sheet.columns, sheet.number_column, sheet.has_header) == (("telephone", "name"), 0, True)


def test_a_file_without_a_header_loses_no_row() -> None:
    sheet = sheet_of(f"{NUMBER},Moyo\n{OTHER},Nkosi\n")
    assert (sheet.columns, sheet.has_header, sheet.number_column) == (("column1", "column2"), False, 0)
    assert [row.line for row in sheet.rows] == [1, 2]


def test_a_row_with_a_number_is_no_header_whatever_stands_beside_it() -> None:
    sheet = sheet_of(f"{NUMBER},to\n{OTHER},from\n")
    assert (sheet.has_header, len(sheet.rows)) == (False, 2)


def test_where_no_row_has_a_number_none_is_taken_for_a_header() -> None:
    assert sheet_of("name,town\nMoyo,Harare\n").has_header is False


def test_columns_without_a_name_or_with_one_that_was_there_are_named_by_their_place() -> None:
    sheet = sheet_of(f"to,Name,,NAME,column3\n{NUMBER},a,b,c,d,e\n")
    assert sheet.columns == ("to", "Name", "column3_", "column4", "column3", "column6")


def test_names_of_columns_are_written_in_one_line() -> None:
    assert sheet_of(f'to,"first\r\n name "\n{NUMBER},a\n').columns == ("to", "first name")


def test_all_rows_are_as_wide_as_the_widest() -> None:
    assert cells_of(f"to,name\n{NUMBER}\n{OTHER},a,b\n") == [(NUMBER, "", ""), (OTHER, "a", "b")]


# Rows


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_a_spreadsheet_counts_rows(line_end: str) -> None:
    lines = ["to,note", "", f'{NUMBER},"two{line_end}lines"', " , ", f"{OTHER},b", "", ",", ""]
    sheet = sheet_of(line_end.join(lines))
    assert sheet.rows == [Row(3, (NUMBER, f"two{line_end}lines")), Row(5, (OTHER, "b"))]


def test_what_python_alone_calls_the_end_of_a_line_is_part_of_a_cell() -> None:
    odd = "a\x0bb\x0cc\x1cd\x85e\u2028f"
    assert cells_of(f"to,note\n{NUMBER},{odd}\n") == [(NUMBER, odd)]


def test_blank_rows_at_the_end_are_cut_off_and_the_last_cell_is_not() -> None:
    assert cells_of(f"to,note\n{NUMBER},thanks; \n" + ",,;\t\n" * 500_000) == [(NUMBER, "thanks; ")]


def test_quotes_are_those_of_rfc_4180() -> None:
    text = f'"to","note"\r\n"{NUMBER}","a ""b"", c"\r\n{OTHER},5" pipe\r\n'
    assert cells_of(text) == [(NUMBER, 'a "b", c'), (OTHER, '5" pipe')]


def test_what_looks_like_a_formula_is_text_like_any_other() -> None:
    formulas = ['=HYPERLINK("http://x","y")', "=1+1", "@SUM(A1)", "-2+3", "+1+1", "|calc", "%0A"]
    rows = [[NUMBER, formula] for formula in formulas]
    assert [cells[1] for cells in cells_of(write([["to", "note"], *rows]))] == formulas


@pytest.mark.parametrize("number", ["+263 77 120 0001", "0771200001", " +263-771-200001"])
def test_the_apostrophe_of_our_own_downloads_is_taken_off_the_number(number: str) -> None:
    assert cells_of(f"name,to\n'x,'{number}\n") == [("'x", number)]


def test_a_download_can_be_uploaded_again() -> None:
    rows = [["to", "note"], ["+263 77 120 0001", 'a "b"; c'], [NUMBER, "two\nlines"]]
    assert cells_of(write_rows(rows)) == [tuple(row) for row in rows[1:]]


def test_a_column_of_emoji_is_read() -> None:
    emoji = f"{EMOJI}\N{ZERO WIDTH JOINER}{EMOJI}\N{VARIATION SELECTOR-16}" * 20
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert cells_of(f"to,{EMOJI}\n{NUMBER},{emoji}\n".encode(encoding)) == [(NUMBER, emoji)]


# Delimiters


@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_the_delimiter_is_the_one_that_makes_rows_alike(delimiter: str) -> None:
    others = "".join(one for one in DELIMITERS if one != delimiter)
    rows = [["to", "name", "note"]]
    rows += [[NUMBER, f"Moyo{others[0] * number}", f"a{others * (number % 3)}b"] for number in range(10)]
    sheet = sheet_of("\n".join(delimiter.join(row) for row in rows))
    assert (sheet.delimiter, [list(row.cells) for row in sheet.rows]) == (delimiter, rows[1:])


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        (f"{NUMBER};1,50\n{OTHER};2,75\n", ";"),
        (f"{NUMBER}\tDear Moyo, hello\n{OTHER}\tDear Nkosi, hello\n", "\t"),
        (f"{NUMBER}\n{OTHER}\n{NUMBER};Moyo\n", ";"),
        (f'to,note\n{NUMBER},"a;b\na;b\na;b"\n', ","),
        (f'"Moyo, T";{NUMBER}\n"Nkosi, S";{OTHER}\n', ";"),
        (f"{NUMBER}\n{OTHER}\n", ","),
        ("\r\n" * 100 + f"to;a,b\r\n{NUMBER};c,d\r\n", ";"),
        (f"sep=;\r\nto;a,b\r\n{NUMBER};c,d\r\n", ";"),
        (f"sep=\t\nto\ta;b\n{NUMBER}\tc;d\n", "\t"),
    ],
)
def test_the_delimiter_is_not_mistaken_for_what_stands_in_cells(text: str, delimiter: str) -> None:
    sheet = sheet_of(text)
    assert sheet.delimiter == delimiter
    assert all(can_be_number(row.cells[0]) or can_be_number(row.cells[1]) for row in sheet.rows)


def test_the_line_in_which_excel_names_the_delimiter_is_no_row() -> None:
    assert sheet_of(f"sep=;\nto;name\n{NUMBER};Moyo\n").rows == [Row(2, (NUMBER, "Moyo"))]


# Encodings


@pytest.mark.parametrize(
    ("encoding", "found"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16-le"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("windows-1252", "windows-1252"),
        ("latin-1", "windows-1252"),
    ],
)
def test_the_encoding_is_found(encoding: str, found: str) -> None:
    sheet = sheet_of(f"to,name\n{NUMBER},Zoë Müller\n".encode(encoding))
    assert (sheet.encoding, sheet.columns, sheet.rows[0].cells[1]) == (found, ("to", "name"), "Zoë Müller")


def test_the_typographic_marks_of_windows_are_read() -> None:
    text = f"to,note\n{NUMBER},“café” – it’s €5…\n"
    assert cells_of(text.encode("windows-1252")) == [(NUMBER, "“café” – it’s €5…")]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_file_in_two_encodings_is_refused_with_the_line(start: bytes) -> None:
    lines = [b"to,name", b"1,Zo\xc3\xab", b"2,Moyo\r\n3,Ren\xe9", b"4,Nkosi"]
    fault = fault_of(start + b"\n".join(lines))
    assert fault.code is SheetCode.ENCODING
    assert fault.message.startswith("Line 4 ")


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
    assert fault_of(data).code is SheetCode.ENCODING


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04" + b"xl/workbook.xml" * 10,
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100,
        b"%PDF-1.7\n",
        b"\x1f\x8b\x08\x00",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"to,name\n1,\0\n",
        b"to,name\n1,\xe9\0\n",
        "to,name\n1,\0\n".encode("utf-16"),
        f"to\n{NUMBER}".encode("utf-32"),
        bytes(1000),
    ],
)
def test_what_is_no_text_is_to_be_saved_as_csv(data: bytes) -> None:
    fault = fault_of(data)
    assert fault.code is SheetCode.NOT_TEXT
    assert "save it as CSV" in fault.message


# Limits


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\n\r\n , \n;;\n", b"to,name\n", b"to"])
def test_a_file_without_a_row_is_refused(data: bytes) -> None:
    assert fault_of(data).code is SheetCode.EMPTY


@pytest.mark.parametrize("header", ["", "to\n"])
def test_ten_thousand_rows_are_read(header: str) -> None:
    assert len(sheet_of(header + f"{NUMBER}\n\n" * ROWS_MAX).rows) == ROWS_MAX


@pytest.mark.parametrize("header", ["", "to\n"])
@pytest.mark.parametrize("row", [NUMBER, f'"{NUMBER}"', f'{NUMBER},"a\nb"', f"{NUMBER}\n,,"])
@pytest.mark.parametrize("count", [ROWS_MAX + 1, ROWS_MAX + 2, 23_456])
def test_more_rows_are_refused_with_their_count(header: str, row: str, count: int) -> None:
    fault = fault_of(header + f"{row}\n" * count)
    assert fault.code is SheetCode.TOO_MANY_ROWS
    assert f" {count:,} rows" in fault.message


@pytest.mark.parametrize("row", ["1\n", '"1"\n'])
def test_millions_of_rows_are_not_all_counted(row: str) -> None:
    fault = fault_of(row * (TEN_MB // len(row)))
    assert fault.code is SheetCode.TOO_MANY_ROWS
    assert "more than 1,000,000 rows" in fault.message


def test_blank_rows_without_end_are_refused() -> None:
    assert fault_of("\n" * TEN_MB + NUMBER).code is SheetCode.TOO_MANY_ROWS


def test_a_file_that_is_too_large_is_not_looked_at() -> None:
    assert fault_of(b"PK\x03\x04" + bytes(BYTES_MAX)).code is SheetCode.TOO_LARGE


def test_cells_and_columns_have_a_limit() -> None:
    full = ['"' * CELL_MAX] * COLUMNS_MAX
    assert cells_of(write([[NUMBER], full])) == [(NUMBER, *[""] * (COLUMNS_MAX - 1)), tuple(full)]
    long = fault_of(f"to,note\n\n{NUMBER},{'x' * (CELL_MAX + 1)}\n")
    assert (long.code, long.message[:5]) == (SheetCode.CELL_TOO_LONG, "Row 3")
    wide = fault_of(f"to\n{NUMBER}{',x' * COLUMNS_MAX}\n")
    assert (wide.code, wide.message[:5]) == (SheetCode.TOO_MANY_COLUMNS, "Row 2")


@pytest.mark.parametrize(
    "rest",
    [
        "",
        f"{OTHER},Nkosi\n",
        f"{OTHER},Nkosi\n" * 50_000,
        f'{OTHER},"Nkosi, S"\n',
        f'{OTHER},"Nkosi, S"\n' * 9_000,
    ],
)
def test_a_quote_that_is_never_closed_is_one_fault_with_its_row(rest: str) -> None:
    fault = fault_of(f'to,name\n\n{NUMBER},"Moyo\n{rest}')
    assert (fault.code, fault.message[:5]) == (SheetCode.QUOTES, "Row 3")


def test_a_quote_that_is_closed_much_later_is_told_by_its_length() -> None:
    fault = fault_of(f'to,name\n{NUMBER},"Moyo\n' + f"{OTHER},Nkosi\n" * 200 + '{OTHER},Dube"\n')
    assert (fault.code, fault.message[:5]) == (SheetCode.CELL_TOO_LONG, "Row 2")
    assert "a quote there that is not closed" in fault.message


def test_text_behind_a_closing_quote_is_refused() -> None:
    fault = fault_of(f'to,name\n{NUMBER},"Moyo" T\n')
    assert (fault.code, fault.message[:5]) == (SheetCode.QUOTES, "Row 2")


def steps_of(action: Callable[[], object]) -> int:
    steps = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize("data", [b"x", b",", b'"', b'"",', b"1;", b"\n", b",\n", b"\xe9"])
def test_ten_megabytes_in_a_line_are_refused_without_looking_at_each_character(data: bytes) -> None:
    whole = data * (TEN_MB // len(data))
    outcomes: list[Sheet | SheetFault] = []
    tracemalloc.start()
    try:
        assert steps_of(lambda: outcomes.append(read_sheet(whole))) < 1000
        assert tracemalloc.get_traced_memory()[1] < 4 * TEN_MB
    finally:
        tracemalloc.stop()
    [fault] = outcomes
    assert isinstance(fault, SheetFault)
    assert fault.code in {SheetCode.ROW_TOO_LONG, SheetCode.EMPTY}


def test_an_open_quote_is_not_followed_to_the_end_of_the_file() -> None:
    def steps(count: int) -> int:
        data = b'to,"\n' + b"+27821230001,Nkosi\n" * count
        return steps_of(lambda: read_sheet(data))

    assert steps(20_000) == steps(400_000)


# Anything


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=20)
WESTERN = st.text("abc éèüñôÉ\"',;\t\r\n=", max_size=20)
PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
WAYS = [
    ("utf-8", TEXT),
    ("utf-8-sig", TEXT),
    ("utf-16", TEXT),
    ("utf-16-le", PLAIN),
    ("utf-16-be", PLAIN),
    ("windows-1252", WESTERN),
    ("latin-1", WESTERN),
]


@pytest.mark.parametrize(("encoding", "text"), WAYS)
@pytest.mark.parametrize("delimiter", DELIMITERS)
@given(data=st.data(), line_end=st.sampled_from(["\r\n", "\n", "\r"]))
@settings(max_examples=20)
def test_what_a_program_writes_is_read_as_it_was(
    encoding: str, text: st.SearchStrategy[str], delimiter: str, data: st.DataObject, line_end: str
) -> None:
    rows = data.draw(st.lists(st.tuples(st.just(NUMBER), text, text), min_size=1, max_size=8))
    written = write([("to", "name", "note"), *rows], delimiter, line_end)
    assert sheet_of(written.encode(encoding)) == Sheet(
        columns=("to", "name", "note"),
        rows=[Row(line, cells) for line, cells in enumerate(rows, 2)],
        number_column=0,
        has_header=True,
        encoding=sheet_of(written.encode(encoding)).encoding,
        delimiter=delimiter,
    )


def check_sheet(sheet: Sheet) -> None:
    width = len(sheet.columns)
    assert 0 <= sheet.number_column < width <= COLUMNS_MAX
    assert 0 < len(sheet.rows) <= ROWS_MAX
    assert len({name.casefold() for name in sheet.columns}) == width
    lines = [row.line for row in sheet.rows]
    assert lines == sorted(set(lines))
    assert lines[0] > sheet.has_header
    for row in sheet.rows:
        assert len(row.cells) == width
        assert any(cell.strip() for cell in row.cells)
        assert all(len(cell) <= CELL_MAX and "\0" not in cell for cell in row.cells)


@given(st.binary(max_size=500))
@example(b"\xff\xfe\x00\xd8")
@example(b"'")
@example(b'"')
@example(b"\r")
@settings(max_examples=300)
def test_no_bytes_raise_anything(data: bytes) -> None:
    outcome = read_sheet(data)
    if isinstance(outcome, Sheet):
        check_sheet(outcome)
    else:
        assert outcome.message.endswith((".", "?"))


@given(st.text("\",;\t\r\n 'to01+é", max_size=60))
@settings(max_examples=300)
def test_what_is_read_is_what_the_csv_module_reads(text: str) -> None:
    outcome = read_sheet(text.encode())
    if not isinstance(outcome, Sheet):
        return
    check_sheet(outcome)
    records = csv.reader(io.StringIO(text, newline=""), delimiter=outcome.delimiter, strict=True)
    filled = [(line, cells) for line, cells in enumerate(records, 1) if "".join(cells).strip(",; \t\r\n")]
    width = len(outcome.columns)
    expected = [
        Row(line, (*cells, *[""] * (width - len(cells)))) for line, cells in filled[outcome.has_header :]
    ]
    column = outcome.number_column
    for row, whole in zip(outcome.rows, expected, strict=True):
        assert row.line == whole.line
        assert whole.cells[column].endswith(row.cells[column])
        assert (row.cells[:column], row.cells[column + 1 :]) == (
            whole.cells[:column],
            whole.cells[column + 1 :],
        )
