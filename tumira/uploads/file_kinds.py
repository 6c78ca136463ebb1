"""What kind of file was uploaded, told by its content, never by its name."""

from typing import Final

from tumira.core.translation import _, mark

_WORKBOOK: Final = (b"PK\x03\x04", b"PK\x05\x06")
# Old Excel workbooks, and new ones with a password, are files within a file system of their own.
_COMPOUND: Final = b"\xd0\xcf\x11\xe0"
_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")
_BLANKS: Final = b"\xef\xbb\xbf \t\r\n"
_LOOKED_AT: Final = 64
_OTHERS: Final = (
    (b"%PDF", mark("a PDF")),
    (b"\x1f\x8b", mark("an archive")),
    (b"7z\xbc\xaf", mark("an archive")),
    (b"Rar!", mark("an archive")),
    (b"{\\rtf", mark("a text document")),
    (b"<?xml", mark("an XML file")),
    (b"<html", mark("a web page")),
    (b"<!doctype html", mark("a web page")),
    (b"<table", mark("a web page")),
)

_PASSWORD: Final = mark(
    "This workbook is protected by a password. Remove the password, then save it as .xlsx or CSV."
)
_OTHER: Final = mark("This is {kind}. Open it in your spreadsheet program and save it as .xlsx or CSV.")


def is_workbook(data: bytes) -> bool:
    """Tell whether a file may be a workbook in XLSX or ODS, which are ZIP archives."""
    return data.startswith(_WORKBOOK)


def refuse_kind(data: bytes) -> str | None:
    """Say what to do with a file that is not text, as each CSV file is; None if it may be text."""
    if is_workbook(data):
        return _("This is a workbook or an archive. Open it in your spreadsheet program and save it as CSV.")
    if data.startswith(_COMPOUND):
        return _(_PASSWORD) if _ENCRYPTED in data else _(_OTHER).format(kind=_("an old Excel workbook"))
    beginning = data[:_LOOKED_AT].lstrip(_BLANKS)
    for magic, kind in _OTHERS:
        if beginning[: len(magic)].lower() == magic.lower():
            return _(_OTHER).format(kind=_(kind))
    return None
