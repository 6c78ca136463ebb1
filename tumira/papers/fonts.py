"""Fonts of PDF files: the standard ones, and DejaVu Sans for letters that these lack.

Every reader has the standard fonts. DejaVu Sans is taken from the system, if it is there, and a file gets
only the letters that it uses. Without it, letters lose their marks.
"""

import unicodedata
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Final

import structlog

PLAIN: Final = "Helvetica"
BOLD: Final = "Helvetica-Bold"
# The letters of these fonts: those of Windows code page 1252.
LETTERS: Final = "cp1252"
# The font in place of each, for texts with other letters, and the end of its file's name.
WIDE: Final = {PLAIN: ("DejaVuSans", ""), BOLD: ("DejaVuSans-Bold", "-Bold")}
# Debian, Fedora, Arch and Alpine have it in different folders.
FOLDERS: Final = (
    Path("/usr/share/fonts/truetype/dejavu"),
    Path("/usr/share/fonts/dejavu-sans-fonts"),
    Path("/usr/share/fonts/TTF"),
    Path("/usr/share/fonts/dejavu"),
)
# Letters from right to left are joined and ordered by rules that are not applied here.
_RIGHT_TO_LEFT: Final = frozenset({"R", "AL", "AN"})
_PLANE: Final = 0x10000

_log: Final = structlog.get_logger()


@cache
def load_wide(folders: tuple[Path, ...] = FOLDERS) -> AbstractSet[str]:
    """Register DejaVu Sans, and return the letters that it can draw; none if the system does not have it."""
    from reportlab.pdfbase.pdfmetrics import registerFont  # noqa: PLC0415 - loaded with the first PDF
    from reportlab.pdfbase.ttfonts import TTFError, TTFont  # noqa: PLC0415

    folder = next((one for one in folders if (one / "DejaVuSans-Bold.ttf").exists()), None)
    if folder is None:
        return frozenset()
    letters: set[str] | None = None
    try:
        for name, end in WIDE.values():
            font = TTFont(name, folder / f"DejaVuSans{end}.ttf")
            registerFont(font)
            found = {chr(code) for code in font.face.charToGlyph if code < _PLANE}
            letters = found if letters is None else letters & found
    except (OSError, TTFError) as error:
        _log.warning("could not read the font for papers", folder=str(folder), error=str(error))
        return frozenset()
    return frozenset(one for one in letters or () if unicodedata.bidirectional(one) not in _RIGHT_TO_LEFT)


def printable(text: str) -> str:
    """Return a text in letters that one of the fonts has: others lose their accents, or become `?`."""
    written = []
    for letter in unicodedata.normalize("NFC", text.replace("\N{MINUS SIGN}", "-")):
        if not letter.isprintable():
            written.append(" ")
            continue
        plain = "".join(
            one for one in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(one)
        )
        written.append(next((one for one in (letter, plain, "?") if one and _has(one)), ""))
    return "".join(written)


def choose_font(text: str, font: str) -> str:
    """Return the font for a printable text: a standard one, or the one with more letters in its place."""
    return font if _is_standard(text) else WIDE[font][0]


def _has(text: str) -> bool:
    return _is_standard(text) or all(letter in load_wide() for letter in text)


def _is_standard(text: str) -> bool:
    try:
        text.encode(LETTERS)
    except UnicodeEncodeError:
        return False
    return True
