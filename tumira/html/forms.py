"""What did somebody fill in? Reads posted forms, bounded, as text alone."""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

BODY_BYTES_MAX: Final = 256 * 1024
FIELDS_MAX: Final = 100

# What PostgreSQL cannot store. Halves of surrogate pairs cannot come out of UTF-8.
_NUL: Final = "\x00"
_LINE_END: Final = re.compile(r"\r\n?")


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
