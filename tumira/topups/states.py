"""Top-up states, what a provider can answer, and how an answer may move a top-up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from typing import Final

from tumira.core.ids import AccountId, TopUpId

TOP_UP_MIN: Final = Decimal(5)
# Nobody pays more for text messages at once; a larger number is a typing error.
TOP_UP_MAX: Final = Decimal(10_000)
# A provider may still take the money this long after it was asked.
OPEN_FOR: Final = timedelta(hours=24)

_FOUR_DECIMALS: Final = Decimal("0.0001")


class Method(StrEnum):
    PAYNOW = "paynow"
    USDT = "usdt"
    VOUCHER = "voucher"


class Currency(StrEnum):
    """What the customer pays in; the account gets US dollars."""

    USD = "USD"
    USDT = "USDT"
    ZAR = "ZAR"


class TopUpState(StrEnum):
    # Not sent to the provider yet, or being sent.
    STARTED = "started"
    # Waiting for the customer, or for the provider.
    PENDING = "pending"
    # The provider's answer was lost: it may have the money.
    DOUBT = "doubt"
    CREDITED = "credited"
    FAILED = "failed"
    EXPIRED = "expired"
    # The provider took the money back after it was credited.
    REVERSED = "reversed"


OPEN_STATES: Final = frozenset({TopUpState.STARTED, TopUpState.PENDING, TopUpState.DOUBT})

_ENDS: Final = frozenset({TopUpState.CREDITED, TopUpState.FAILED, TopUpState.EXPIRED})
_MOVES: Final[Mapping[TopUpState, frozenset[TopUpState]]] = {
    TopUpState.STARTED: _ENDS | {TopUpState.PENDING, TopUpState.DOUBT},
    TopUpState.PENDING: _ENDS | {TopUpState.DOUBT},
    TopUpState.DOUBT: _ENDS | {TopUpState.PENDING},
    TopUpState.CREDITED: frozenset({TopUpState.REVERSED}),
    TopUpState.FAILED: frozenset(),
    TopUpState.EXPIRED: frozenset(),
    TopUpState.REVERSED: frozenset(),
}
# What the operator may decide, with a note. A payment that arrived late can still be credited.
_RESOLUTIONS: Final[Mapping[TopUpState, frozenset[TopUpState]]] = {
    TopUpState.DOUBT: frozenset({TopUpState.CREDITED, TopUpState.FAILED}),
    TopUpState.FAILED: frozenset({TopUpState.CREDITED}),
    TopUpState.EXPIRED: frozenset({TopUpState.CREDITED}),
}


def may_move(before: TopUpState, after: TopUpState) -> bool:
    """Tell whether a provider's answer may move a top-up; a repeated answer moves nothing."""
    return after in _MOVES[before]


def may_resolve(before: TopUpState, after: TopUpState) -> bool:
    """Tell whether an operator may move a top-up from one state to another."""
    return after in _RESOLUTIONS.get(before, frozenset())


class FailureReason(StrEnum):
    CANCELLED = "CANCELLED"
    DECLINED = "DECLINED"
    # One reason for a voucher that is unknown, spent or blocked: a guesser learns nothing.
    VOUCHER_NOT_VALID = "VOUCHER_NOT_VALID"
    VOUCHER_EXPIRED = "VOUCHER_EXPIRED"
    VALUE_TOO_SMALL = "VALUE_TOO_SMALL"
    VALUE_TOO_LARGE = "VALUE_TOO_LARGE"
    VALUE_DIFFERS = "VALUE_DIFFERS"
    NOT_CONFIGURED = "NOT_CONFIGURED"
    NEVER_ARRIVED = "NEVER_ARRIVED"
    DECIDED = "DECIDED"


@dataclass(frozen=True, slots=True)
class TopUp:
    """One payment of a customer and its outcome, as its row has it."""

    id: TopUpId
    account_id: AccountId
    method: Method
    provider: str
    state: TopUpState
    currency: Currency
    asked: Decimal | None
    paid: Decimal | None
    amount: Decimal | None
    rate: Decimal
    rate_on: date | None
    phone: str | None
    provider_reference: str | None
    kept: Mapping[str, str]
    reason: str | None
    problem: str | None
    sealed_pin: bytes | None = field(repr=False)
    sealed_change: bytes | None = field(repr=False)
    owed: Decimal
    due_at: datetime | None
    asked_at: datetime | None
    tries: int
    note: str | None
    resolved_by: str | None
    created_at: datetime
    finished_at: datetime | None

    def age(self, now: datetime) -> timedelta:
        """Return the time since the provider was, or may have been, asked for the money."""
        return now - (self.asked_at or now)


@dataclass(frozen=True, slots=True)
class StillPending:
    """The provider is waiting for the customer; `kept` is what it gave us and we store."""

    provider_reference: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Paid:
    """The provider has taken `paid` of the top-up's currency.

    Where a voucher was worth more, the rest is a new voucher of the customer's, already encrypted.
    """

    provider_reference: str
    paid: Decimal
    sealed_change: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class NotPaid:
    """The provider has not taken the money and will not; `problem` is for the operator."""

    reason: FailureReason
    problem: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The customer did not pay in time."""


@dataclass(frozen=True, slots=True)
class PaymentInDoubt:
    """The provider may have taken the money; with `is_last`, polling again would tell nothing more."""

    problem: str
    is_last: bool = False
    # The rest of the voucher, where it is known; it is the customer's in any case.
    sealed_change: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The provider could not be polled, and the poll itself cannot have taken money."""

    problem: str


@dataclass(frozen=True, slots=True)
class Reversed:
    """The provider has taken back what was credited."""

    problem: str


ProviderAnswer = StillPending | Paid | NotPaid | Expired | PaymentInDoubt | Unreachable | Reversed


def to_usd(paid: Decimal, rate: Decimal) -> Decimal:
    """Convert what was paid to dollars, rounded down to four decimals."""
    assert rate > 0
    return (paid / rate).quantize(_FOUR_DECIMALS, ROUND_DOWN)


# Often at first, while the customer watches the page; then ever more rarely while it is open.
_LOOKS_S: Final = (3, 5, 5, 10, 10, 20, 20, 30, 60, 60, 60, 120, 120, 300)
_LOOK_LATER_S: Final = 900


def poll_delay_s(tries: int) -> int:
    """Return the pause after a number of polls."""
    assert tries >= 1
    return _LOOKS_S[tries - 1] if tries <= len(_LOOKS_S) else _LOOK_LATER_S
