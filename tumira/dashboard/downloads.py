"""CSV downloads of long lists, read a piece at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response

from tumira.dashboard.session import CustomerSession
from tumira.html.tables import download, write_rows

# Writing this many rows takes a few milliseconds, during which no other request is answered.
PIECE: Final = 250
ROWS_MAX: Final = 100_000
# A search that finds little looks through many rows for each that it finds.
PIECES_MAX: Final = 1_000

Row = Sequence[object]
Cursor = TypeVar("Cursor")


def download_list(
    session: CustomerSession,
    name: str,
    columns: Sequence[str],
    read: Callable[[Cursor | None, int], Awaitable[tuple[Sequence[Row], Cursor | None]]],
    byte_order_mark: bytes = b"",
) -> Response:
    """Send the rows that `read` returns, from the beginning on, until it returns no cursor for more."""

    async def pieces() -> AsyncIterator[bytes]:
        yield byte_order_mark + write_rows([columns])
        cursor: Cursor | None = None
        left = ROWS_MAX
        for _ in range(PIECES_MAX):
            # The connection is released before the piece is sent, so a slow reader blocks nobody.
            async with session.services.downloads:
                rows, cursor = await read(cursor, min(PIECE, left))
            left -= len(rows)
            yield write_rows(rows)
            if cursor is None or not left:
                return

    return download(session.request, name, pieces())
