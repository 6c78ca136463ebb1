"""Marks the texts of pages, to list and later translate them. English is the only language so far.

`make catalogue` lists all marked texts, those of templates included.
"""

from gettext import NullTranslations
from typing import Final

# A language will be chosen per request; until then every text is shown as it is written.
_CATALOGUE: Final = NullTranslations()


def _(text: str) -> str:
    """Return a text in the reader's language."""
    return _CATALOGUE.gettext(text)


def ngettext(one: str, many: str, number: int) -> str:
    """Return the form of a text for a number, in the reader's language."""
    return _CATALOGUE.ngettext(one, many, number)


def mark(text: str) -> str:
    """Mark a text that is kept in a constant, and is translated where it is shown."""
    return text
