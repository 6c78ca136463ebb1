"""Places in a message, such as `{name}`, that are filled with values."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tumira.core.translation import _
from tumira.pricing.gsm7 import is_blank

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class MessageError(ValueError):
    """A message cannot be sent to any row; the words say what to do."""


class Places(Struct, frozen=True):
    """A message, taken apart: the text between its places, one piece more than there are places."""

    pieces: Sequence[str]
    # As written between the braces.
    names: Sequence[str]


def read_places(message: str) -> Places:
    """Take a message apart at its places; a MessageError says what is wrong with it."""
    if is_blank(message):
        raise MessageError(_("Write the message."))
    pieces: list[str] = [""]
    names: list[str] = []
    end = 0
    for found in _PIECE.finditer(message):
        pieces[-1] += message[end : found.start()]
        end = found.end()
        if found[0] in {"{{", "}}"}:
            pieces[-1] += found[0][0]
        elif found[1] is None:
            raise MessageError(
                _(
                    "Put column names between braces, for example {example}. To send a brace, write it "
                    "twice: {braces}."
                ).format(example="{name}", braces=found[0] * 2)
            )
        else:
            names.append(found[1])
            pieces.append("")
    pieces[-1] += message[end:]
    return Places(pieces, names)


def without_places(text: str) -> str:
    """Write a text as a message that says exactly this and has no places."""
    return text.replace("{", "{{").replace("}", "}}")
