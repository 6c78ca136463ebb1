"""What LibreOffice shows is what we read, from the workbooks that it opens and those that it saves."""

import csv
import io
import shutil
import subprocess
from datetime import date, datetime, time
from pathlib import Path
from typing import Final

import openpyxl
import pytest

from tumira.uploads.workbooks.convert import Converted, convert
from tumira.uploads.workbooks.sheet import NOT_CALCULATED
from tumira.uploads.workbooks.write import write_xlsx

PROGRAM: Final = shutil.which("soffice") or shutil.which("libreoffice")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PROGRAM is None, reason="LibreOffice is missing: install libreoffice-calc-nogui"),
]
CELLS: Final = [
    ("plain text", "General"),
    ("0771200001", "@"),
    (" spaces  inside and around ", "General"),
    ("two\nlines", "General"),
    ("comma, semicolon; and 'quotes' \"\"", "General"),
    (0, "General"),
    (5, "General"),
    (-12.5, "General"),
    (1234.56789, "General"),
    (0.1 + 0.2, "General"),
    (27821230001, "General"),
    (771200001, "0000000000"),
    (771200001, r"000\ 000\ 0000"),
    (263771200001, "0"),
    (263771200001, '"+"0'),
    (263771200001, "#,##0"),
    (1234.5, "0"),
    (1234.5, "#,##0.00"),
    (-1234.5, "#,##0.00;[RED]-#,##0.00"),
    (-1234.5, "#,##0.00_);(#,##0.00)"),
    (1234.5, '"US$"#,##0.00'),
    (1234.5, "[$R-1C09] #,##0.00"),
    (1234567, "#,##0,"),
    (1234567, '0.0,,"M"'),
    (0.125, "0%"),
    (0.125, "0.0%"),
    (0.5, "#.##"),
    (1.2, "0.0#"),
    (0, '0;-0;"none"'),
    (12, 'General" kg"'),
    (12345.678, "0.00E+00"),
    (0.000123, "0.00E+00"),
    ("Moyo", '"Dr "@'),
    (True, "General"),
    (date(2026, 11, 3), "dd/mm/yyyy"),
    (date(2026, 11, 3), "d mmmm yyyy"),
    (date(2026, 11, 3), "yyyy-mm-dd"),
    (date(2026, 11, 3), "mmm-yy"),
    (date(2026, 11, 3), r"dddd\,\ d\ mmm"),
    (datetime(2026, 11, 3, 18, 5, 9), "dd/mm/yyyy hh:mm"),  # noqa: DTZ001 - cells have no zone.
    (datetime(2026, 11, 3, 18, 5, 9), "d/m/yy h:mm AM/PM"),  # noqa: DTZ001
    (time(18, 5, 9), "hh:mm:ss"),
    (time(0, 5, 9), "h:mm AM/PM"),
    (1.5, "[h]:mm"),
]


def table() -> bytes:
    """Return a workbook with a value in each row, a blank row, and formulas."""
    book = openpyxl.Workbook()
    sheet = book.active
    for line, (value, code) in enumerate(CELLS, 1):
        cell = sheet.cell(line, 1, value)
        cell.number_format = code
        sheet.cell(line, 3, f"row {line}")
    last = len(CELLS)
    for line, formula in enumerate(("=2*3", '="a"&"b"', "=1/0"), last + 2):
        sheet.cell(line, 1, formula)
        sheet.cell(line, 3, "formula")
    sheet.row_dimensions[2].hidden = True
    written = io.BytesIO()
    book.save(written)
    return written.getvalue()


def transform(folder: Path, name: str, kind: str) -> bytes:
    """Have LibreOffice open a file and save it as another kind."""
    assert PROGRAM is not None
    subprocess.run(
        [
            PROGRAM,
            f"-env:UserInstallation={(folder / 'profile').as_uri()}",
            "--headless",
            "--convert-to",
            kind,
            "--outdir",
            folder / "out",
            folder / name,
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )
    return (folder / "out" / name).with_suffix("." + kind.partition(":")[0]).read_bytes()


def read(data: bytes, hidden: int = 1) -> list[list[str]]:
    found = convert(data, None)
    assert isinstance(found, Converted)
    assert found.hidden == hidden
    text = found.data.decode().partition("\r\n")[2]
    return list(csv.reader(io.StringIO(text, newline="")))


def test_a_workbook_is_read_as_libreoffice_shows_it(tmp_path: Path) -> None:
    (tmp_path / "table.xlsx").write_bytes(table())
    (tmp_path / "shown.ods").write_bytes(transform(tmp_path, "table.xlsx", "ods"))
    # In ODS it writes what it shows beside each value.
    shown = read((tmp_path / "shown.ods").read_bytes())
    assert shown[len(CELLS) :] == [
        [],
        ["6", "", "formula"],
        ["ab", "", "formula"],
        ["#DIV/0!", "", "formula"],
    ]
    assert read(table())[: len(CELLS)] == shown[: len(CELLS)]
    # Formulas have results only after it has saved them.
    assert read(table())[-1][0] == NOT_CALCULATED
    assert read(transform(tmp_path, "shown.ods", "xlsx")) == shown


def test_our_sample_opens_in_libreoffice(tmp_path: Path) -> None:
    rows = [["to", "name"], ["0771200001", "Tendai & Co"], ["+263771200002", "Rudo"]]
    (tmp_path / "sample.xlsx").write_bytes(write_xlsx(rows))
    assert read(transform(tmp_path, "sample.xlsx", "ods"), hidden=0) == rows
