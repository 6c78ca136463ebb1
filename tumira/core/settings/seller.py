"""Who sells: what receipts, the terms and the contact page say about the operator's business."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tumira.core.errors import OperatorError

PREFIX: Final = "TUMIRA_SELLER_"
NAME_MAX: Final = 100
ADDRESS_MAX: Final = 300
TAX_NUMBER_MAX: Final = 40

_RATE: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,2})?")
_COUNTRY: Final = re.compile(r"[A-Z]{2}")


@dataclass(frozen=True, slots=True)
class Seller:
    """The business behind the gateway; None for what the operator does not give."""

    name: str | None = None
    address: str | None = None
    tax_number: str | None = None
    # In percent, and included in every amount; None where the country's rate counts.
    tax_rate: Decimal | None = None
    # Where the seller is registered for tax.
    country: str | None = None


NO_SELLER: Final = Seller()


def read_seller(values: Mapping[str, str]) -> Seller:
    seller = Seller(
        name=_line(values, "NAME", NAME_MAX),
        address=_line(values, "ADDRESS", ADDRESS_MAX),
        tax_number=_line(values, "TAX_NUMBER", TAX_NUMBER_MAX),
        tax_rate=_tax_rate(values),
        country=_country(values),
    )
    if seller != NO_SELLER and seller.name is None:
        raise OperatorError(f"{PREFIX}NAME is not set, and a receipt must say who sells: set it as well.")
    if seller.tax_rate is not None and seller.tax_number is None:
        raise OperatorError(
            f"{PREFIX}TAX_RATE is set, but not {PREFIX}TAX_NUMBER: a receipt with VAT needs both."
        )
    if seller.tax_rate is not None and seller.country is not None:
        raise OperatorError(
            f"{PREFIX}TAX_RATE and {PREFIX}COUNTRY are both set: remove {PREFIX}TAX_RATE to use the rates of "
            "`tumira tax list`."
        )
    return seller


def _line(values: Mapping[str, str], name: str, length_max: int) -> str | None:
    text = values.get(PREFIX + name, "").strip()
    if len(text) > length_max or not text.isprintable():
        raise OperatorError(f"{PREFIX}{name} must be one line of at most {length_max} characters.")
    return text or None


def _country(values: Mapping[str, str]) -> str | None:
    text = values.get(PREFIX + "COUNTRY", "").strip()
    if text and not _COUNTRY.fullmatch(text):
        raise OperatorError(f"{PREFIX}COUNTRY is {text!r}; it must be two letters, such as ZW or ZA.")
    return text or None


def _tax_rate(values: Mapping[str, str]) -> Decimal | None:
    text = values.get(PREFIX + "TAX_RATE", "").strip()
    if not text:
        return None
    rate = Decimal(text) if _RATE.fullmatch(text) else Decimal(0)
    if not rate:
        raise OperatorError(
            f"{PREFIX}TAX_RATE is {text!r}; it must be a percentage below 100, such as 15 or 15.5."
        )
    return rate
