"""Workbooks that tests write by hand, with whatever is wrong in them."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

MAIN: Final = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE: Final = "http://schemas.openxmlformats.org/package/2006/relationships"
ODS_TYPE: Final = "application/vnd.oasis.opendocument.spreadsheet"
_ODF: Final = "urn:oasis:names:tc:opendocument:xmlns:"
ODS_NAMES: Final = " ".join(
    f'xmlns:{name}="{_ODF}{name}:1.0"' for name in ("office", "table", "text", "style", "draw")
)

Parts = Mapping[str, str | bytes]


def pack(parts: Parts, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return written.getvalue()


def xlsx_parts(
    sheets: Mapping[str, str],
    *,
    strings: str | None = None,
    formats: Sequence[str] = (),
    book: str = "",
    hidden: Sequence[str] = (),
) -> dict[str, str | bytes]:
    """Return the parts of a workbook; a sheet is the content of its `sheetData`.

    Style 0 has no format, and style 1 the first of `formats`.
    """
    names = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{place}" r:id="s{place}" state="{_state(name, hidden)}"/>'
        for place, name in enumerate(sheets, 1)
    )
    relations = "".join(
        f'<Relationship Id="s{place}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{place}.xml"/>'
        for place in range(1, len(sheets) + 1)
    )
    codes = "".join(
        f'<numFmt numFmtId="{place}" formatCode={quoteattr(code)}/>'
        for place, code in enumerate(formats, 164)
    )
    styles = "".join(f'<xf numFmtId="{place}"/>' for place in range(164, 164 + len(formats)))
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r" '
        f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}">{book}<sheets>{names}</sheets>'
        "</workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">{relations}'
        f'<Relationship Id="y" Type="{OFFICE}/styles" Target="styles.xml"/>'
        f'<Relationship Id="z" Type="{OFFICE}/sharedStrings" Target="/xl/sharedStrings.xml"/>'
        "</Relationships>",
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><numFmts>{codes}</numFmts>'
        f'<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
        f'<cellXfs><xf numFmtId="0"/>{styles}</cellXfs></styleSheet>',
        "xl/sharedStrings.xml": f'<sst xmlns="{MAIN}">{strings or ""}</sst>',
    }
    for place, rows in enumerate(sheets.values(), 1):
        parts[f"xl/worksheets/sheet{place}.xml"] = sheet_part(rows)
    return parts


def _state(name: str, hidden: Sequence[str]) -> str:
    return "hidden" if name in hidden else "visible"


def sheet_part(rows: str) -> str:
    return f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'


def xlsx(rows: str, *, strings: str | None = None, formats: Sequence[str] = (), book: str = "") -> bytes:
    """Return a workbook of one sheet."""
    return pack(xlsx_parts({"Sheet1": rows}, strings=strings, formats=formats, book=book))


def text_cell(text: str) -> str:
    return f'<c t="inlineStr"><is><t>{escape(text)}</t></is></c>'


def text_rows(*rows: Sequence[str]) -> str:
    return "".join(f"<row>{''.join(map(text_cell, row))}</row>" for row in rows)


def ods_parts(tables: str, styles: str = "") -> dict[str, str | bytes]:
    """Return the parts of a workbook; `tables` is all that is in its spreadsheet."""
    return {
        "mimetype": ODS_TYPE,
        "content.xml": f"<office:document-content {ODS_NAMES}>"
        f"<office:automatic-styles>{styles}</office:automatic-styles><office:body>"
        f"<office:spreadsheet>{tables}</office:spreadsheet></office:body></office:document-content>",
        "META-INF/manifest.xml": '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>',
    }


def ods(rows: str) -> bytes:
    return pack(ods_parts(f'<table:table table:name="Sheet1">{rows}</table:table>'))


def ods_rows(*rows: Sequence[str]) -> str:
    return "".join(
        "<table:table-row>"
        + "".join(
            f'<table:table-cell office:value-type="string"><text:p>{escape(cell)}</text:p></table:table-cell>'
            for cell in row
        )
        + "</table:table-row>"
        for row in rows
    )
