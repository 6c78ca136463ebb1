"""Workbooks made to harm their reader, each with a part of the sentence that refuses it."""

import io
import random
import struct
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Final

from tests.support.uploads.workbooks import (
    MAIN,
    OFFICE,
    PACKAGE,
    Parts,
    ods,
    ods_parts,
    ods_rows,
    pack,
    sheet_part,
    text_cell,
    text_rows,
    xlsx,
    xlsx_parts,
)

PEOPLE: Final = (("to", "name"), ("+263771200001", "Anna"), ("+263771200002", "Ben"))
ROWS: Final = text_rows(*PEOPLE)
SHEET: Final = "xl/worksheets/sheet1.xml"

DAMAGED: Final = "damaged or incomplete"
LARGE: Final = "too large to read"
PASSWORD: Final = "protected by a password"
MACROS: Final = "has macros"
ARCHIVE: Final = "Unpack it"


def _with(changed: Parts, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    return pack({**xlsx_parts({"Sheet1": ROWS}), **changed}, method)


def bomb() -> bytes:
    return _with({SHEET: sheet_part(ROWS + "<row>" + " " * 45_000_000 + "</row>")})


def bomb_of_cells() -> bytes:
    """Rows that differ just enough to stay below the allowed ratio."""
    noise = random.Random(1)
    rows = "".join(f"<row>{'<c/>' * 200}<!--{noise.getrandbits(40)}--></row>" for _ in range(50_000))
    return _with({SHEET: sheet_part(rows)})


def overlapping() -> bytes:
    """Return an archive whose directory names one piece of data many times."""
    data = pack({"xl/a.xml": bytes(1_000_000)})
    end = data.rindex(b"PK\x05\x06")
    start = data.index(b"PK\x01\x02")
    entries = b"".join(data[start:end].replace(b"xl/a.xml", b"xl/%05d" % place) for place in range(500))
    last = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 500, 500, len(entries), start, 0)
    return data[:start] + entries + last


def _lie(size: int) -> bytes:
    """Return a workbook whose directory lies about the size of its sheet, as ZIP64 does with large ones."""
    data = bytearray(_with({}))
    start = data.index(b"PK\x01\x02")
    while SHEET.encode() not in data[start + 46 : start + 46 + len(SHEET)]:
        start = data.index(b"PK\x01\x02", start + 1)
    extra = struct.pack("<HHQ", 1, 8, size)
    data[start + 24 : start + 28] = b"\xff" * 4
    data[start + 30 : start + 32] = struct.pack("<H", len(extra))
    place = start + 46 + len(SHEET)
    data[place:place] = extra
    end = data.rindex(b"PK\x05\x06")
    (length,) = struct.unpack_from("<I", data, end + 12)
    struct.pack_into("<I", data, end + 12, length + len(extra))
    return bytes(data)


def wrong_checksum() -> bytes:
    data = bytearray(pack(xlsx_parts({"Sheet1": ROWS}), zipfile.ZIP_STORED))
    place = data.index(b"Anna")
    data[place : place + 4] = b"Anno"
    return bytes(data)


def with_password() -> bytes:
    data = bytearray(_with({}))
    place = -1
    while (place := data.find(b"PK\x01\x02", place + 1)) >= 0:
        data[place + 8] |= 1
    return bytes(data)


def entities() -> bytes:
    names = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    text = f'<!DOCTYPE sst [<!ENTITY l0 "lol">{names}]><sst xmlns="{MAIN}"><si><t>&l9;</t></si></sst>'
    return _with({SHEET: sheet_part('<row><c t="s"><v>0</v></c></row>'), "xl/sharedStrings.xml": text})


def entity_of_a_file() -> bytes:
    kind = '<!DOCTYPE sst [<!ENTITY f SYSTEM "file:///etc/passwd">]>'
    text = f'{kind}<sst xmlns="{MAIN}"><si><t>&f;</t></si></sst>'
    return _with({SHEET: sheet_part('<row><c t="s"><v>0</v></c></row>'), "xl/sharedStrings.xml": text})


def quadratic_strings() -> bytes:
    cell = '<c t="s"><v>0</v></c>'
    rows = "".join(f'<row r="{line}">{cell * 50}</row>' for line in range(1, 10_001))
    return xlsx(rows, strings=f"<si><t>{'x' * 1_900}</t></si>")


def many_strings() -> bytes:
    noise = random.Random(1)
    strings = "".join(f"<si><t>{noise.getrandbits(24):x}</t></si>" for _ in range(510_000))
    return xlsx('<row><c t="s"><v>0</v></c></row>', strings=strings)


def external_sheet() -> bytes:
    relations = (
        f'<Relationships xmlns="{PACKAGE}"><Relationship Id="s1" Type="{OFFICE}/worksheet" '
        'Target="http://127.0.0.1:9/sheet1.xml" TargetMode="External"/></Relationships>'
    )
    return _with({"xl/_rels/workbook.xml.rels": relations})


def far_cell() -> bytes:
    return xlsx(f'{ROWS}<row r="1048576"><c r="XFD1048576" t="str"><v>x</v></c></row>')


def repeated(rows: str = "1", columns: str = "1") -> bytes:
    return ods(
        f'{ods_rows(*PEOPLE)}<table:table-row table:number-rows-repeated="{rows}"><table:table-cell '
        f'table:number-columns-repeated="{columns}" office:value-type="string"><text:p>x</text:p>'
        "</table:table-cell></table:table-row>"
    )


def many_spaces() -> bytes:
    text = '<text:p>a<text:s text:c="999999999"/>b</text:p>'
    return ods(f"<table:table-row><table:table-cell>{text}</table:table-cell></table:table-row>")


def encrypted_ods() -> bytes:
    manifest = (
        '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><m:file-entry>'
        "<m:encryption-data/></m:file-entry></m:manifest>"
    )
    parts = ods_parts("")
    return pack({**parts, "META-INF/manifest.xml": manifest, "content.xml": b"\x93\x01" * 500})


def twice() -> bytes:
    written = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(written, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            for name, content in xlsx_parts({"Sheet1": ROWS}).items():
                archive.writestr(name, content)
    return written.getvalue()


HOSTILE: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "bomb": (bomb, LARGE),
    "bomb of cells": (bomb_of_cells, LARGE),
    "bomb in the styles": (lambda: _with({"xl/styles.xml": bytes(40_000_000)}), LARGE),
    "nested": (lambda: pack({"inner.zip": bomb(), "b.zip": bomb()}), ARCHIVE),
    "overlapping parts": (overlapping, DAMAGED),
    "quadratic strings": (quadratic_strings, "larger than 10 MB"),
    "many strings": (many_strings, LARGE),
    "far cell": (far_cell, "most of them blank"),
    "a million blank rows, packed": (lambda: xlsx(ROWS + "<row/>" * 1_000_000), LARGE),
    "wide row": (lambda: xlsx(f"<row>{text_cell('x') * 16_384}</row>"), "16,384 columns"),
    "many rows": (lambda: xlsx(text_rows(*PEOPLE[1:]) * 20_000), "40,000 rows"),
    "long cell": (
        lambda: xlsx(text_rows(["to"], [random.Random(1).randbytes(1_000_000).hex()])),
        "characters in column 1",
    ),
    "many sheets": (lambda: pack(xlsx_parts({f"Sheet{n}": ROWS for n in range(200)})), LARGE),
    "many parts": (lambda: _with({f"xl/media/{n}": b"" for n in range(5_000)}), LARGE),
    "external sheet": (external_sheet, "in another file"),
    "macros": (lambda: _with({"xl/vbaProject.bin": b"x"}), MACROS),
    "macros in ODS": (lambda: pack({**ods_parts(""), "Basic/Standard/Module1.xml": "x"}), MACROS),
    "entities": (entities, DAMAGED),
    "entity of a file": (entity_of_a_file, DAMAGED),
    "deep": (lambda: xlsx("<a>" * 100_000 + "</a>" * 100_000), LARGE),
    "long tag": (
        lambda: _with({SHEET: sheet_part(f'<row x="{random.Random(1).randbytes(900_000).hex()}"/>')}),
        LARGE,
    ),
    "truncated": (lambda: _with({})[:-200], DAMAGED),
    "beginning only": (lambda: b"PK\x03\x04", DAMAGED),
    "wrong checksum": (wrong_checksum, DAMAGED),
    "absolute name": (lambda: _with({"/etc/passwd": "x"}), DAMAGED),
    "name outside": (lambda: _with({"xl/../../../etc/passwd": "x"}), DAMAGED),
    "backslashes outside": (lambda: _with({"..\\..\\windows\\x": "x"}), DAMAGED),
    "lies: huge": (lambda: _lie(2**40), LARGE),
    "lies: small": (lambda: _lie(10), DAMAGED),
    "same name twice": (twice, DAMAGED),
    "other compression": (lambda: _with({}, zipfile.ZIP_LZMA), DAMAGED),
    "password": (with_password, PASSWORD),
    "password in ODS": (encrypted_ods, PASSWORD),
    "not XML": (lambda: _with({SHEET: b"\xff\xfe\x00garbage"}), DAMAGED),
    "no sheet": (lambda: pack({"[Content_Types].xml": "<Types/>"}), DAMAGED),
    "string beyond the last": (lambda: xlsx('<row><c t="s"><v>7</v></c></row>'), DAMAGED),
    "rows backwards": (lambda: xlsx('<row r="5"/><row r="4"/>'), DAMAGED),
    "rows repeated": (lambda: repeated(rows="999999999"), "more than 1,000,000 rows"),
    "columns repeated": (lambda: repeated(columns="999999999"), "999,999,999 columns"),
    "many spaces": (many_spaces, "characters in column 1"),
    "Numbers": (lambda: pack({"Index/Document.iwa": b"x"}), "a Numbers document. Save it as .xlsx or CSV"),
    "Excel binary": (lambda: pack({"xl/workbook.bin": b"x", "[Content_Types].xml": ""}), "binary workbook"),
    "Word": (lambda: pack({"word/document.xml": "x", "[Content_Types].xml": ""}), "a Word document"),
    "photographs": (lambda: pack({"a.jpg": b"x"}), ARCHIVE),
}


@cache
def hostile(name: str) -> bytes:
    return HOSTILE[name][0]()
