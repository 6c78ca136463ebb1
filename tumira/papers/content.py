"""What stands on a paper: it is stored whole when the paper is made, and printed from that alone."""

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from typing import Final

import msgspec

_CENT: Final = Decimal("0.01")
_DIGITS: Final = 6
_NUMBER: Final = re.compile(r"(?:(INV|REC|CN)-)?([0-9]{6,18})")
_MONTH: Final = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])")


class PaperSeries(StrEnum):
    """A row of numbers without gaps; but those of ENTRY are the numbers of ledger entries."""

    INVOICE = "INV"
    RECEIPT = "REC"
    CREDIT_NOTE = "CN"
    ENTRY = ""


class Party(msgspec.Struct, frozen=True):
    """The seller or the buyer, as named on a paper; what was not known is empty."""

    name: str
    address: str = ""
    tax_number: str = ""
    # A person, a phone number or a web address.
    contacts: Sequence[str] = ()


class PaperContent(msgspec.Struct, frozen=True):
    """An invoice, receipt or credit note."""

    series: PaperSeries
    number: int
    heading: str
    # When the money was credited or taken back: the day of supply.
    at: datetime
    seller: Party
    buyer: Party
    description: str
    total: Decimal
    # In percent and included in the total; None where no tax is shown.
    tax_rate: Decimal | None
    # Names and values, such as how it was paid.
    facts: Sequence[tuple[str, str]]
    # The number of the paper that a credit note corrects.
    corrects: str | None = None

    @property
    def written_number(self) -> str:
        return write_number(self.series, self.number)

    @property
    def tax(self) -> Decimal | None:
        return None if self.tax_rate is None else tax_in(self.total, self.tax_rate)

    @property
    def net(self) -> Decimal:
        return self.total - (self.tax or 0)

    @property
    def written_rate(self) -> str:
        """Return the tax rate as in `15.5`."""
        return f"{(self.tax_rate or Decimal(0)).normalize():f}"


class DayMovements(msgspec.Struct, frozen=True):
    """The movements of one kind on one day: their number, what came and what went."""

    day: date
    kind: str
    count: int
    came: Decimal
    went: Decimal

    @property
    def amount(self) -> Decimal:
        return self.came - self.went


class StatementContent(msgspec.Struct, frozen=True):
    """The parties of a statement, and its movements by day and kind."""

    seller: Party
    buyer: Party
    days: Sequence[DayMovements]


def tax_in(amount: Decimal, rate: Decimal) -> Decimal:
    """Return how much of an amount is tax, rounded to cents."""
    return (amount * rate / (100 + rate)).quantize(_CENT, ROUND_HALF_UP)


def write_number(series: PaperSeries, number: int) -> str:
    """Write a number as in `INV-000123`."""
    return f"{series}-{number:0{_DIGITS}}" if series else f"{number:0{_DIGITS}}"


def read_number(text: str) -> tuple[PaperSeries, int] | None:
    """Read the number of a paper; None if it cannot be one."""
    found = _NUMBER.fullmatch(text)
    return None if found is None else (PaperSeries(found[1] or ""), int(found[2]))


def read_month(text: str) -> date | None:
    """Read a month such as `2026-10` as its first day; None if it cannot be one."""
    found = _MONTH.fullmatch(text)
    return None if found is None else date(int(found[1]), int(found[2]), 1)


def month_after(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def month_before(month: date) -> date:
    return date(month.year - (month.month == 1), (month.month - 2) % 12 + 1, 1)


def write_month(month: date) -> str:
    """Write a month as in `2026-10`."""
    return f"{month:%Y-%m}"
