"""Names and explanations of top-ups, as customers and as operators see them."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Final, assert_never

from tumira.core.translation import _, mark
from tumira.html.page import write_exact_usd, write_usd
from tumira.pricing.phone_numbers import write_phone
from tumira.topups.providers.paynow_messages import PAID_WITH, Wallet
from tumira.topups.reconcile_rules import write_exact
from tumira.topups.states import TOP_UP_MIN, Currency, FailureReason, Method, TopUp, TopUpState
from tumira.topups.usdt.deposit_rules import Deposit, DepositState
from tumira.topups.voucher_pins import Issuer

_METHODS: Final[Mapping[str, str]] = {
    Method.PAYNOW: "Paynow",
    Method.USDT: "USDT",
    Method.VOUCHER: mark("Voucher"),
}
_PROVIDERS: Final[Mapping[str, str]] = {
    **{wallet.value: wallet.title for wallet in Wallet},
    **{issuer.value: issuer.title for issuer in Issuer},
}

# What a state is called, and which of the badges' looks it has.
STATES: Final[Mapping[TopUpState, tuple[str, str]]] = {
    TopUpState.STARTED: (mark("starting"), "queued"),
    TopUpState.PENDING: (mark("waiting for payment"), "sending"),
    TopUpState.DOUBT: (mark("being checked"), "unconfirmed"),
    TopUpState.CREDITED: (mark("credited"), "completed"),
    TopUpState.FAILED: (mark("failed"), "failed"),
    TopUpState.EXPIRED: (mark("expired"), "expired"),
    TopUpState.REVERSED: (mark("reversed"), "failed"),
}
OPERATOR_STATES: Final = {
    **STATES,
    TopUpState.STARTED: (mark("started"), "queued"),
    TopUpState.PENDING: (mark("pending"), "sending"),
    TopUpState.DOUBT: (mark("in doubt"), "unconfirmed"),
}

REASONS: Final[Mapping[str, str]] = {
    FailureReason.CANCELLED: mark("The payment was cancelled. You were not charged."),
    FailureReason.DECLINED: mark(
        "The payment was declined and you were not charged. Check the number, and that there is enough "
        "money in the wallet or on the card. Then try again."
    ),
    FailureReason.VOUCHER_NOT_VALID: mark(
        "This voucher was not accepted: the PIN is wrong or was already used. Check the PIN and try again."
    ),
    FailureReason.VOUCHER_EXPIRED: mark("This voucher has expired. Ask the shop where you bought it."),
    FailureReason.VALUE_TOO_SMALL: mark(
        "This voucher is worth less than the smallest top-up. It was not used and is still valid."
    ),
    FailureReason.VALUE_TOO_LARGE: mark(
        "This voucher is worth more than the largest top-up. It was not used and is still valid."
    ),
    FailureReason.VALUE_DIFFERS: mark(
        "The voucher has a different value from the one you entered. It was not used and is still valid: "
        "check its value and try again."
    ),
    FailureReason.NOT_CONFIGURED: mark(
        "This payment method is not working at the moment. You were not charged. Choose another method, or "
        "contact support."
    ),
    FailureReason.NEVER_ARRIVED: mark(
        "We could not reach the payment provider. You were not charged. Try again in a few minutes."
    ),
    FailureReason.DECIDED: mark("We checked this payment with the provider: you were not charged."),
}
_NO_CARD_PAGE: Final = mark(
    "Paynow did not send us its card page for this payment. You were not charged, and cannot be charged "
    "twice. Please start again."
)
_NO_CODE: Final = mark(
    "Paynow did not send us the code for this payment. You were not charged, and cannot be charged twice. "
    "Please start again."
)
_UNKNOWN_REASON: Final = mark("The payment failed. Nothing was added to your balance.")
_LOST: Final = mark("not started")


def name_of(method: str, provider: str) -> str:
    return _(_PROVIDERS.get(provider) or _METHODS.get(method, method))


def full_name_of(method: Method, provider: str) -> str:
    """Name the method too, for operators."""
    title = _PROVIDERS.get(provider)
    return _(_METHODS[method]) if title is None else f"{_(_METHODS[method])}, {_(title)}"


def asks_of(top_up: TopUp) -> str:
    match top_up.method:
        case Method.PAYNOW:
            return "Paynow"
        case Method.USDT:
            return _("the network")
        case Method.VOUCHER:
            return _("the issuer of your {voucher}").format(voucher=name_of(top_up.method, top_up.provider))
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
    name, badge = (_LOST, "unconfirmed") if cannot_be_paid(top_up) else STATES[top_up.state]
    return _(name), badge


def deposit_state_of(deposit: Deposit, confirmations: int) -> tuple[str, str]:
    """Return what a deposit's state is called, and which of the badges' looks it has."""
    match deposit.state:
        case DepositState.SEEN:
            seen = min(deposit.depth, confirmations)
            name = _("{seen} of {needed} confirmations").format(seen=seen, needed=confirmations)
            return name, "sending"
        case DepositState.FINAL:
            return _("held until US${smallest}").format(smallest=TOP_UP_MIN), "unconfirmed"
        case DepositState.CREDITED:
            return _("credited"), "completed"
        case DepositState.ORPHANED:
            return _("dropped by the network"), "expired"


def told(top_up: TopUp) -> str:
    """Say in a sentence or two what happened to a top-up, and what the customer has to do."""
    if cannot_be_paid(top_up):
        return _(_NO_CARD_PAGE if top_up.provider == Wallet.CARD else _NO_CODE)
    match top_up.state:
        case TopUpState.STARTED:
            return _("Contacting {provider}. This takes a few seconds.").format(provider=asks_of(top_up))
        case TopUpState.PENDING:
            return _next_step(top_up)
        case TopUpState.DOUBT if top_up.due_at is not None:
            return _(
                "We are checking this payment with {provider}. You do not have to do anything, and you "
                "cannot be charged twice."
            ).format(provider=asks_of(top_up))
        case TopUpState.DOUBT:
            return _(
                "We could not find out whether this payment went through, and are checking it ourselves. Do "
                "not pay it again."
            )
        case TopUpState.CREDITED:
            assert top_up.amount is not None
            return _("{amount} was added to your balance.").format(amount=write_usd(top_up.amount))
        case TopUpState.FAILED:
            return _(REASONS.get(top_up.reason or "", _UNKNOWN_REASON))
        case TopUpState.EXPIRED:
            return _expired(top_up)
        case TopUpState.REVERSED:
            return _reversed(top_up)
        case _:
            assert_never(top_up.state)


def _next_step(top_up: TopUp) -> str:
    match top_up.method:
        case Method.USDT:
            return _("Waiting for USDT to arrive at your deposit address.")
        case Method.VOUCHER:
            return _("Redeeming your voucher.")
    if top_up.provider == Wallet.CARD:
        return _("Pay on the card page of Paynow. You come back here afterwards.")
    if top_up.provider == Wallet.INNBUCKS:
        return _("Pay with this code in the InnBucks app.")
    if top_up.phone is None:
        return _("Confirm the payment on your phone.")
    return _("Enter your PIN on {phone} to confirm the payment.").format(phone=write_phone(top_up.phone))


def _expired(top_up: TopUp) -> str:
    if top_up.method is Method.USDT:
        return _("No deposit arrived. Your deposit address still works: anything you send to it is credited.")
    return _("This payment was not completed in time. You were not charged.")


def _reversed(top_up: TopUp) -> str:
    assert top_up.amount is not None
    taken = write_usd(top_up.amount - top_up.owed)
    if top_up.owed:
        return _(
            "This payment was reversed, so {taken} was taken from your balance and {owed} is still owed. You "
            "cannot send until this is settled with support."
        ).format(taken=taken, owed=write_usd(top_up.owed))
    return _(
        "This payment was reversed, so {taken} was taken from your balance. You cannot send until this is "
        "settled with support."
    ).format(taken=taken)


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
        return "\N{EN DASH}"
    return write_exact_usd(amount) if currency is Currency.USD else f"{write_exact(amount)} {currency}"


def write_rate(rate: Decimal, on: date | None) -> str:
    whole, _point, decimals = f"{rate.normalize():f}".partition(".")
    rand = f"R{whole}.{decimals:0<2}"
    if on is None:
        return _("{rand} per US$1").format(rand=rand)
    return _("{rand} per US$1 (rate of {day})").format(rand=rand, day=write_day(on))


def write_day(day: date) -> str:
    return day.strftime("%-d %b %Y")
