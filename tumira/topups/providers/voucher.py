"""What the voucher issuers share: strict reading of their answers, references, and failed calls."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from tumira.core.ids import TOP_UP, write_id
from tumira.topups.states import (
    TOP_UP_MAX,
    TOP_UP_MIN,
    FailureReason,
    NotPaid,
    PaymentInDoubt,
    ProviderAnswer,
    TopUp,
    to_usd,
)
from tumira.topups.voucher_pins import ChangeVoucher

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
    """Read rand from a whole number of cents above zero."""
    cents = read_code(value)
    return None if cents is None or not 0 < cents < 10**9 else Decimal(cents) * _CENT


def read_rand(value: Any) -> Decimal | None:
    """Read an amount such as `1,000.0000`; None for a fraction of a cent and for anything else."""
    text = value if isinstance(value, str) else str(value) if type(value) in {int, Decimal} else ""
    if not _RAND.fullmatch(text):
        return None
    amount = Decimal(text.replace(",", ""))
    cents = amount.quantize(_CENT)
    return cents if cents == amount and cents > 0 else None


def is_true(value: Any) -> bool:
    """Read a boolean that may be written as a word."""
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def read_reference(value: Any, pin: str, ours: str) -> str:
    """Return the issuer's reference, or ours where theirs is missing, unprintable or contains the PIN."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    is_fit = 0 < len(text) <= _REFERENCE_MAX and text.isprintable() and pin not in text
    return text if is_fit else ours


def read_replacement(pin: Any, cents: Any, expires: Any = None) -> ChangeVoucher | None:
    """Return a change voucher; None where it has no PIN."""
    if not isinstance(pin, str | int) or isinstance(pin, bool) or not str(pin).strip():
        return None
    expiry = expires[:_EXPIRY_MAX] if isinstance(expires, str) else None
    return ChangeVoucher(str(pin).strip(), read_cents(cents), expiry)


def mask(words: Any) -> str:
    """Return an issuer's message for the operator with digits masked: it may repeat a PIN."""
    text = words if isinstance(words, str) else ""
    visible = "".join(one if one.isprintable() else " " for one in text)
    return re.sub(r"\d", "#", " ".join(visible.split())[:_WORDS_MAX])


# An issuer repeats its answer to a repeated reference for this long.
REPLAYED_FOR: Final = timedelta(minutes=30)
TOO_LATE: Final = "the issuer no longer repeats its answer, and the outcome is unknown"

FORBIDDEN: Final = (401, 403)
FAILURES: Final = 500


def reference_of(top_up: TopUp) -> str:
    """Return the reference that the issuer gets for a top-up: letters, digits and a hyphen."""
    return write_id(TOP_UP, top_up.id).replace("_", "-")


def not_sent(problem: str, *, is_first: bool) -> ProviderAnswer:
    """Return the answer for a call that did not arrive: nothing was taken, unless by an earlier call."""
    return NotPaid(FailureReason.NEVER_ARRIVED, problem) if is_first else PaymentInDoubt(problem)


def check_value(value: Decimal, top_up: TopUp) -> NotPaid | None:
    """Return why a voucher of this value is refused; None where it is accepted."""
    amount = to_usd(value, top_up.rate)
    if amount < TOP_UP_MIN:
        return NotPaid(FailureReason.VALUE_TOO_SMALL, f"it is worth {value} rand, less than US${TOP_UP_MIN}")
    if amount > TOP_UP_MAX:
        return NotPaid(FailureReason.VALUE_TOO_LARGE, f"it is worth {value} rand, more than US${TOP_UP_MAX}")
    return None


@dataclass(frozen=True, slots=True)
class ChangeNames:
    pin: str
    cents: str
    expires: str = ""
