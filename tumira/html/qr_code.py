"""QR codes for pages, as the path of an inline SVG, which the Content-Security-Policy allows."""

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final

import segno

# A code of 45 by 45 modules, the largest that a phone reads easily off a screen.
BYTES_MAX: Final = 154
CACHED_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class QrCode:
    """The strokes of the dark modules, and how many modules the code is wide."""

    path: str
    size: int


async def draw(text: str, *, secret: bool = False) -> QrCode | None:
    """Draw a text; None for a text that is too long to be read off a screen. A secret is not cached."""
    if len(text.encode()) > BYTES_MAX:
        return None
    # It takes about 30 ms, for which no other request should wait.
    return await asyncio.to_thread(_draw if secret else _draw_cached, text)


def _draw(text: str) -> QrCode:
    # The lowest error correction: nothing covers a part of a screen.
    code = segno.make(text, error="l", micro=False)
    strokes = []
    for y, row in enumerate(code.matrix):
        x = 0
        for dark, run in groupby(row):
            length = len(list(run))
            if dark:
                strokes.append(f"M{x} {y}.5h{length}")
            x += length
    return QrCode("".join(strokes), len(code.matrix))


_draw_cached: Final = lru_cache(maxsize=CACHED_MAX)(_draw)
