"""What the voucher issuers share: a provider, strict reading of their answers, and failed calls."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final, Generic, TypeVar

import structlog

from tumira.core.ids import TOP_UP, write_id
from tumira.core.settings.payments import Blu, OneVoucher, Ott
from tumira.topups.providers.http import ANSWER_S, NoAnswerError, ProviderClient
from tumira.topups.states import (
    TOP_UP_MAX,
    TOP_UP_MIN,
    FailureReason,
    InDoubt,
    NotPaid,
    Paid,
    ProviderAnswer,
    TopUp,
    to_usd,
)
from tumira.topups.voucher_pins import ChangeVoucher, Seal, write_change

Access = TypeVar("Access", Blu, OneVoucher, Ott)

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

_log: Final = structlog.get_logger()


def reference_of(top_up: TopUp) -> str:
    """Return the reference that the issuer gets for a top-up: letters, digits and a hyphen."""
    return write_id(TOP_UP, top_up.id).replace("_", "-")


def not_sent(problem: str, *, is_first: bool) -> ProviderAnswer:
    """Return the answer for a call that did not arrive: nothing was taken, unless by an earlier call."""
    return NotPaid(FailureReason.NEVER_ARRIVED, problem) if is_first else InDoubt(problem)


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


class VoucherProvider(Generic[Access]):
    """Redeems the vouchers of one issuer."""

    issuer: ClassVar[str]

    def __init__(self, settings: Access, *, answer_s: float = ANSWER_S) -> None:
        self._settings: Access = settings
        self._seal = Seal(settings.secret)
        self._client = ProviderClient(answer_s=answer_s)

    async def close(self) -> None:
        await self._client.close()

    @property
    def _unreadable(self) -> str:
        return f"the PIN cannot be read with this access to {self.issuer}"

    def _open_pin(self, top_up: TopUp) -> str | None:
        """Return the PIN; None where it was erased, or encrypted with other credentials."""
        return None if top_up.sealed_pin is None else self._seal.open(top_up.sealed_pin)

    def _paid(self, top_up: TopUp, reference: str, amount: Decimal, change: Any, names: ChangeNames) -> Paid:
        """Return a payment, with its change voucher encrypted as soon as it is known."""
        if not isinstance(change, dict) or not change:
            return Paid(reference, amount)
        found = read_replacement(change.get(names.pin), change.get(names.cents), change.get(names.expires))
        if found is None:
            # The issuer may have sent it to the customer's phone; we cannot show it.
            _log.warning("could not read the change voucher", top_up=write_id(TOP_UP, top_up.id))
            return Paid(reference, amount)
        return Paid(reference, amount, self._seal.close(write_change(found)))


class ValuedVoucherProvider(VoucherProvider[Access], ABC):
    """Redeems the vouchers of an issuer that tells their value, which is looked up before it is taken."""

    async def start(self, top_up: TopUp) -> ProviderAnswer:
        pin = self._open_pin(top_up)
        if pin is None:
            return not_sent(self._unreadable, is_first=True)
        try:
            value = await self._find_value(pin)
        except NoAnswerError as error:
            return not_sent(f"{self.issuer}: {error.problem}", is_first=True)
        if not isinstance(value, Decimal):
            return value
        return check_value(value, top_up) or await self._accept(top_up, pin, value)

    @abstractmethod
    async def _find_value(self, pin: str) -> Decimal | ProviderAnswer:
        """Return what a voucher is worth, or why nothing can be taken from it."""

    @abstractmethod
    async def _accept(self, top_up: TopUp, pin: str, value: Decimal) -> ProviderAnswer:
        """Go on with a voucher whose value can be topped up."""
