"""Where do our books and somebody else's differ? What they say is compared with what we wrote down."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final, assert_never

from tumira.core.ids import TOP_UP, AccountId, TopUpId, write_id
from tumira.topups.states import (
    OPEN,
    Currency,
    Lapsed,
    News,
    Paid,
    Refused,
    Silent,
    State,
    TakenBack,
    Unclear,
    Waiting,
    worth,
)
from tumira.topups.usdt.deposit_rules import ChainDeposit, in_usdt

# Under this name the operator's word stands where a provider's reference would.
_OPERATOR: Final = "operator:"
_MONEY_CAME: Final = frozenset({State.CREDITED, State.REVERSED})


class Kind(StrEnum):
    """What differs."""

    # They have no money for what we credited.
    NOT_PAID = "not_paid"
    # They have money for which nothing was credited.
    NOT_CREDITED = "not_credited"
    AMOUNT = "amount"
    # They know the payment by another name than we do.
    REFERENCE = "reference"
    # They took back what stands credited.
    TAKEN_BACK = "taken_back"
    # What was in doubt here is settled there.
    DOUBT = "doubt"
    # On the chain and not with us, or the other way round.
    NOT_HERE = "not_here"
    NOT_THERE = "not_there"
    # Our own tables contradict each other.
    BOOKS = "books"


@dataclass(frozen=True, slots=True)
class Ours:
    """A top-up as we wrote it down."""

    id: TopUpId
    account_id: AccountId
    state: State
    currency: Currency
    paid: Decimal | None
    amount: Decimal | None
    rate: Decimal
    owed: Decimal
    reference: str | None
    was_resolved: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing on which two books disagree, and what the operator can do about it."""

    kind: Kind
    top_up_id: TopUpId | None
    account_id: AccountId | None
    ours: str
    theirs: str
    advice: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Somebody who could not be asked, about one top-up or about more, and why."""

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


def compare_with_provider(ours: Ours, theirs: News) -> Difference | Unknown | None:
    """Return where a provider's word on a top-up differs from ours; None where it does not."""
    match theirs:
        case Unclear() | Silent():
            return Unknown(ours.id, theirs.problem)
        case Paid():
            return _compare_paid(ours, theirs)
        case TakenBack():
            if ours.state is State.CREDITED:
                return _difference(Kind.TAKEN_BACK, ours, f"taken back: {theirs.problem}", LOOK)
            return _compare_unpaid(ours, "taken back")
        case Waiting():
            return _compare_unpaid(ours, "not paid yet") if ours.state is State.CREDITED else None
        case Refused():
            return _compare_unpaid(ours, f"not paid: {theirs.problem}")
        case Lapsed():
            return _compare_unpaid(ours, "not paid, and closed")
        case _:
            assert_never(theirs)


def _compare_unpaid(ours: Ours, words: str) -> Difference | None:
    if ours.state is State.CREDITED:
        return _difference(Kind.NOT_PAID, ours, words, ASK_PROVIDER)
    if ours.state is State.DOUBT:
        return _difference(
            Kind.DOUBT, ours, words, f"{LOOK}, or `tumira topup resolve {{id}} --not-paid --note …`"
        )
    return None


def _compare_paid(ours: Ours, theirs: Paid) -> Difference | None:
    words = f"{write_exact(theirs.paid)} {ours.currency} paid as {theirs.provider_reference}"
    if ours.state is State.REVERSED:
        return _difference(
            Kind.NOT_CREDITED, ours, words, "ask the provider; `tumira account credit` gives it back"
        )
    if ours.state is not State.CREDITED:
        resolve = (
            f"`tumira topup resolve {{id}} --paid {write_exact(theirs.paid)} "
            f"--reference {shlex.quote(theirs.provider_reference)} --note …`"
        )
        if ours.state in OPEN:
            advice = f"{LOOK}, or {resolve}" if ours.state is State.DOUBT else LOOK
        else:
            advice = resolve
        return _difference(Kind.NOT_CREDITED, ours, words, advice)
    if ours.paid != theirs.paid:
        return _difference(Kind.AMOUNT, ours, words, GIVE_OR_TAKE)
    named_by_operator = (ours.reference or "").startswith(_OPERATOR)
    if ours.reference != theirs.provider_reference and not named_by_operator:
        return _difference(Kind.REFERENCE, ours, words, ASK_PROVIDER)
    return None


@dataclass(frozen=True, slots=True)
class Moved:
    """What the transfers of a top-up brought to the customer, and took back."""

    came: Decimal = Decimal(0)
    went: Decimal = Decimal(0)


def compare_with_transfers(ours: Ours, moved: Moved) -> Difference | None:
    """Return where a top-up differs from its own transfers."""
    came = ours.amount if ours.state in _MONEY_CAME else Decimal(0)
    went = came - ours.owed if came is not None and ours.state is State.REVERSED else Decimal(0)
    is_worth = ours.state not in _MONEY_CAME or (
        ours.paid is not None and worth(ours.paid, ours.rate) == ours.amount
    )
    if moved == Moved(came or Decimal(0), went) and is_worth:
        return None
    words = (
        f"transfers of {write_exact(moved.came)} USD to the account and {write_exact(moved.went)} USD back"
    )
    return _difference(Kind.BOOKS, ours, words, AUDIT)


def compare_with_voucher(ours: Ours, voucher: Decimal | None) -> Difference | None:
    """Return where a top-up differs from the voucher of ours that it used, if it used one."""
    if ours.state not in _MONEY_CAME:
        if voucher is None:
            return None
        words = f"a voucher of {write_exact(voucher)} USD that counts as used"
    elif voucher == ours.amount or (voucher is None and ours.was_resolved):
        return None
    else:
        words = "no voucher" if voucher is None else f"a voucher of {write_exact(voucher)} USD"
    return _difference(Kind.BOOKS, ours, words, AUDIT)


def compare_with_deposits(ours: Ours, units: int) -> Difference | None:
    """Return where a top-up differs from the deposits of USDT that it credited, in the smallest unit."""
    came = in_usdt(units)
    if ours.state in _MONEY_CAME:
        if came == ours.paid or (not units and ours.was_resolved):
            return None
    elif not units:
        return None
    return _difference(Kind.BOOKS, ours, f"deposits of {write_exact(came)} USDT", AUDIT)


@dataclass(frozen=True, slots=True)
class OurDeposit:
    """A transfer of USDT to an address of ours as we wrote it down, and the top-up that credited it."""

    tx_hash: str
    log_index: int
    address: str
    units: int
    account_id: AccountId
    is_orphaned: bool
    top_up_id: TopUpId | None


def compare_with_chain(
    ours: Sequence[OurDeposit],
    theirs: Sequence[ChainDeposit],
    owners: Mapping[str, AccountId],
) -> Iterator[Difference]:
    """Return which deposits of some blocks the chain has and we have not, or the other way round."""
    known = {(one.tx_hash, one.log_index): one for one in ours}
    shown = {(one.tx_hash, one.log_index): one for one in theirs}
    for key, there in shown.items():
        here = known.get(key)
        words = f"{_write_deposit(there)} on the chain"
        if here is None or here.is_orphaned:
            state = "not known" if here is None else "taken for vanished"
            yield Difference(Kind.NOT_HERE, None, owners.get(there.address), state, words, WATCH)
        elif (here.address, here.units) != (there.address, there.units):
            yield Difference(
                Kind.AMOUNT, here.top_up_id, here.account_id, _write_deposit(here), words, GIVE_OR_TAKE
            )
    for key, here in known.items():
        if key in shown or here.is_orphaned:
            continue
        words, nowhere = _write_deposit(here), "not on the chain"
        if here.top_up_id is None:
            yield Difference(Kind.NOT_THERE, None, here.account_id, words, nowhere, VANISHED)
        else:
            yield Difference(
                Kind.NOT_PAID, here.top_up_id, here.account_id, f"{words}, credited", nowhere, ASK_CHAIN
            )


def write_exact(amount: Decimal) -> str:
    """Write an amount with as many decimals as it has, and two at least."""
    whole, _, decimals = f"{amount:f}".partition(".")
    return f"{whole}.{decimals.rstrip('0'):0<2}"


def _write_deposit(deposit: ChainDeposit | OurDeposit) -> str:
    amount = write_exact(in_usdt(deposit.units))
    return f"{amount} USDT to {deposit.address} by {deposit.tx_hash} log {deposit.log_index}"


def _difference(kind: Kind, ours: Ours, theirs: str, advice: str) -> Difference:
    words = str(ours.state)
    if ours.state in _MONEY_CAME and ours.paid is not None and ours.amount is not None:
        words += f", {write_exact(ours.paid)} {ours.currency} as {ours.reference}"
        if ours.currency is not Currency.USD:
            words += f", for {write_exact(ours.amount)} USD"
    return Difference(
        kind, ours.id, ours.account_id, words, theirs, advice.replace("{id}", write_id(TOP_UP, ours.id))
    )
