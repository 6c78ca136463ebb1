"""CSV downloads whose cells no spreadsheet takes for formulas."""

import csv
import io
import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tumira.html.page import HEADERS, PRIVATE

# A spreadsheet calculates what begins so; a phone number it would at most show without its plus. Where it
# expects semicolons, as in South Africa, or tabs, a cell begins behind each of those too, and a row behind
# the end of each line, because our quotes do not stand where it looks for them.
_FORMULA: Final = re.compile(
    '(\\A|[;\\t\\r\\n|])(?!\\+[0-9]{7,15}\\Z)(?="*[=+\\-@|%\uff1d\uff0b\uff0d\uff20])',
)


def neutral(cell: str) -> str:
    return _FORMULA.sub(r"\1'", cell)


def write_rows(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows:
        writer.writerow(["" if cell is None else neutral(str(cell)) for cell in row])
    return text.getvalue().encode()


def download(request: Request, name: str, pieces: AsyncIterator[bytes]) -> Response:
    headers = {**HEADERS, **PRIVATE, "Content-Disposition": f'attachment; filename="{name}"'}
    if request.method == "HEAD":
        return Response(media_type="text/csv", headers=headers)
    return StreamingResponse(pieces, media_type="text/csv", headers=headers)
