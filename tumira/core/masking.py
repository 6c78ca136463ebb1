"""What may a log line say? Numbers are masked, and what an error quotes is left out: it may be a text."""

import re
from typing import Final

# Enough to tell networks apart, and numbers that failed; not enough to call anybody.
_HEAD: Final = 5
_TAIL: Final = 3
# With a plus, or as carriers write it, without; digits beside letters are those of an id.
_NUMBER: Final = re.compile(r"\+[0-9]{7,15}|(?<![\w.])[0-9]{10,15}(?!\w)")
# What Python and PostgreSQL put between quotes is a value, unless it is the plain name of a column or so.
# One that is not closed was cut off. An apostrophe inside of a word is none.
_QUOTED: Final = re.compile(
    r"(?<!\w)(?P<prefix>b?)(?:'(?:[^'\\]|\\.)*(?:'|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z))", re.DOTALL
)
_NAME: Final = re.compile(r'"[a-z_][a-z0-9_]{0,62}"')
# An error as Python writes it, whose arguments are its words, and those whose arguments are values.
_WRITTEN: Final = re.compile(r"(?P<type>[\w.]+)\((?P<words>.*)\)", re.DOTALL)
_OF_VALUES: Final = frozenset({"KeyError", "UnicodeDecodeError", "UnicodeEncodeError"})
_LEFT_OUT: Final = "…"


def mask_numbers(text: str) -> str:
    """Return a text with the middle of every phone number hidden: `+26377•••567`."""
    return _NUMBER.sub(_mask, text)


def _mask(found: "re.Match[str]") -> str:
    number = found[0]
    plus = "+" if number.startswith("+") else ""
    digits = number.removeprefix("+")
    head, tail = (_HEAD, _TAIL) if len(digits) > _HEAD + _TAIL else (2, 2)
    return f"{plus}{digits[:head]}•••{digits[-tail:]}"


def without_quotes(text: str) -> str:
    """Return what an error says, without what it quotes but for the names of columns and the like."""
    return mask_numbers(_QUOTED.sub(_leave_out, text))


def _leave_out(found: "re.Match[str]") -> str:
    quoted = found[0]
    return quoted if _NAME.fullmatch(quoted) else _emptied(found)


def _emptied(found: "re.Match[str]") -> str:
    mark = found[0][len(found["prefix"])]
    return found["prefix"] + mark + _LEFT_OUT + mark


def masked_error(written: str) -> str:
    """Return an error as `repr` writes it, without what its words quote."""
    shape = _WRITTEN.fullmatch(written)
    if shape is None:
        return without_quotes(written)
    if shape["type"] in _OF_VALUES:
        return f"{shape['type']}({_LEFT_OUT})"
    return f"{shape['type']}({_QUOTED.sub(_shorten, shape['words'])})"


def _shorten(found: "re.Match[str]") -> str:
    """Return one argument of an error, which is a sentence, without what that quotes."""
    is_value = found["prefix"] or found.string[max(0, found.start() - 1) : found.start()] == "="
    quoted = found[0]
    if is_value or len(quoted) == 1 or quoted[-1] != quoted[0]:
        return _emptied(found)
    words = quoted[1:-1].replace("\\'", "'").replace('\\"', '"')
    return quoted[0] + without_quotes(words) + quoted[-1]
