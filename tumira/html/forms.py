"""What did somebody fill in? Reads posted forms, bounded, as text alone, and a file as bytes."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Final
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

BODY_BYTES_MAX: Final = 256 * 1024
FIELDS_MAX: Final = 100
FILE_BYTES_MAX: Final = 5 * 1024 * 1024
FILE_NAME_MAX: Final = 100
# On a bad line five megabytes take this long.
UPLOAD_S: Final = 600

# What PostgreSQL cannot store. Halves of surrogate pairs cannot come out of UTF-8.
_NUL: Final = "\x00"
_LINE_END: Final = re.compile(r"\r\n?")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]+")


class Form:
    """The fields of a form, each with the values given."""

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Return what was filled in, without spaces around it; nothing if the field is missing."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """Return what was filled in as it is; the end of a line, which forms send as two, as one."""
        values = self._fields.get(name, ())
        return _LINE_END.sub("\n", values[0]).replace(_NUL, "") if values else ""

    def all(self, name: str) -> Sequence[str]:
        """Return the values of all ticked boxes of a name."""
        return self._fields.get(name, ())


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Read a body that is not larger than allowed."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > bytes_max:
                raise HTTPException(413, "This form is too large")
    except ClientDisconnect as error:
        # Nobody reads this answer any more; it only ends the request in good order.
        raise HTTPException(400, "This form did not come whole") from error
    return bytes(body)


async def read_form(request: Request) -> Form:
    """Read a posted form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "This is not a form")
    body = await read_body(request)
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="replace", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise HTTPException(400, "This form cannot be read") from error
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return Form(fields)


@dataclass(frozen=True, slots=True)
class File:
    """A file that somebody chose; without a name and empty if they chose none."""

    name: str
    data: bytes


async def read_upload(request: Request, file_bytes_max: int = FILE_BYTES_MAX) -> tuple[Form, File]:
    """Read a posted form with a file in it; of one that is too large nothing is kept."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise HTTPException(415, "This is not a form with a file")
    declared = request.headers.get("content-length", "0")
    # Whoever says at once that it is too much need not send it.
    if declared.isdecimal() and int(declared) > file_bytes_max + BODY_BYTES_MAX:
        raise _too_large(file_bytes_max)
    parts = _Parts(file_bytes_max)
    try:
        async with asyncio.timeout(UPLOAD_S):
            await parts.read(request, boundary)
    except TimeoutError as error:
        raise HTTPException(408, "The file took too long to arrive; try it on a better line") from error
    except (FormParserError, ClientDisconnect) as error:
        raise HTTPException(400, "This form did not come whole; send it again") from error
    return parts.form(), parts.file()


def _too_large(file_bytes_max: int) -> HTTPException:
    return HTTPException(
        413, f"The file is larger than {file_bytes_max // (1024 * 1024)} MB; split it, and send the parts"
    )


class _Parts:
    """Collects the parts of a form as they arrive."""

    def __init__(self, file_bytes_max: int) -> None:
        self._file_bytes_max = file_bytes_max
        self._fields: dict[str, list[str]] = {}
        self._file_name: str | None = None
        self._file = bytearray()
        self._count = 0
        self._bytes_of_fields = 0
        self._is_whole = False
        # Of the part that is arriving.
        self._header = bytearray()
        self._header_value = bytearray()
        self._disposition = b""
        self._name: str | None = None
        self._is_file = False
        self._value = bytearray()

    async def read(self, request: Request, boundary: bytes) -> None:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._take_header,
                "on_header_value": self._take_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._take,
                "on_part_end": self._end,
                "on_end": self._finish,
            },
        )
        async for piece in request.stream():
            parser.write(piece)
        if not self._is_whole:
            raise FormParserError

    def form(self) -> Form:
        return Form(self._fields)

    def file(self) -> File:
        return File(self._file_name or "", bytes(self._file))

    def _begin(self) -> None:
        self._count += 1
        if self._count > FIELDS_MAX:
            raise FormParserError
        self._disposition = b""
        self._name = None
        self._is_file = False
        self._value.clear()

    def _take_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _take_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header.clear()
        self._header_value.clear()

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode(errors="replace")
        if b"filename" not in options:
            return
        if self._file_name is not None:
            raise HTTPException(400, "Choose one file; these are several")
        self._is_file = True
        self._file_name = _file_name(options[b"filename"])

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            if len(self._file) + end - start > self._file_bytes_max:
                raise _too_large(self._file_bytes_max)
            self._file += data[start:end]
            return
        self._bytes_of_fields += end - start
        if self._bytes_of_fields > BODY_BYTES_MAX:
            raise HTTPException(413, "This form is too large")
        self._value += data[start:end]

    def _end(self) -> None:
        if not self._is_file and self._name is not None:
            self._fields.setdefault(self._name, []).append(self._value.decode(errors="replace"))

    def _finish(self) -> None:
        self._is_whole = True


def _file_name(given: bytes) -> str:
    """Return what a file is called, without the folders that some browsers name too."""
    name = PureWindowsPath(_UNPRINTABLE.sub(" ", given.decode(errors="replace"))).name
    return name[:FILE_NAME_MAX].strip()
