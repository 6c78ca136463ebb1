"""The ZIP archive of a workbook, and the XML in its parts, read in pieces and within bounds.

Nothing is extracted, no name is a path on this machine, and no address in it is followed.
"""

import io
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, Protocol
from xml.parsers import expat

from tumira.core.translation import _, mark
from tumira.uploads.csv_file import CsvError

PARTS_MAX: Final = 1_000
PART_BYTES_MAX: Final = 64 * 1024**2
# Over all parts, each as often as it is read.
TOTAL_BYTES_MAX: Final = 160 * 1024**2
# How far a part may expand, after its first megabyte; rows of a real sheet expand ten- to fiftyfold.
RATIO_MAX: Final = 200
RATIO_FREE_BYTES: Final = 1024**2
ELEMENTS_MAX: Final = 3_000_000
DEPTH_MAX: Final = 64
# The longest tag with its attributes. What expat has not finished is parsed again with each piece.
TAG_BYTES_MAX: Final = 256 * 1024
PIECE: Final = 64 * 1024

_DIRECTORY_ENTRY: Final = b"PK\x01\x02"
_ENCRYPTED: Final = 0x1
# What zipfile raises for data that it does not expect.
_BROKEN: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})

DAMAGED: Final = mark(
    "This workbook is damaged or incomplete. Open it in your spreadsheet program and save it again, as .xlsx "
    "or CSV."
)
TOO_LARGE: Final = mark(
    "This workbook is too large to read. Copy the rows that you need to a new workbook, or save the sheet as "
    "CSV."
)
PASSWORD: Final = mark(
    "This workbook is protected by a password. Remove the password, then save it as .xlsx or CSV."
)


class XmlHandler(Protocol):
    """Gets the elements of a document by their local names, attributes as `namespace}name`."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


class Archive:
    """The parts of a workbook; their names count in any case, as the standards say."""

    def __init__(self, data: bytes) -> None:
        # Counted before the directory is read: each entry of it takes half a kilobyte of memory.
        if data.count(_DIRECTORY_ENTRY) > PARTS_MAX:
            raise CsvError(_(TOO_LARGE))
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _BROKEN as error:
            raise CsvError(_(DAMAGED)) from error
        parts = self._zip.infolist()
        self._parts = {one.filename.lower(): one for one in parts}
        is_sound = (
            len(self._parts) == len(parts)
            and not any(_leads_outside(name) for name in self._parts)
            # Parts that overlap are one piece of data that is expanded many times.
            and sum(one.compress_size for one in parts) <= len(data)
        )
        if not is_sound:
            raise CsvError(_(DAMAGED))
        self._bytes_left = TOTAL_BYTES_MAX
        self._elements_left = ELEMENTS_MAX

    def names(self) -> frozenset[str]:
        return frozenset(self._parts)

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield what a part contains; a CsvError if it is missing, damaged or larger than allowed."""
        part = self._parts.get(name.lower())
        if part is None or part.compress_type not in _METHODS:
            raise CsvError(_(DAMAGED))
        if part.flag_bits & _ENCRYPTED:
            raise CsvError(_(PASSWORD))
        # What the directory says may be a lie, so the bytes are counted too.
        bytes_max = min(PART_BYTES_MAX, RATIO_FREE_BYTES + RATIO_MAX * part.compress_size)
        if part.file_size > bytes_max:
            raise CsvError(_(TOO_LARGE))
        count = 0
        for piece in self._inflate(part):
            count += len(piece)
            self._bytes_left -= len(piece)
            if count > bytes_max or self._bytes_left < 0:
                raise CsvError(_(TOO_LARGE))
            yield piece

    def _inflate(self, part: zipfile.ZipInfo) -> Iterator[bytes]:
        try:
            with self._zip.open(part) as opened:
                while piece := opened.read(PIECE):
                    yield piece
        except _BROKEN as error:
            raise CsvError(_(DAMAGED)) from error

    def parse(self, name: str, handler: XmlHandler) -> Iterator[None]:
        """Parse a part, and yield after each piece of it, so that its rows can be taken meanwhile."""
        depth = 0

        def start(element: str, attributes: Mapping[str, str]) -> None:
            nonlocal depth
            depth += 1
            self._elements_left -= 1
            if depth > DEPTH_MAX or self._elements_left < 0:
                raise CsvError(_(TOO_LARGE))
            handler.start(element.rpartition("}")[2], attributes)

        def end(element: str) -> None:
            nonlocal depth
            depth -= 1
            handler.end(element.rpartition("}")[2])

        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = handler.text
        # A workbook has no document type, so nobody can define entities that expand without end.
        parser.StartDoctypeDeclHandler = _refuse_document_type
        fed = 0
        try:
            for piece in self.pieces(name):
                parser.Parse(piece)
                fed += len(piece)
                if fed - parser.CurrentByteIndex > TAG_BYTES_MAX:
                    raise CsvError(_(TOO_LARGE))
                yield
            parser.Parse(b"", True)  # noqa: FBT003 - it takes no keyword.
        except expat.ExpatError as error:
            raise CsvError(_(DAMAGED)) from error
        yield

    def parse_whole(self, name: str, handler: XmlHandler) -> None:
        for _piece in self.parse(name, handler):
            pass


def _refuse_document_type(*_given: object) -> None:
    raise CsvError(_(DAMAGED))


def _leads_outside(name: str) -> bool:
    return name.startswith(("/", "\\")) or ".." in posixpath.normpath(name.replace("\\", "/")).split("/")
