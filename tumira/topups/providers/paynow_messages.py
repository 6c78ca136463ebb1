"""The messages of Paynow: form fields, their hash, and the meaning of a status.

The hash covers the values in the order of the form, with nothing in between. It proves who sent a body, but
not where one value ends and the next begins.
"""

import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum, auto
from hashlib import sha512
from typing import Final
from urllib.parse import parse_qsl, urlencode

from tumira.core.translation import mark

FIELDS_MAX: Final = 64
HASH: Final = "hash"

_CALLING_CODE: Final = "+263"
_AMOUNT: Final = re.compile(r"[0-9]{1,10}(\.[0-9]{1,4})?", re.ASCII)
_EXPIRES: Final = re.compile(
    r"(?P<day>[0-9]{1,2})-(?P<month>[A-Za-z]{3})[a-z]?-(?P<year>[0-9]{4})"
    r" (?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# Paynow uses the time of Harare, which has no summer time.
_HARARE: Final = timezone(timedelta(hours=2))

Pairs = Sequence[tuple[str, str]]


class Wallet(StrEnum):
    """Where Paynow takes the money from; the values of the wallets are Paynow's own."""

    ECOCASH = "ecocash"
    ONEMONEY = "onemoney"
    INNBUCKS = "innbucks"
    # Not named in the call: the customer chooses on Paynow's page.
    CARD = "card"

    @property
    def needs_phone(self) -> bool:
        return self is not Wallet.CARD

    @property
    def title(self) -> str:  # type: ignore[override]
        return _TITLES[self]


_TITLES: Final[Mapping[Wallet, str]] = {
    Wallet.ECOCASH: "EcoCash",
    Wallet.ONEMONEY: "OneMoney",
    Wallet.INNBUCKS: "InnBucks",
    Wallet.CARD: mark("Card"),
}
# The part of Paynow's answer that the customer needs to pay. Other wallets prompt on the phone.
PAID_WITH: Final[Mapping[str, str]] = {Wallet.INNBUCKS: "code", Wallet.CARD: "browser_url"}


class Meaning(Enum):
    """What a status says about the money."""

    OPEN = auto()
    PAID = auto()
    CANCELLED = auto()
    FAILED = auto()
    TAKEN_BACK = auto()


# `Sent` went to the wallet and is not paid. Paynow holds back payments to a merchant that it has not verified
# for a while, as `Awaiting Delivery` and then `Delivered`, without ever saying `Paid`.
STATUSES: Final[Mapping[str, Meaning]] = {
    "created": Meaning.OPEN,
    "sent": Meaning.OPEN,
    "paid": Meaning.PAID,
    "awaiting delivery": Meaning.PAID,
    "delivered": Meaning.PAID,
    "cancelled": Meaning.CANCELLED,
    "failed": Meaning.FAILED,
    "disputed": Meaning.TAKEN_BACK,
    "refunded": Meaning.TAKEN_BACK,
}
# Answers to a call that say nothing about the money.
OK: Final = "ok"
ERROR: Final = "error"
NOT_FOUND: Final = "notfound"
INVALID_ID: Final = "invalid id."


def meaning_of(status: str) -> Meaning | None:
    """Return what a status says about the money; None for an unknown status."""
    return STATUSES.get(folded(status))


def folded(status: str) -> str:
    return status.strip().lower()


def sign(pairs: Pairs, key: str) -> str:
    """Return the hash of fields in the order in which they are sent, or were received."""
    text = "".join(value for name, value in pairs if name.lower() != HASH) + key.lower()
    return sha512(text.encode()).hexdigest().upper()


def write(pairs: Pairs, key: str) -> bytes:
    return urlencode([*pairs, (HASH, sign(pairs, key))]).encode("ascii")


def read(body: bytes) -> Pairs | None:
    """Read the fields of a body in their order, names in lower case; None for a malformed body.

    A repeated field could be read in two ways, so a body with one is refused.
    """
    try:
        text = body.decode("utf-8").strip()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return None
    lowered = [(name.lower(), value) for name, value in pairs]
    return lowered if len(dict(lowered)) == len(lowered) else None


def is_signed(pairs: Pairs, key: str) -> bool:
    """Tell whether the hash among the fields is that of all the others, known to us or not."""
    given = dict(pairs).get(HASH, "")
    return hmac.compare_digest(sign(pairs, key).encode(), given.upper().encode())


def local_phone(number: str) -> str:
    """Write a Zimbabwean number as it is dialled there, the only form that Paynow takes."""
    assert number.startswith(_CALLING_CODE)
    return "0" + number.removeprefix(_CALLING_CODE)


def write_amount(amount: Decimal) -> str:
    assert amount == amount.quantize(Decimal("0.01"))
    return f"{amount:.2f}"


def read_amount(text: str) -> Decimal | None:
    return Decimal(text) if _AMOUNT.fullmatch(text) else None


def read_expiry(text: str) -> datetime | None:
    """Read when an InnBucks code expires, such as `5-Nov-2026 14:30`; None for anything else."""
    match = _EXPIRES.fullmatch(text.strip())
    if match is None or match["month"].lower() not in _MONTHS:
        return None
    try:
        at = datetime(
            int(match["year"]),
            _MONTHS.index(match["month"].lower()) + 1,
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            tzinfo=_HARARE,
        )
    except ValueError:
        return None
    return at.astimezone(UTC)
