"""What did an issuer of vouchers answer? Read so that nothing is taken for what it is not."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from tumira.topups.voucher_pins import Change

_NOTHING: Final[Mapping[str, Any]] = {}
_WHOLE: Final = re.compile("[0-9]{1,9}")
# With commas between the thousands or without, and up to four decimals.
_RAND: Final = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,2}|[0-9]{1,9})(?:\.[0-9]{1,4})?")
_CENT: Final = Decimal("0.01")
_REFERENCE_MAX: Final = 100
_WORDS_MAX: Final = 80
_EXPIRY_MAX: Final = 40


def read_object(body: bytes) -> Mapping[str, Any]:
    """Read a JSON object; an empty one for anything else."""
    try:
        told = json.loads(body, parse_float=Decimal)
    except (ValueError, RecursionError):
        return _NOTHING
    return told if isinstance(told, dict) else _NOTHING


def read_code(value: Any) -> int | None:
    """Read a code that is a number, or a number as a text."""
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    return value if type(value) is int else None


def read_cents(value: Any) -> Decimal | None:
    """Read rand from an amount in cents; None for what is no whole number of them above zero."""
    cents = read_code(value)
    return None if cents is None or not 0 < cents < 10**9 else Decimal(cents) * _CENT


def read_rand(value: Any) -> Decimal | None:
    """Read an amount such as `1,000.0000`; None for one with a part of a cent, and for what is none."""
    text = value if isinstance(value, str) else str(value) if type(value) in {int, Decimal} else ""
    if not _RAND.fullmatch(text):
        return None
    amount = Decimal(text.replace(",", ""))
    cents = amount.quantize(_CENT)
    return cents if cents == amount and cents > 0 else None


def is_true(value: Any) -> bool:
    """Read a yes that may be the word instead of the truth value."""
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def read_reference(value: Any, pin: str, ours: str) -> str:
    """Return what the issuer calls it, or what we call it where that says nothing, or too much."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    is_fit = 0 < len(text) <= _REFERENCE_MAX and text.isprintable() and pin not in text
    return text if is_fit else ours


def read_replacement(pin: Any, cents: Any, expires: Any = None) -> Change | None:
    """Return a change voucher; None where there is no PIN, without which it is none."""
    if not isinstance(pin, str | int) or isinstance(pin, bool) or not str(pin).strip():
        return None
    expiry = expires[:_EXPIRY_MAX] if isinstance(expires, str) else None
    return Change(str(pin).strip(), read_cents(cents), expiry)


def mask(words: Any) -> str:
    """Return an issuer's words for the operator, without any digit: an issuer may repeat a PIN in them."""
    text = words if isinstance(words, str) else ""
    visible = "".join(one if one.isprintable() else " " for one in text)
    return re.sub(r"\d", "#", " ".join(visible.split())[:_WORDS_MAX])
