"""Compares top-ups with the records of providers, the chain and our own ledger."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final, assert_never

from tumira.core.ids import TOP_UP, AccountId, TopUpId, write_id
from tumira.topups.states import (
    OPEN_STATES,
    Currency,
    Expired,
    NotPaid,
    Paid,
    PaymentInDoubt,
    ProviderAnswer,
    Reversed,
    StillPending,
    TopUp,
    TopUpState,
    Unreachable,
    to_usd,
)
from tumira.topups.usdt.deposit_rules import ChainDeposit, Deposit, DepositState, to_usdt

# The prefix of a reference that the operator's decision stands in for.
_OPERATOR: Final = "operator:"
_MONEY_CAME: Final = frozenset({TopUpState.CREDITED, TopUpState.REVERSED})


class DifferenceKind(StrEnum):
    # They have no money for what we credited.
    NOT_PAID = "not_paid"
    # They have money for which nothing was credited.
    NOT_CREDITED = "not_credited"
    AMOUNT = "amount"
    # They have another reference for the payment.
    REFERENCE = "reference"
    # They reversed a payment that is credited here.
    TAKEN_BACK = "taken_back"
    # In doubt here, settled there.
    DOUBT = "doubt"
    # On the chain but not in our tables, or the other way round.
    NOT_HERE = "not_here"
    NOT_THERE = "not_there"
    # Our own tables contradict each other.
    BOOKS = "books"


@dataclass(frozen=True, slots=True)
class Difference:
    """One disagreement of two records, and what the operator can do about it."""

    kind: DifferenceKind
    top_up_id: TopUpId | None
    account_id: AccountId | None
    ours: str
    theirs: str
    advice: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A provider that could not be polled, about one top-up or several, and why."""

    top_up_id: TopUpId | None
    problem: str


LOOK: Final = "`tumira topup look {id}` has a worker ask again and carry it out"
ASK_PROVIDER: Final = "ask the provider; `tumira account credit` with a negative amount takes money back"
GIVE_OR_TAKE: Final = "`tumira account credit` gives or takes the rest"
AUDIT: Final = "`tumira audit` shows the rows; nothing but a fault or a hand in the database does this"
WATCH: Final = "see that a worker runs with TUMIRA_USDT_*; `tumira account credit` gives what it left out"
VANISHED: Final = "nothing was credited for it, and the worker drops it when it sees that"
ASK_CHAIN: Final = (
    "look it up at a third provider; `tumira account credit` with a negative amount takes money back"
)


def compare_with_provider(ours: TopUp, theirs: ProviderAnswer) -> Difference | Unanswered | None:
    """Return where a provider's answer differs from our record; None where it does not."""
    match theirs:
        case PaymentInDoubt() | Unreachable():
            return Unanswered(ours.id, theirs.problem)
        case Paid():
            return _compare_paid(ours, theirs)
        case Reversed():
            if ours.state is TopUpState.CREDITED:
                return _difference(DifferenceKind.TAKEN_BACK, ours, f"taken back: {theirs.problem}", LOOK)
            return _compare_unpaid(ours, "taken back")
        case StillPending():
            return _compare_unpaid(ours, "not paid yet") if ours.state is TopUpState.CREDITED else None
        case NotPaid():
            return _compare_unpaid(ours, f"not paid: {theirs.problem}")
        case Expired():
            return _compare_unpaid(ours, "not paid, and closed")
        case _:
            assert_never(theirs)


def _compare_unpaid(ours: TopUp, words: str) -> Difference | None:
    if ours.state is TopUpState.CREDITED:
        return _difference(DifferenceKind.NOT_PAID, ours, words, ASK_PROVIDER)
    if ours.state is TopUpState.DOUBT:
        return _difference(
            DifferenceKind.DOUBT, ours, words, f"{LOOK}, or `tumira topup resolve {{id}} --not-paid --note …`"
        )
    return None


def _compare_paid(ours: TopUp, theirs: Paid) -> Difference | None:
    words = f"{write_exact(theirs.paid)} {ours.currency} paid as {theirs.provider_reference}"
    if ours.state is TopUpState.REVERSED:
        return _difference(
            DifferenceKind.NOT_CREDITED,
            ours,
            words,
            "ask the provider; `tumira account credit` gives it back",
        )
    if ours.state is not TopUpState.CREDITED:
        resolve = (
            f"`tumira topup resolve {{id}} --paid {write_exact(theirs.paid)} "
            f"--reference {shlex.quote(theirs.provider_reference)} --note …`"
        )
        if ours.state in OPEN_STATES:
            advice = f"{LOOK}, or {resolve}" if ours.state is TopUpState.DOUBT else LOOK
        else:
            advice = resolve
        return _difference(DifferenceKind.NOT_CREDITED, ours, words, advice)
    if ours.paid != theirs.paid:
        return _difference(DifferenceKind.AMOUNT, ours, words, GIVE_OR_TAKE)
    named_by_operator = (ours.provider_reference or "").startswith(_OPERATOR)
    if ours.provider_reference != theirs.provider_reference and not named_by_operator:
        return _difference(DifferenceKind.REFERENCE, ours, words, ASK_PROVIDER)
    return None


@dataclass(frozen=True, slots=True)
class Moved:
    """What the transfers of a top-up brought to the customer, and took back."""

    came: Decimal = Decimal(0)
    went: Decimal = Decimal(0)


def compare_with_transfers(ours: TopUp, moved: Moved) -> Difference | None:
    came = ours.amount if ours.state in _MONEY_CAME else Decimal(0)
    went = came - ours.owed if came is not None and ours.state is TopUpState.REVERSED else Decimal(0)
    is_worth = ours.state not in _MONEY_CAME or (
        ours.paid is not None and to_usd(ours.paid, ours.rate) == ours.amount
    )
    if moved == Moved(came or Decimal(0), went) and is_worth:
        return None
    words = (
        f"transfers of {write_exact(moved.came)} USD to the account and {write_exact(moved.went)} USD back"
    )
    return _difference(DifferenceKind.BOOKS, ours, words, AUDIT)


def compare_with_voucher(ours: TopUp, voucher: Decimal | None) -> Difference | None:
    """Compare a top-up with the own voucher that it used, if it used one."""
    if ours.state not in _MONEY_CAME:
        if voucher is None:
            return None
        words = f"a voucher of {write_exact(voucher)} USD that counts as used"
    elif voucher == ours.amount or (voucher is None and ours.resolved_by is not None):
        return None
    else:
        words = "no voucher" if voucher is None else f"a voucher of {write_exact(voucher)} USD"
    return _difference(DifferenceKind.BOOKS, ours, words, AUDIT)


def compare_with_deposits(ours: TopUp, units: int) -> Difference | None:
    """Compare a top-up with the USDT deposits that it credited, in the smallest unit."""
    came = to_usdt(units)
    if ours.state in _MONEY_CAME:
        if came == ours.paid or (not units and ours.resolved_by is not None):
            return None
    elif not units:
        return None
    return _difference(DifferenceKind.BOOKS, ours, f"deposits of {write_exact(came)} USDT", AUDIT)


def compare_with_chain(
    ours: Sequence[Deposit],
    theirs: Sequence[ChainDeposit],
    owners: Mapping[str, AccountId],
) -> Iterator[Difference]:
    """Yield the deposits of a block range that only we have, or only the chain."""
    known = {(one.facts.tx_hash, one.facts.log_index): one for one in ours}
    shown = {(one.tx_hash, one.log_index): one for one in theirs}
    for key, there in shown.items():
        here = known.get(key)
        words = f"{_write_deposit(there)} on the chain"
        if here is None or here.state is DepositState.ORPHANED:
            state = "not known" if here is None else "taken for vanished"
            yield Difference(DifferenceKind.NOT_HERE, None, owners.get(there.address), state, words, WATCH)
        elif (here.facts.address, here.facts.units) != (there.address, there.units):
            yield Difference(
                DifferenceKind.AMOUNT,
                here.top_up_id,
                here.account_id,
                _write_deposit(here.facts),
                words,
                GIVE_OR_TAKE,
            )
    for key, here in known.items():
        if key in shown or here.state is DepositState.ORPHANED:
            continue
        words, nowhere = _write_deposit(here.facts), "not on the chain"
        if here.top_up_id is None:
            yield Difference(DifferenceKind.NOT_THERE, None, here.account_id, words, nowhere, VANISHED)
        else:
            yield Difference(
                DifferenceKind.NOT_PAID,
                here.top_up_id,
                here.account_id,
                f"{words}, credited",
                nowhere,
                ASK_CHAIN,
            )


def write_exact(amount: Decimal) -> str:
    """Write an amount with all its decimals, and two at least."""
    whole, _, decimals = f"{amount:f}".partition(".")
    return f"{whole}.{decimals.rstrip('0'):0<2}"


def _write_deposit(deposit: ChainDeposit) -> str:
    amount = write_exact(to_usdt(deposit.units))
    return f"{amount} USDT to {deposit.address} by {deposit.tx_hash} log {deposit.log_index}"


def _difference(kind: DifferenceKind, ours: TopUp, theirs: str, advice: str) -> Difference:
    words = str(ours.state)
    if ours.state in _MONEY_CAME and ours.paid is not None and ours.amount is not None:
        words += f", {write_exact(ours.paid)} {ours.currency} as {ours.provider_reference}"
        if ours.currency is not Currency.USD:
            words += f", for {write_exact(ours.amount)} USD"
    return Difference(
        kind, ours.id, ours.account_id, words, theirs, advice.replace("{id}", write_id(TOP_UP, ours.id))
    )
