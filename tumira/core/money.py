"""Amounts of money, as they are written and as operators type them.

Amounts are `Decimal` US dollars with at most four decimals, from the database to the JSON answer; no float
ever touches one.
"""

import re
from decimal import Decimal
from typing import Final

CURRENCY: Final = "USD"

# Ten digits are far more than any balance and leave every sum inside the 28 digits of Decimal's arithmetic.
# The classes name ASCII digits because `\d` and Decimal() both take digits of other scripts.
_PLAIN: Final = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,4})?")


def write(amount: Decimal) -> str:
    """Write an amount with exactly four decimals, as in `0.0400`."""
    text = str(amount)
    if text[-5:-4] == "." and text[-4:].isdigit() and text[0] != "-":
        # An amount from the database has four decimals already; to look is cheaper than to format.
        return text
    assert amount.is_finite()
    # `z` because a zero that kept a minus sign from a subtraction would read as a debt.
    text = f"{amount:z.4f}"
    # A fifth decimal would mean that money was made or lost by rounding somewhere above.
    assert Decimal(text) == amount
    return text


def parse(text: str) -> Decimal | None:
    """Read a plain amount such as `5` or `12.50`; None for `1e3` or `5,00`, whose meaning is not certain."""
    return Decimal(text) if _PLAIN.fullmatch(text) else None
