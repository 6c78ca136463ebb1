"""How does a page show something to a camera? As a QR code, drawn beside the other work, and kept a while."""

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tumira.html import qr_code

KEPT_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Picture:
    """A QR code: the strokes of its dark modules, and how many modules it is wide."""

    path: str
    size: int


async def draw(text: str) -> Picture | None:
    """Draw a text; None for one that is too long to be read off a screen."""
    if len(text.encode()) > qr_code.BYTES_MAX:
        return None
    # It takes longer than anybody else should wait for their page.
    return await asyncio.to_thread(_draw, text)


@lru_cache(maxsize=KEPT_MAX)
def _draw(text: str) -> Picture:
    rows = qr_code.draw(text)
    return Picture(qr_code.write_path(rows), len(rows))
