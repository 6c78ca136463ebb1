"""Rules for a sender name: its length and its characters, and the kinds of paper that support it.

The GSM address field has room for 11 characters. `@`, `$` and `_` have other code points in GSM-7 than in
ASCII, so a carrier that does not translate them would show something else.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tumira.core.translation import _

NAME_MIN: Final = 3
NAME_MAX: Final = 11
NOTE_MIN: Final = 10
NOTE_MAX: Final = 500
PAPER_BYTES_MAX: Final = 2 * 1024 * 1024

_ALLOWED: Final = re.compile(r"[A-Za-z0-9 .&-]*")
_LETTER: Final = re.compile(r"[A-Za-z]")
_SPACES: Final = re.compile(r"^ | $|  ")

# By the octets with which a file begins, whatever its name says.
_PAPERS: Final = (
    (b"%PDF-", "application/pdf"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
)
PAPER_ENDINGS: Final = {"application/pdf": "pdf", "image/jpeg": "jpg", "image/png": "png"}


class NameRule(Struct, frozen=True):
    """A rule in words, and whether a name keeps it."""

    words: str
    is_kept: bool


def list_rules(name: str) -> Sequence[NameRule]:
    """Return all rules for a name as it is typed."""
    return [
        NameRule(
            _("{least} to {most} characters").format(least=NAME_MIN, most=NAME_MAX),
            NAME_MIN <= len(name) <= NAME_MAX,
        ),
        NameRule(
            _("Only letters A to Z, digits, spaces and the signs - . &"), bool(_ALLOWED.fullmatch(name))
        ),
        NameRule(_("At least one letter"), bool(_LETTER.search(name))),
        NameRule(_("No space at the beginning or the end, and no two in a row"), not _SPACES.search(name)),
    ]


def check_name(name: str) -> str | None:
    """Say what is wrong with a name; None if it keeps all rules."""
    broken = [rule.words for rule in list_rules(name) if not rule.is_kept]
    return _("A sender name must have: {rules}.").format(rules="; ".join(broken)) if broken else None


def paper_type(data: bytes) -> str | None:
    """Return the media type of a paper by its content; None if it is neither PDF nor JPEG nor PNG."""
    return next((kind for start, kind in _PAPERS if data.startswith(start)), None)
