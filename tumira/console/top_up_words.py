"""Names of methods and states of top-ups, as operators see them."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from tumira.html.page import write_usd
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.reconcile_rules import write_exact
from tumira.topups.states import Currency, Method, TopUpState
from tumira.topups.voucher_pins import Issuer

# What a state is called, and which of the badges' looks it has.
STATES: Final[Mapping[TopUpState, tuple[str, str]]] = {
    TopUpState.STARTED: ("started", "queued"),
    TopUpState.PENDING: ("pending", "sending"),
    TopUpState.DOUBT: ("in doubt", "unconfirmed"),
    TopUpState.CREDITED: ("credited", "completed"),
    TopUpState.FAILED: ("failed", "failed"),
    TopUpState.EXPIRED: ("expired", "expired"),
    TopUpState.REVERSED: ("taken back", "failed"),
}


def name_of(method: Method, provider: str) -> str:
    if method is Method.USDT:
        return "USDT"
    if method is Method.PAYNOW:
        return f"Paynow, {Wallet(provider).title}" if provider in set(Wallet) else "Paynow"
    return f"Voucher, {Issuer(provider).title}" if provider in set(Issuer) else "Voucher"


def write_money(amount: Decimal | None, currency: Currency) -> str:
    """Write an amount with its currency; a dash where there is none."""
    if amount is None:
        return "—"
    return write_usd(amount) if currency is Currency.USD else f"{write_exact(amount)} {currency}"
