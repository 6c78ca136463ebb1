"""Which ways can a top-up go, and what can its provider tell about it?"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from typing import Final

from tumira.core.ids import AccountId, TopUpId

TOP_UP_MIN: Final = Decimal(5)
# More at once than anybody pays for text messages; what is typed above it is a slip.
TOP_UP_MAX: Final = Decimal(10_000)
# For so long a provider may still take the money after it was asked to.
OPEN_FOR: Final = timedelta(hours=24)

_FOUR_DECIMALS: Final = Decimal("0.0001")


class Method(StrEnum):
    """How money comes in."""

    PAYNOW = "paynow"
    USDT = "usdt"
    VOUCHER = "voucher"


class Currency(StrEnum):
    """What is paid with; the account gets US dollars for it."""

    USD = "USD"
    USDT = "USDT"
    ZAR = "ZAR"


class TopUpState(StrEnum):
    """How far a top-up has come."""

    # Ours alone; or the provider is being asked.
    STARTED = "started"
    # The provider waits for the customer, or we wait for the provider.
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
# What the operator may decide, with a note: what a provider shows is credited even where we had given up.
_RESOLUTIONS: Final[Mapping[TopUpState, frozenset[TopUpState]]] = {
    TopUpState.DOUBT: frozenset({TopUpState.CREDITED, TopUpState.FAILED}),
    TopUpState.FAILED: frozenset({TopUpState.CREDITED}),
    TopUpState.EXPIRED: frozenset({TopUpState.CREDITED}),
}


def may_move(before: TopUpState, after: TopUpState) -> bool:
    """Tell whether a provider's word can move a top-up so; a repeated word moves nothing."""
    return after in _MOVES[before]


def may_resolve(before: TopUpState, after: TopUpState) -> bool:
    """Tell whether the operator can move a top-up so."""
    return after in _RESOLUTIONS.get(before, frozenset())


class FailureReason(StrEnum):
    """Why a top-up failed."""

    CANCELLED = "CANCELLED"
    DECLINED = "DECLINED"
    # One word for a voucher that is unknown, spent or blocked: whoever guesses learns nothing.
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
    """One payment of an account's owner, and what became of it."""

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


@dataclass(frozen=True, slots=True)
class StillPending:
    """The provider has it, and waits; what it gave us is kept."""

    provider_reference: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Paid:
    """The provider has taken the money, so much of the top-up's currency.

    Where a voucher was worth more, the rest is a new one, already sealed: it is the customer's.
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
    """The customer did nothing while they could."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The provider may have taken the money; with `is_last`, asking again would tell nothing more."""

    problem: str
    is_last: bool = False
    # What is left of the voucher, where that is known; it is the customer's whatever becomes of the rest.
    sealed_change: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The provider could not be asked, and by asking alone nothing can have happened."""

    problem: str


@dataclass(frozen=True, slots=True)
class Reversed:
    """The provider has taken back what was credited."""

    problem: str


ProviderAnswer = StillPending | Paid | NotPaid | Expired | InDoubt | Unreachable | Reversed


def to_usd(paid: Decimal, rate: Decimal) -> Decimal:
    """Return what an account gets for what was paid: dollars, rounded down to four decimals."""
    assert rate > 0
    return (paid / rate).quantize(_FOUR_DECIMALS, ROUND_DOWN)


# Soon at first, while somebody waits before the page; then ever more rarely, for as long as it is open.
_LOOKS_S: Final = (3, 5, 5, 10, 10, 20, 20, 30, 60, 60, 60, 120, 120, 300)
_LOOK_LATER_S: Final = 900


def poll_delay_s(tries: int) -> int:
    """Return after how long a top-up is looked at again that was looked at so often."""
    assert tries >= 1
    return _LOOKS_S[tries - 1] if tries <= len(_LOOKS_S) else _LOOK_LATER_S
