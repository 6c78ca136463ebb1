"""Bodies of posted forms: read within bounds, fields as text and a file as bytes."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Final
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from tumira.core.translation import _

BODY_BYTES_MAX: Final = 256 * 1024
FIELDS_MAX: Final = 100
FILE_BYTES_MAX: Final = 5 * 1024 * 1024
FILE_NAME_MAX: Final = 100
# Five megabytes take this long on a slow line.
UPLOAD_S: Final = 600

# What PostgreSQL cannot store. Halves of surrogate pairs cannot come out of UTF-8.
_NUL: Final = "\x00"
_LINE_END: Final = re.compile(r"\r\n?")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]+")


class FormBody:
    """The values of each field, as WTForms reads them."""

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def getlist(self, name: str) -> list[str]:
        # A form sends the end of a line as two characters.
        return [_LINE_END.sub("\n", value).replace(_NUL, "") for value in self._fields.get(name, ())]

    def raw(self, name: str) -> str:
        return next(iter(self.getlist(name)), "")

    def text(self, name: str) -> str:
        return self.raw(name).strip()


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > bytes_max:
                raise HTTPException(413, _("This is too much for one form. Shorten it and try again"))
    except ClientDisconnect as error:
        # The client is gone; this only ends the request in good order.
        raise HTTPException(
            400, _("Part of the form was lost on the way. Go back and send it again")
        ) from error
    return bytes(body)


async def read_fields(request: Request) -> FormBody:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, _("Open the page again and use its form"))
    body = await read_body(request)
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="replace", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise HTTPException(400, _("This form cannot be read. Go back and send it again")) from error
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return FormBody(fields)


@dataclass(frozen=True, slots=True)
class File:
    """An uploaded file; without a name and empty if none was chosen."""

    name: str
    data: bytes


async def read_upload(request: Request, file_bytes_max: int = FILE_BYTES_MAX) -> tuple[FormBody, File]:
    """Read a posted form with a file; nothing is kept of a file that is too large."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise HTTPException(415, _("Open the page again and choose the file there"))
    declared = request.headers.get("content-length", "0")
    # A client that declares too much need not send it.
    if declared.isdecimal() and int(declared) > file_bytes_max + BODY_BYTES_MAX:
        raise _too_large(file_bytes_max)
    parts = _Parts(file_bytes_max)
    try:
        async with asyncio.timeout(UPLOAD_S):
            await parts.read(request, boundary)
    except TimeoutError as error:
        raise HTTPException(
            408, _("The file took too long to upload. Try again on a faster connection")
        ) from error
    except (FormParserError, ClientDisconnect) as error:
        raise HTTPException(
            400, _("Part of the form was lost on the way. Go back and send it again")
        ) from error
    return parts.form(), parts.file()


def _too_large(file_bytes_max: int) -> HTTPException:
    megabytes = file_bytes_max // (1024 * 1024)
    return HTTPException(
        413,
        _("The file is larger than {megabytes} MB. Split it into smaller files").format(megabytes=megabytes),
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
        # The part that is arriving.
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

    def form(self) -> FormBody:
        return FormBody(self._fields)

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
        _kind, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode(errors="replace")
        if b"filename" not in options:
            return
        if self._file_name is not None:
            raise HTTPException(400, _("Choose one file at a time"))
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
            raise HTTPException(413, _("This is too much for one form. Shorten it and try again"))
        self._value += data[start:end]

    def _end(self) -> None:
        if not self._is_file and self._name is not None:
            self._fields.setdefault(self._name, []).append(self._value.decode(errors="replace"))

    def _finish(self) -> None:
        self._is_whole = True


def _file_name(given: bytes) -> str:
    """Return the name without the folders that some browsers send."""
    name = PureWindowsPath(_UNPRINTABLE.sub(" ", given.decode(errors="replace"))).name
    return name[:FILE_NAME_MAX].strip()
