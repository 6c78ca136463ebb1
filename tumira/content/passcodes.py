"""Recognises a passcode by its text, in all languages of the content check."""

from functools import lru_cache
from typing import Final

from tumira.content.normalise import normalise
from tumira.content.service_forms import has_passcode_form

CACHED_TEXTS: Final = 8192
# A longer text is no passcode: three segments.
CHARACTERS_MAX: Final = 3 * 153

_ZEROS: Final = str.maketrans("123456789", "000000000")


def is_passcode(text: str) -> bool:
    """Tell whether a text carries a code that its reader uses at once; texts are judged once for all codes.

    Codes for a parcel, a locker or a voucher, and codes that say they last for hours or days, are not meant:
    they are of use when they arrive late.
    """
    return len(text) <= CHARACTERS_MAX and _is_passcode(text.translate(_ZEROS))


def is_normalised_passcode(text: str, normal: str) -> bool:
    """Tell the same of a text of which the normalised form is known."""
    return len(text) <= CHARACTERS_MAX and has_passcode_form(normal)


@lru_cache(CACHED_TEXTS)
def _is_passcode(text: str) -> bool:
    return has_passcode_form(normalise(text).text)
