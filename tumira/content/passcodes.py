"""Recognises a passcode by its text, in all languages of the content check."""

import re
from functools import lru_cache
from typing import Final

from tumira.content.normalise import normalise
from tumira.content.service_forms import has_passcode_form

CACHED_TEXTS: Final = 8192
# A longer text is no passcode: three segments.
CHARACTERS_MAX: Final = 3 * 153

_DIGIT: Final = re.compile(r"\d")


def is_passcode(text: str) -> bool:
    """Tell whether a text carries a code that its reader uses at once; texts are judged once for all codes.

    Codes for a parcel, a locker or a voucher, and codes that say they last for hours or days, are not meant:
    they are of use when they arrive late.
    """
    return len(text) <= CHARACTERS_MAX and _is_passcode(_DIGIT.sub("0", text))


@lru_cache(CACHED_TEXTS)
def _is_passcode(text: str) -> bool:
    return "0" in text and has_passcode_form(normalise(text).text)
