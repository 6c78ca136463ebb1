"""The words of a reply that opt its sender out, or in again."""

import unicodedata
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

WORD_MAX: Final = 40
# A longer reply is no keyword; only its beginning is looked at.
_LOOKED_AT_MAX: Final = 200


class Meaning(StrEnum):
    STOP = "stop"
    START = "start"
    # A word that opts out in another language, but is not active.
    MAYBE_STOP = "maybe_stop"


class Keyword(Struct, frozen=True):
    word: str
    meaning: Meaning
    language: str
    # A word that is not active is only shown beside the reply.
    is_active: bool
    # It also counts as the first of several words.
    leads: bool


def fold(text: str) -> str:
    """Return the words of a text in lower case, without accents and punctuation, with one space between."""
    decomposed = unicodedata.normalize("NFKD", text[:_LOOKED_AT_MAX]).casefold()
    kept = (
        one if one.isalnum() else " "
        for one in decomposed
        # Accents, and the marks of direction and joining that phones put in.
        if unicodedata.category(one) not in {"Mn", "Cf"}
    )
    return " ".join("".join(kept).split())


class Keywords:
    """The keywords of the operator, indexed once."""

    def __init__(self, words: Sequence[Keyword]) -> None:
        self._words: Mapping[str, Keyword] = {one.word: one for one in words}

    def read(self, text: str) -> Meaning | None:
        """Return what a reply asks for: the whole reply is a keyword, or begins with a keyword that leads."""
        if len(text) > _LOOKED_AT_MAX:
            text = text.lstrip()
        folded = fold(text)
        found = self._words.get(folded) if len(text) <= _LOOKED_AT_MAX else None
        if found is None:
            first = self._words.get(folded.partition(" ")[0])
            found = first if first is not None and first.leads else None
        if found is None:
            return None
        if found.is_active:
            return found.meaning
        return Meaning.MAYBE_STOP if found.meaning is Meaning.STOP else None
