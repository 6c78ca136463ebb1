"""QR codes as SVG paths."""

import re

import segno

from tumira.html import qr_code
from tumira.identity import totp

LINK = totp.write_uri(bytes(totp.SECRET_BYTES), "+999999999999999")


async def test_the_strokes_cover_the_dark_modules_and_no_others() -> None:
    drawn = await qr_code.draw(LINK)
    assert drawn is not None
    dark = {
        (int(x) + offset, int(y))
        for x, y, length in re.findall(r"M(\d+) (\d+)\.5h(\d+)", drawn.path)
        for offset in range(int(length))
    }
    matrix = segno.make(LINK, error="l", micro=False).matrix
    assert dark == {(x, y) for y, row in enumerate(matrix) for x, module in enumerate(row) if module}
    assert drawn.size == len(matrix)


async def test_a_text_that_is_too_long_for_a_screen_is_not_drawn() -> None:
    longest = await qr_code.draw("x" * qr_code.BYTES_MAX)
    assert longest is not None
    assert longest.size == 45
    assert await qr_code.draw("x" * (qr_code.BYTES_MAX + 1)) is None
