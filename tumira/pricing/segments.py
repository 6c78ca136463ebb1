"""Segments of a text: encoding, count, and where the text is cut.

The alphabet is that of GSM 03.38 (3GPP TS 23.038, section 6.2.1). A text with any other character goes as
UCS-2 and is counted in UTF-16 code units. Texts are never normalised: that could change what they cost.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

from msgspec import Struct

SEGMENTS_MAX: Final = 5

BASIC: Final = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
# Sent as ESC and a code, so each takes two septets. ESC itself is no character and is in neither table.
EXTENSION: Final = "\f^{}\\[~]|€"
_ESCAPE: Final = "\x1b"

_ALL_BASIC: Final = re.compile(f"[{re.escape(BASIC)}]*")
_ALL_GSM_7: Final = re.compile(f"[{re.escape(BASIC + EXTENSION)}]*")
_NOT_GSM_7: Final = re.compile(f"[^{re.escape(BASIC + EXTENSION)}]")
_ONE_EXTENSION: Final = re.compile(f"[{re.escape(EXTENSION)}]")

_SEPTETS_SINGLE: Final = 160
_SEPTETS_PART: Final = 153
_UNITS_SINGLE: Final = 70
_UNITS_PART: Final = 67
# The high bytes of the units DC00 to DFFF.
_LOW_SURROGATE: Final = range(0xDC, 0xE0)


class Encoding(StrEnum):
    GSM_7 = "GSM-7"
    UCS_2 = "UCS-2"


class Measure(Struct, frozen=True):
    """The size of a text; `characters` are the septets or UTF-16 units that count against the limit."""

    segments: int
    encoding: Encoding
    characters: int


# Nearly every text is one of these; a lookup costs a tenth of building it.
_ONE_GSM_7: Final = tuple(Measure(1, Encoding.GSM_7, septets) for septets in range(_SEPTETS_SINGLE + 1))


def measure(text: str) -> Measure:
    if _ALL_BASIC.fullmatch(text):
        septets = len(text)
    elif _ALL_GSM_7.fullmatch(text):
        septets = len(text) + len(_ONE_EXTENSION.findall(text))
    else:
        units = _utf_16(text)
        return Measure(len(_cut_units(units)) - 1, Encoding.UCS_2, len(units) // 2)
    if septets <= _SEPTETS_SINGLE:
        return _ONE_GSM_7[septets]
    return Measure(len(_cut_septets(_escape(text))) - 1, Encoding.GSM_7, septets)


def parts(text: str) -> Sequence[str]:
    if _ALL_GSM_7.fullmatch(text):
        escaped = _escape(text)
        cuts = _cut_septets(escaped)
        return [escaped[start:end].replace(_ESCAPE, "") for start, end in pairwise(cuts)]
    units = _utf_16(text)
    cuts = _cut_units(units)
    return [units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass") for start, end in pairwise(cuts)]


def ucs2_characters(text: str) -> Sequence[str]:
    """List the characters that force a text into UCS-2, each once, as they come."""
    return tuple(dict.fromkeys(_NOT_GSM_7.findall(text)))


def room(text: str) -> int:
    """Count the septets or UTF-16 units that are still free in the last segment of a text."""
    if _ALL_GSM_7.fullmatch(text):
        cuts, single, part = _cut_septets(_escape(text)), _SEPTETS_SINGLE, _SEPTETS_PART
    else:
        cuts, single, part = _cut_units(_utf_16(text)), _UNITS_SINGLE, _UNITS_PART
    return (single if len(cuts) == 2 else part) - (cuts[-1] - cuts[-2])  # noqa: PLR2004 - The start and the end.


def _escape(text: str) -> str:
    """Write a text of the GSM-7 alphabet with one character for each septet."""
    for character in EXTENSION:
        text = text.replace(character, _ESCAPE + character)
    return text


def _cut_septets(escaped: str) -> Sequence[int]:
    """Return where the parts begin and where the last one ends."""
    if len(escaped) <= _SEPTETS_SINGLE:
        return (0, len(escaped))
    cuts = [0]
    while len(escaped) - cuts[-1] > _SEPTETS_PART:
        cut = cuts[-1] + _SEPTETS_PART
        # A handset joins the parts after decoding each: an ESC at the end of one would lose its code.
        cuts.append(cut - 1 if escaped[cut - 1] == _ESCAPE else cut)
    return (*cuts, len(escaped))


def _utf_16(text: str) -> bytes:
    """Encode a text; a lone surrogate, which API and pages refuse, counts as one unit instead of failing."""
    return text.encode("utf-16-le", "surrogatepass")


def _cut_units(units: bytes) -> Sequence[int]:
    """Return the UTF-16 units at which the parts begin and the last one ends."""
    length = len(units) // 2
    if length <= _UNITS_SINGLE:
        return (0, length)
    cuts = [0]
    while length - cuts[-1] > _UNITS_PART:
        cut = cuts[-1] + _UNITS_PART
        # A low surrogate belongs to the unit before it; a unit's high byte comes second here.
        cuts.append(cut - 1 if units[2 * cut + 1] in _LOW_SURROGATE else cut)
    return (*cuts, length)
