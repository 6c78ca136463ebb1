"""Names and explanations of top-ups, as customers and as operators see them."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Final, assert_never

from tumira.html.page import write_exact_usd, write_usd
from tumira.topups.providers.paynow_messages import PAID_WITH, Wallet
from tumira.topups.reconcile_rules import write_exact
from tumira.topups.states import TOP_UP_MIN, Currency, FailureReason, Method, TopUp, TopUpState
from tumira.topups.usdt.deposit_rules import Deposit, DepositState
from tumira.topups.voucher_pins import Issuer

_METHODS: Final[Mapping[str, str]] = {Method.PAYNOW: "Paynow", Method.USDT: "USDT", Method.VOUCHER: "Voucher"}
_PROVIDERS: Final[Mapping[str, str]] = {
    **{wallet.value: wallet.title for wallet in Wallet},
    **{issuer.value: issuer.title for issuer in Issuer},
}

# What a state is called, and which of the badges' looks it has.
STATES: Final[Mapping[TopUpState, tuple[str, str]]] = {
    TopUpState.STARTED: ("starting", "queued"),
    TopUpState.PENDING: ("waiting", "sending"),
    TopUpState.DOUBT: ("being checked", "unconfirmed"),
    TopUpState.CREDITED: ("credited", "completed"),
    TopUpState.FAILED: ("failed", "failed"),
    TopUpState.EXPIRED: ("expired", "expired"),
    TopUpState.REVERSED: ("taken back", "failed"),
}
OPERATOR_STATES: Final = {
    **STATES,
    TopUpState.STARTED: ("started", "queued"),
    TopUpState.PENDING: ("pending", "sending"),
    TopUpState.DOUBT: ("in doubt", "unconfirmed"),
}

REASONS: Final[Mapping[str, str]] = {
    FailureReason.CANCELLED: "It was cancelled before it was paid. Nothing was taken.",
    FailureReason.DECLINED: (
        "The payment was declined. Check that there is enough money, and that the number is right. "
        "Nothing was taken."
    ),
    FailureReason.VOUCHER_NOT_VALID: (
        "This voucher cannot be redeemed: the PIN is not right, or it was used before. Check it."
    ),
    FailureReason.VOUCHER_EXPIRED: "This voucher has expired. Ask the shop where you bought it.",
    FailureReason.VALUE_TOO_SMALL: "The voucher is worth less than the smallest top-up. It is still good.",
    FailureReason.VALUE_TOO_LARGE: (
        "The voucher is worth more than can be topped up at once. It is still good."
    ),
    FailureReason.VALUE_DIFFERS: (
        "The voucher is not worth what you wrote. It is still good: look at its value, and try again."
    ),
    FailureReason.NOT_CONFIGURED: (
        "This way to pay does not work here at the moment. Nothing was taken; please tell the operator."
    ),
    FailureReason.NEVER_ARRIVED: "They could not be reached. Nothing was taken; try again in a few minutes.",
    FailureReason.DECIDED: "The operator has looked into it, and nothing had been paid.",
}
_NO_WAY_TO_PAY: Final = (
    "Paynow's answer did not reach us, so we have no {needed} for this payment. Nothing was taken: start "
    "again. You cannot be charged twice."
)
_UNKNOWN_REASON: Final = "It did not work, and nothing was added to your balance."

_ZIMBABWE: Final = "+263"


def name_of(method: str, provider: str) -> str:
    return _PROVIDERS.get(provider) or _METHODS.get(method, method)


def full_name_of(method: Method, provider: str) -> str:
    """Name the method too, for operators."""
    title = _PROVIDERS.get(provider)
    return _METHODS[method] if title is None else f"{_METHODS[method]}, {title}"


def asks_of(top_up: TopUp) -> str:
    match top_up.method:
        case Method.PAYNOW:
            return "Paynow"
        case Method.USDT:
            return "the network"
        case Method.VOUCHER:
            return f"the issuer of {name_of(top_up.method, top_up.provider)}"
        case _:
            assert_never(top_up.method)


def cannot_be_paid(top_up: TopUp) -> bool:
    """Tell whether Paynow's answer to the start was lost, and with it the page or the code to pay with.

    Nobody has ever seen that page or code, so it is safe to start another payment. This one is still polled.
    """
    if top_up.method is not Method.PAYNOW or top_up.state not in {TopUpState.PENDING, TopUpState.DOUBT}:
        return False
    needed = PAID_WITH.get(top_up.provider)
    return needed is not None and needed not in top_up.kept


def state_of(top_up: TopUp) -> tuple[str, str]:
    """Return what a top-up's state is called, and which of the badges' looks it has."""
    return ("answer lost", "unconfirmed") if cannot_be_paid(top_up) else STATES[top_up.state]


def deposit_state_of(deposit: Deposit, confirmations: int) -> tuple[str, str]:
    """Return what a deposit's state is called, and which of the badges' looks it has."""
    match deposit.state:
        case DepositState.SEEN:
            seen = min(deposit.depth, confirmations)
            return f"seen, {seen} of {confirmations} confirmations", "sending"
        case DepositState.FINAL:
            return f"held until US${TOP_UP_MIN}", "unconfirmed"
        case DepositState.CREDITED:
            return "credited", "completed"
        case DepositState.ORPHANED:
            return "gone from the network", "expired"


def told(top_up: TopUp) -> str:
    """Say in a sentence or two how far a top-up is, and what is to be done."""
    if cannot_be_paid(top_up):
        return _NO_WAY_TO_PAY.format(needed="card page" if top_up.provider == Wallet.CARD else "code")
    match top_up.state:
        case TopUpState.STARTED:
            return f"We are asking {asks_of(top_up)}. This takes a few seconds."
        case TopUpState.PENDING:
            return _waits_for(top_up)
        case TopUpState.DOUBT if top_up.due_at is not None:
            return (
                f"We are asking {asks_of(top_up)} what became of it; you do not have to do anything, and "
                "nothing is taken twice."
            )
        case TopUpState.DOUBT:
            return (
                "It could not be found out what became of it. The operator will look into it; you do not "
                "have to do anything. Please do not pay for it again."
            )
        case TopUpState.CREDITED:
            assert top_up.amount is not None
            return f"{write_usd(top_up.amount)} was added to your balance."
        case TopUpState.FAILED:
            return REASONS.get(top_up.reason or "", _UNKNOWN_REASON)
        case TopUpState.EXPIRED:
            return _expired(top_up)
        case TopUpState.REVERSED:
            return _taken_back(top_up)
        case _:
            assert_never(top_up.state)


def _waits_for(top_up: TopUp) -> str:
    match top_up.method:
        case Method.USDT:
            return "We wait for USDT to arrive at your address."
        case Method.VOUCHER:
            return "The voucher is being redeemed."
    if top_up.provider == Wallet.CARD:
        return "Pay on the card page of Paynow; afterwards you come back here."
    if top_up.provider == Wallet.INNBUCKS:
        return "Pay with this code in the InnBucks app."
    if top_up.phone is None:
        return "Confirm the payment on your phone."
    return f"Confirm with your PIN on {write_local(top_up.phone)}."


def _expired(top_up: TopUp) -> str:
    if top_up.method is Method.USDT:
        return "Nothing has come. Your address stays good: what you send there is credited at any time."
    return "It was not paid in time. Nothing was taken."


def _taken_back(top_up: TopUp) -> str:
    assert top_up.amount is not None
    taken = top_up.amount - top_up.owed
    words = f"The payment was taken back, so {write_usd(taken)} was taken from your balance"
    owed = f", and {write_usd(top_up.owed)} is still owed" if top_up.owed else ""
    return f"{words}{owed}. Nothing is sent until you have talked to the operator."


def write_money(amount: Decimal, currency: Currency) -> str:
    match currency:
        case Currency.USD:
            return write_usd(amount)
        case Currency.ZAR:
            return f"R{amount:,.2f}"
        case Currency.USDT:
            return f"{amount.normalize():,f} USDT"
        case _:
            assert_never(currency)


def write_exact_money(amount: Decimal | None, currency: Currency) -> str:
    """Write an amount with all its decimals, for operators; a dash where there is none."""
    if amount is None:
        return "—"
    return write_exact_usd(amount) if currency is Currency.USD else f"{write_exact(amount)} {currency}"


def write_rate(rate: Decimal, on: date | None) -> str:
    whole, _, decimals = f"{rate.normalize():f}".partition(".")
    since = "" if on is None else f", since {write_day(on)}"
    return f"R{whole}.{decimals:0<2} for US$1{since}"


def write_day(day: date) -> str:
    return day.strftime("%-d %b %Y")


def write_local(phone: str) -> str:
    """Write a number as it is dialled at home, where that is Zimbabwe."""
    return "0" + phone.removeprefix(_ZIMBABWE) if phone.startswith(_ZIMBABWE) else phone
