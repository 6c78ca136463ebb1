"""How would a carrier's id in a receipt have to be read to be the one that it answered a submit with?

Where receipts are matched without anybody, only what is safe is tried: case, leading zeros, decimal and
hexadecimal. Here an operator is shown what else may be behind an id that matches nothing.
"""

import re
from typing import Final

from tumira.delivery.receipt_rules import key, spellings

# Fewer characters than these that two ids share at an end say nothing.
_SHARED_MIN: Final = 4
# Longer than a UUID as a number.
_NUMBER_MAX: Final = 40
# What is put in front of an id or behind it is shown, and a carrier may send us anything.
_ADDED_MAX: Final = 32
_LOW_32_BITS: Final = 2**32 - 1
_OCTET_DIGITS: Final = 2

_SEPARATORS: Final = re.compile(r"[\W_]+")
_DECIMAL: Final = re.compile(r"-?[0-9]+")
_HEXADECIMAL: Final = re.compile(r"(?:0x)?[0-9a-f]+")

SAME: Final = ""


def condition(in_receipt: str, in_answer: str) -> str | None:
    """Return how the id of a receipt would have to be read, as in “the id were written in hexadecimal”.

    Nothing (SAME) when the two are one as they stand, None when they have nothing in common.
    """
    receipt, answer = _fold(in_receipt), _fold(in_answer)
    if key(receipt) == key(answer):
        return SAME
    return (
        _by_base(receipt, answer)
        or _by_separators(receipt, answer)
        or _by_bits(receipt, answer)
        or _by_octets(receipt, answer)
        or _by_ends(receipt, answer)
    )


def _fold(identifier: str) -> str:
    return identifier.strip("\0 \t\r\n").casefold()


def _by_base(receipt: str, answer: str) -> str | None:
    """Compare the two as numbers."""
    plain = key(answer)
    same, *others = spellings(receipt)
    if plain not in others:
        return None
    is_decimal = same.isdecimal() and plain == f"{int(same):x}"
    return "the id were written in hexadecimal" if is_decimal else "the id were read as hexadecimal"


def _by_separators(receipt: str, answer: str) -> str | None:
    """Compare the two without what stands between their letters and digits, and without `0x`."""
    bare_receipt, bare_answer = _bare(receipt), _bare(answer)
    if (bare_receipt, bare_answer) == (receipt, answer) or not bare_receipt or not bare_answer:
        return None
    has_prefix = receipt.startswith("0x") or answer.startswith("0x")
    left_out = "its 0x did not count" if has_prefix else "only its letters and digits counted"
    if key(bare_receipt) == key(bare_answer):
        return (
            "0x in front of the id did not count"
            if has_prefix
            else "only the letters and digits of the id counted"
        )
    base = _by_base(bare_receipt, bare_answer)
    return None if base is None else f"{base}, and {left_out}"


def _bare(identifier: str) -> str:
    return _SEPARATORS.sub("", identifier).removeprefix("0x")


def _by_bits(receipt: str, answer: str) -> str | None:
    """Compare the two as numbers that somebody kept in 32 bits, with a sign or without."""
    cut = {number & _LOW_32_BITS for number in _numbers(receipt)}
    if cut & {number & _LOW_32_BITS for number in _numbers(answer)} - {0}:
        return "only the last 32 bits of the id counted"
    return None


def _numbers(identifier: str) -> set[int]:
    if len(identifier) > _NUMBER_MAX:
        return set()
    numbers = set()
    if _DECIMAL.fullmatch(identifier):
        numbers.add(int(identifier))
    if _HEXADECIMAL.fullmatch(identifier):
        numbers.add(int(identifier, 16))
    return numbers


def _by_octets(receipt: str, answer: str) -> str | None:
    """Compare the two as numbers of which one was written from its low end."""
    if len(receipt) != len(answer) or not _SHARED_MIN <= len(receipt) <= _NUMBER_MAX or len(receipt) % 2:
        return None
    octets = [receipt[at : at + _OCTET_DIGITS] for at in range(0, len(receipt), _OCTET_DIGITS)]
    return "the octets of the id were read in reverse" if "".join(reversed(octets)) == answer else None


def _by_ends(receipt: str, answer: str) -> str | None:
    """Look whether one of the two is the other with something in front of it or behind."""
    longer, shorter = (receipt, answer) if len(receipt) > len(answer) else (answer, receipt)
    if len(shorter) < _SHARED_MIN:
        return None
    if longer.endswith(shorter):
        added, place = longer.removesuffix(shorter), "in front"
    elif longer.startswith(shorter):
        added, place = longer.removeprefix(shorter), "at its end"
    else:
        return None
    if len(added) > _ADDED_MAX:
        added = added[:_ADDED_MAX] + "…"
    has = "had not" if longer is receipt else "had"
    return f"the id {has} “{added}” {place}"
