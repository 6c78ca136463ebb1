"""Every kind of difference is found, told apart, and followed by what to do."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.support.topups.top_ups import FIVE, new_top_up
from tumira.core.ids import TOP_UP, AccountId, TopUpId, new_id, write_id
from tumira.topups.reconcile_rules import (
    Difference,
    DifferenceKind,
    Moved,
    Unanswered,
    compare_with_chain,
    compare_with_deposits,
    compare_with_provider,
    compare_with_transfers,
    compare_with_voucher,
    write_exact,
)
from tumira.topups.states import (
    Currency,
    Expired,
    FailureReason,
    NotPaid,
    Paid,
    PaymentInDoubt,
    ProviderAnswer,
    Reversed,
    StillPending,
    TopUp,
    TopUpState,
    Unreachable,
)
from tumira.topups.usdt.deposit_rules import ChainDeposit, Deposit, DepositState

ACCOUNT: Final = AccountId(new_id(1))
TOP: Final = TopUpId(new_id(2))
NAME: Final = write_id(TOP_UP, TOP)
PAID: Final = Paid("9510", FIVE)


def ours(state: TopUpState, **changes: Any) -> TopUp:
    came = FIVE if state in {TopUpState.CREDITED, TopUpState.REVERSED} else None
    facts = {"paid": came, "amount": came, "provider_reference": came and "9510", **changes}
    return new_top_up(id=TOP, account_id=ACCOUNT, state=state, **facts)


# What a provider says, and in which states that is another thing than we say.
WORDS: Final[list[tuple[ProviderAnswer, dict[TopUpState, DifferenceKind]]]] = [
    (StillPending(), {TopUpState.CREDITED: DifferenceKind.NOT_PAID}),
    (Expired(), {TopUpState.CREDITED: DifferenceKind.NOT_PAID, TopUpState.DOUBT: DifferenceKind.DOUBT}),
    (
        NotPaid(FailureReason.CANCELLED, "cancelled"),
        {TopUpState.CREDITED: DifferenceKind.NOT_PAID, TopUpState.DOUBT: DifferenceKind.DOUBT},
    ),
    (
        Reversed("refunded"),
        {TopUpState.CREDITED: DifferenceKind.TAKEN_BACK, TopUpState.DOUBT: DifferenceKind.DOUBT},
    ),
    (PAID, {state: DifferenceKind.NOT_CREDITED for state in TopUpState if state is not TopUpState.CREDITED}),
    (
        Paid("9510", Decimal(6)),
        dict.fromkeys(TopUpState, DifferenceKind.NOT_CREDITED) | {TopUpState.CREDITED: DifferenceKind.AMOUNT},
    ),
    (
        Paid("9511", FIVE),
        dict.fromkeys(TopUpState, DifferenceKind.NOT_CREDITED)
        | {TopUpState.CREDITED: DifferenceKind.REFERENCE},
    ),
]


@pytest.mark.parametrize("place", range(len(WORDS)))
@pytest.mark.parametrize("state", TopUpState)
def test_a_providers_word_differs_from_ours_exactly_where_money_does(place: int, state: TopUpState) -> None:
    answer, kinds = WORDS[place]
    found = compare_with_provider(ours(state), answer)
    if state not in kinds:
        assert found is None
        return
    assert isinstance(found, Difference)
    assert (found.kind, found.top_up_id, found.account_id) == (kinds[state], TOP, ACCOUNT)
    assert found.ours.startswith(state)
    assert "{" not in found.advice


def test_a_provider_that_does_not_answer_is_no_difference() -> None:
    for state in TopUpState:
        for answer in (PaymentInDoubt("no answer"), Unreachable("no answer")):
            assert compare_with_provider(ours(state), answer) == Unanswered(TOP, "no answer")


def test_what_to_do_can_be_typed_as_it_stands() -> None:
    late = compare_with_provider(ours(TopUpState.EXPIRED), Paid("9510 b", Decimal("5.50")))
    assert isinstance(late, Difference)
    assert late.advice == f"`tumira topup resolve {NAME} --paid 5.50 --reference '9510 b' --note …`"
    doubt = compare_with_provider(ours(TopUpState.DOUBT), Expired())
    assert isinstance(doubt, Difference)
    assert f"`tumira topup resolve {NAME} --not-paid --note …`" in doubt.advice
    waiting = compare_with_provider(ours(TopUpState.PENDING), PAID)
    assert isinstance(waiting, Difference)
    assert f"`tumira topup look {NAME}`" in waiting.advice
    assert "resolve" not in waiting.advice


def test_a_payment_that_the_operator_named_is_the_one_that_the_provider_names() -> None:
    assert (
        compare_with_provider(ours(TopUpState.CREDITED, provider_reference=f"operator:{TOP}"), PAID) is None
    )


def test_a_top_up_differs_from_its_transfers_when_they_moved_anything_else() -> None:
    none, once = Moved(), Moved(came=FIVE)
    back = Moved(FIVE, Decimal(3))
    reversed_ = ours(TopUpState.REVERSED, owed=Decimal(2))
    for state in TopUpState:
        expected = reversed_ if state is TopUpState.REVERSED else ours(state)
        right = {TopUpState.CREDITED: once, TopUpState.REVERSED: back}.get(state, none)
        for moved in (none, once, back, Moved(FIVE, FIVE), Moved(Decimal(6))):
            found = compare_with_transfers(expected, moved)
            assert (found is None) is (moved == right), (state, moved)
    found = compare_with_transfers(ours(TopUpState.CREDITED, currency=Currency.ZAR, rate=Decimal(2)), once)
    assert found is not None
    assert found.kind is DifferenceKind.BOOKS


def test_a_top_up_differs_from_a_voucher_of_ours_of_another_amount() -> None:
    credited = ours(TopUpState.CREDITED)
    assert compare_with_voucher(credited, FIVE) is None
    assert compare_with_voucher(ours(TopUpState.CREDITED, resolved_by="operator"), None) is None
    assert compare_with_voucher(ours(TopUpState.FAILED), None) is None
    for one, voucher in ((credited, None), (credited, Decimal(6)), (ours(TopUpState.FAILED), FIVE)):
        found = compare_with_voucher(one, voucher)
        assert found is not None
        assert (found.kind, "tumira audit" in found.advice) == (DifferenceKind.BOOKS, True)


def test_a_top_up_differs_from_deposits_that_come_to_something_else() -> None:
    credited = ours(TopUpState.CREDITED, currency=Currency.USDT)
    assert compare_with_deposits(credited, 5 * 10**18) is None
    assert compare_with_deposits(ours(TopUpState.CREDITED, resolved_by="operator"), 0) is None
    assert compare_with_deposits(ours(TopUpState.PENDING), 0) is None
    for one, units in ((credited, 0), (credited, 5 * 10**18 + 1), (ours(TopUpState.EXPIRED), 1)):
        found = compare_with_deposits(one, units)
        assert found is not None
        assert found.kind is DifferenceKind.BOOKS


ADDRESS: Final = "0x" + "a" * 40


def shown(tx: int, units: int = 10**18) -> ChainDeposit:
    return ChainDeposit(f"0x{tx:064x}", 0, 7, "0x", "0x", ADDRESS, units)


def known(
    tx: int,
    units: int = 10**18,
    state: DepositState = DepositState.SEEN,
    top_up_id: TopUpId | None = None,
) -> Deposit:
    return Deposit(shown(tx, units), ACCOUNT, state, top_up_id, datetime.now(UTC), depth=1)


def test_deposits_are_compared_one_by_one() -> None:
    found = list(
        compare_with_chain(
            [
                known(1),
                known(2, units=2),
                known(3, state=DepositState.ORPHANED),
                known(5),
                known(6, top_up_id=TOP),
                known(7, state=DepositState.ORPHANED),
            ],
            [shown(1), shown(2), shown(3), shown(4)],
            {ADDRESS: ACCOUNT},
        )
    )
    assert [one.kind for one in found] == [
        DifferenceKind.AMOUNT,
        DifferenceKind.NOT_HERE,
        DifferenceKind.NOT_HERE,
        DifferenceKind.NOT_THERE,
        DifferenceKind.NOT_PAID,
    ]
    assert {one.account_id for one in found} == {ACCOUNT}
    assert [one.ours for one in found[1:3]] == ["taken for vanished", "not known"]
    assert found[0].ours.startswith("0.000000000000000002 USDT to 0xaaa")
    assert found[4].top_up_id == TOP


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("5", "5.00"),
        ("5.5", "5.50"),
        ("5.123000", "5.123"),
        ("100", "100.00"),
        ("1E+2", "100.00"),
        ("0", "0.00"),
    ],
)
def test_amounts_are_written_whole(amount: str, text: str) -> None:
    assert write_exact(Decimal(amount)) == text


def test_a_difference_says_what_we_have_of_the_money() -> None:
    def said(state: TopUpState, **changes: Any) -> str:
        found = compare_with_provider(ours(state, **changes), Paid("9512", Decimal(7)))
        assert isinstance(found, Difference)
        return found.ours

    assert said(TopUpState.CREDITED) == "credited, 5.00 USD as 9510"
    assert said(TopUpState.REVERSED) == "reversed, 5.00 USD as 9510"
    rand = {"currency": Currency.ZAR, "paid": Decimal(100), "rate": Decimal(20)}
    assert said(TopUpState.CREDITED, **rand) == "credited, 100.00 ZAR as 9510, for 5.00 USD"
    # Where no money came there is none to be told of, whatever the row says.
    assert said(TopUpState.FAILED, paid=FIVE, amount=FIVE) == "failed"
    reversed_ = compare_with_provider(ours(TopUpState.REVERSED), PAID)
    assert isinstance(reversed_, Difference)
    assert "`tumira account credit` gives it back" in reversed_.advice


def test_what_an_operator_credited_needs_no_voucher_or_deposit_but_no_other_one() -> None:
    resolved = ours(TopUpState.CREDITED, resolved_by="operator")
    assert compare_with_voucher(resolved, Decimal(6)) is not None
    assert compare_with_deposits(resolved, 0) is None
    assert compare_with_deposits(resolved, 10**18) is not None
