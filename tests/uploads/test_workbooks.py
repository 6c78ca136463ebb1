"""Workbooks in XLSX and ODS: their rows as they look, and what is refused."""

import csv
import io
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odfdo import Cell, Document, Row, Table

from tests.support.uploads.workbooks import (
    MAIN,
    OFFICE,
    PACKAGE,
    ods,
    ods_parts,
    ods_rows,
    pack,
    text_cell,
    text_rows,
    xlsx,
    xlsx_parts,
)
from tumira.uploads.csv_file import CsvError, CsvFile, read_csv
from tumira.uploads.workbooks.convert import Converted, ManySheets, convert
from tumira.uploads.workbooks.sheet import NOT_CALCULATED
from tumira.uploads.workbooks.write import write_xlsx

PEOPLE: Final = (("to", "name"), ("+263771200001", "Anna"), ("+263771200002", "Ben"))


def read(data: bytes, sheet: str | None = None) -> CsvFile:
    found = convert(data, sheet)
    assert isinstance(found, Converted)
    return read_csv(found.data)


def cells(data: bytes, sheet: str | None = None) -> list[tuple[str, ...]]:
    table = read(data, sheet)
    return [row.cells for row in table.rows]


def problem_of(data: bytes) -> str:
    with pytest.raises(CsvError) as caught:
        convert(data, None)
    return str(caught.value)


def number(stored: str, style: int = 0) -> str:
    return f'<c s="{style}"><v>{stored}</v></c>'


@pytest.mark.parametrize(
    "write", [lambda rows: xlsx(text_rows(*rows)), lambda rows: ods(ods_rows(*rows)), write_xlsx]
)
def test_a_table_is_read_as_the_same_table_in_csv(write: Callable[[Sequence[Sequence[str]]], bytes]) -> None:
    rows = [*PEOPLE, ("+263771200003", '"Cara", a;b & <c>'), ("+263771200004", "Dan Ö 😀")]
    table = read(write(rows))
    assert table.columns == ("to", "name")
    assert [row.cells for row in table.rows] == [tuple(cell for cell in row) for row in rows[1:]]
    assert [row.line for row in table.rows] == [2, 3, 4, 5]


def test_cells_of_every_kind_look_as_in_excel() -> None:
    strings = (
        "<si><t>Anna</t></si>"
        "<si><r><t>Rich </t></r><r><rPr><b/></rPr><t>text</t></r><rPh><t>reading</t></rPh></si>"
        "<si><t>two_x000D_\nlines _x005F_x0041_</t></si>"
    )
    row = (
        '<row><c t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="s"><v>2</v></c>'
        '<c t="b"><v>1</v></c><c t="b"><v>0</v></c><c t="e"><v>#N/A</v></c>'
        '<c t="str"><f>A1&amp;"x"</f><v>Annax</v></c><c><f>A2*2</f></c><c t="str"><f>""</f><v></v></c>'
        '<c s="1"><f>TODAY()</f><v>46329</v></c><c s="2" t="d"><v>2026-11-03T18:30:00</v></c>'
        f"{number('263771200001')}{number('771200001', 3)}{text_cell('end')}</row>"
    )
    (found,) = cells(
        xlsx(text_rows(["to"]) + row, strings=strings, formats=["dd mmm yyyy", "h:mm", "0000000000"])
    )
    assert found == (
        "Anna",
        "Rich text",
        "two\r\nlines _x0041_",
        "TRUE",
        "FALSE",
        "#N/A",
        "Annax",
        NOT_CALCULATED,
        "",
        "03 Nov 2026",
        "18:30",
        "263771200001",
        "0771200001",
        "end",
    )


def test_cells_stand_where_they_say_and_blank_rows_count() -> None:
    rows = (
        '<row r="3"><c r="A3" t="str"><v>to</v></c><c r="C3" t="str"><v>name</v></c></row>'
        '<row r="4" hidden="1"><c r="C4" t="str"><v>Anna</v></c><c r="A4"><v>263771200001</v></c>'
        '<c r="AZZ4" s="0"/></row><row r="900000"><c r="A900000" s="0"/></row>'
    )
    found = convert(xlsx(rows), None)
    assert isinstance(found, Converted)
    assert found.hidden == 1
    (row,) = read_csv(found.data).rows
    assert (row.line, row.cells) == (4, ("263771200001", "", "Anna"))


def test_formulas_on_other_files_count_with_their_saved_result() -> None:
    row = '<row><c t="str"><f>[1]Sheet1!A1</f><v>+263771200001</v></c></row>'
    parts = xlsx_parts({"Sheet1": text_rows(["to"]) + row})
    parts["xl/externalLinks/externalLink1.xml"] = f'<externalLink xmlns="{MAIN}"/>'
    parts["xl/externalLinks/_rels/externalLink1.xml.rels"] = (
        f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r" Type="{OFFICE}/externalLinkPath" '
        'Target="http://127.0.0.1:9/other.xlsx" TargetMode="External"/></Relationships>'
    )
    assert cells(pack(parts)) == [("+263771200001",)]


def test_our_workbooks_are_valid() -> None:
    sheet = openpyxl.load_workbook(io.BytesIO(write_xlsx(PEOPLE))).active
    assert tuple(sheet.values) == PEOPLE
    assert {cell.number_format for row in sheet.rows for cell in row} == {"@"}


def test_dates_of_1904_are_four_years_later() -> None:
    book = '<workbookPr date1904="1"/>'
    rows = text_rows(["to"]) + f'<row>{number("44867", 1)}<c t="d" s="1"><v>2026-11-03</v></c></row>'
    assert cells(xlsx(rows, formats=["d/m/yyyy"], book=book)) == [("3/11/2026", "3/11/2026")]


def test_only_the_first_of_merged_cells_has_their_value() -> None:
    book = openpyxl.Workbook()
    for row in (("to", "name"), ("+263771200001", "Both"), ("+263771200002", None)):
        book.active.append(row)
    book.active.merge_cells("B2:B3")
    assert cells(saved(book)) == [("+263771200001", "Both"), ("+263771200002", "")]
    covered = (
        '<table:table-row><table:table-cell table:number-columns-spanned="2" office:value-type="string">'
        "<text:p>+263771200001</text:p></table:table-cell><table:covered-table-cell><text:p>x</text:p>"
        "</table:covered-table-cell></table:table-row>"
    )
    assert cells(ods(ods_rows(["to", "name"]) + covered)) == [("+263771200001", "")]


def saved(book: openpyxl.Workbook) -> bytes:
    written = io.BytesIO()
    book.save(written)
    return written.getvalue()


def test_a_workbook_with_several_sheets_asks_which() -> None:
    rows = text_rows(*PEOPLE)
    other = text_rows(("to",), ("+263771200009",))
    sheets = {"Empty": "<row/>", "June & July": rows, "Old": other, "Secret": other}
    data = pack(xlsx_parts(sheets, hidden=["Secret"]))
    assert convert(data, None) == ManySheets(["June & July", "Old"])
    assert convert(data, "Secret") == ManySheets(["June & July", "Old"])
    assert cells(data, "Old") == [("+263771200009",)]
    assert len(read(pack(xlsx_parts({"Empty": "", "One": rows})), "Old").rows) == 2
    tables = (
        '<table:table table:name="A" table:style-name="gone">{0}</table:table>'
        '<table:table table:name="B">{0}</table:table>'
        '<table:table table:name="C"><table:table-row table:number-rows-repeated="1048576"/></table:table>'
        '<table:table table:name="D">{1}</table:table>'
    ).format(ods_rows(*PEOPLE), ods_rows(("to",), ("+263771200009",)))
    hidden = '<style:style style:name="gone"><style:table-properties table:display="false"/></style:style>'
    data = pack(ods_parts(tables, hidden))
    assert convert(data, None) == ManySheets(["B", "D"])
    assert cells(data, "D") == [("+263771200009",)]


def test_cells_of_an_ods_look_as_they_were_saved() -> None:
    def cell(kind: str, shown: str = "", **values: str) -> str:
        given = "".join(f' office:{name.replace("_", "-")}="{value}"' for name, value in values.items())
        return f'<table:table-cell office:value-type="{kind}"{given}>{shown}</table:table-cell>'

    rows = "".join(
        [
            cell("float", "<text:p>2.64E+11</text:p>", value="263771200001"),
            cell("float", value="263771200001"),
            cell("currency", "<text:p>R1 234,50</text:p>", value="1234.5"),
            cell("percentage", value="0.125"),
            cell("date", "<text:p>3 Nov 2026</text:p>", date_value="2026-11-03"),
            cell("date", date_value="2026-11-03T18:30:00"),
            cell("time", time_value="PT18H30M00S"),
            cell("boolean", boolean_value="true"),
            cell("string", string_value="plain"),
            '<table:table-cell table:formula="of:=A1"/>',
            cell(
                "string",
                "<office:annotation><text:p>a note</text:p></office:annotation>"
                "<text:p>  one\n  <text:span>two</text:span><text:s text:c='2'/>three</text:p>"
                "<text:p>four<text:line-break/>five<text:tab/><text:a>six</text:a></text:p>"
                "<draw:frame><text:p>a picture</text:p></draw:frame>",
            ),
            '<table:table-cell table:number-columns-repeated="2"><text:p>x</text:p></table:table-cell>',
            '<table:table-cell table:number-columns-repeated="16000"/>',
        ]
    )
    shapes = "<table:shapes><draw:frame><text:p>a shape</text:p></draw:frame></table:shapes>"
    (found,) = cells(ods(f"{shapes}{ods_rows(['to'])}<table:table-row>{rows}</table:table-row>"))
    assert found == (
        "263771200001",
        "263771200001",
        "R1 234,50",
        "12.5%",
        "3 Nov 2026",
        "03/11/2026 18:30",
        "18:30:00",
        "TRUE",
        "plain",
        NOT_CALCULATED,
        "one two  three\nfour\nfive\tsix",
        "x",
        "x",
    )


def test_rows_of_an_ods_may_repeat_and_be_hidden() -> None:
    def row(count: int, content: str = "", visibility: str = "visible") -> str:
        return (
            f'<table:table-row table:number-rows-repeated="{count}" table:visibility="{visibility}">'
            f"{content}</table:table-row>"
        )

    cell = '<table:table-cell office:value-type="string"><text:p>+263771200001</text:p></table:table-cell>'
    data = ods(ods_rows(["to"]) + row(3) + row(2, cell, "filter") + row(1_048_570))
    found = convert(data, None)
    assert isinstance(found, Converted)
    assert found.hidden == 2
    assert [one.line for one in read_csv(found.data).rows] == [5, 6]


TEXTS: Final = st.text(
    st.characters(blacklist_categories=("Cs", "Cc", "Cn"), blacklist_characters="\ufeff"), max_size=20
).filter(lambda text: not text.startswith("=") and text == text.strip())
DAYS: Final = st.dates(date(1900, 3, 1), date(2100, 1, 1))
LOOKS: Final = st.one_of(
    TEXTS.map(lambda text: (text, "General", text)),
    st.integers(-(10**10), 10**15 - 1)
    .filter(lambda number: number < 10**11 or number % 10)
    .map(lambda number: (number, "General", str(number))),
    st.decimals(-(10**6), 10**6, places=2).map(lambda one: (one, "#,##0.00", f"{one + 0:,.2f}")),
    st.integers(0, 10**9).map(lambda one: (one, "0000000000", f"{one:010}")),
    st.booleans().map(lambda one: (one, "General", str(one).upper())),
    DAYS.map(lambda one: (one, "dd/mm/yyyy", f"{one:%d/%m/%Y}")),
    DAYS.map(lambda one: (one, "d mmmm yyyy", f"{one.day} {one:%B %Y}")),
    st.times().map(lambda one: (one.replace(microsecond=0), "hh:mm:ss", f"{one:%H:%M:%S}")),
    st.datetimes(datetime(1901, 1, 1), datetime(2100, 1, 1)).map(  # noqa: DTZ001 - cells have no zone.
        lambda one: (one.replace(microsecond=0), "yyyy-mm-dd hh:mm", f"{one:%Y-%m-%d %H:%M}")
    ),
)
ROWS: Final = st.lists(st.lists(LOOKS, min_size=1, max_size=5), min_size=1, max_size=10)
Look = tuple[str | int | Decimal | date | time, str, str]


@given(ROWS)
def test_what_openpyxl_writes_comes_back_as_it_looks(rows: list[list[Look]]) -> None:
    book = openpyxl.Workbook()
    for line, row in enumerate(rows, 1):
        for column, (value, code, _look) in enumerate(row, 1):
            cell = book.active.cell(line, column, value)
            cell.number_format = code
    expect(saved(book), rows)


@given(ROWS)
def test_what_odfdo_writes_comes_back_as_it_looks(rows: list[list[Look]]) -> None:
    document = Document("spreadsheet")
    document.body.clear()
    table = Table("Rows")
    for line in rows:
        row = Row()
        for value, _code, look in line:
            row.append_cell(Cell(look if isinstance(value, time) else value, text=look))
        table.append_row(row)
    document.body.append(table)
    written = io.BytesIO()
    document.save(written)
    expect(written.getvalue(), rows)


def expect(data: bytes, rows: list[list[Look]]) -> None:
    lines = {
        place: [look for _value, _code, look in row]
        for place, row in enumerate(rows, 1)
        if any(look for _value, _code, look in row)
    }
    if not lines:
        assert "is empty" in problem_of(data)
        return
    found = convert(data, None)
    assert isinstance(found, Converted)
    # A first row that is no header, so that all rows of the table are rows of the file.
    text = found.data.decode().partition("\r\n")[2]
    written = list(csv.reader(io.StringIO(text, newline="")))
    for place, looks in lines.items():
        shown = written[place - 1]
        assert [cell.strip() for cell in shown] == strip_end([look.strip() for look in looks])


def strip_end(looks: list[str]) -> list[str]:
    while looks and not looks[-1]:
        looks.pop()
    return looks
