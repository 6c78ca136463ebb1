"""Limits of an account: what it may spend in a call and in a day, and what it may store unpaid."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

import pytest
from msgspec import structs

from tumira.accounts.lifetimes import Lifetimes
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.accounts.rate_limit import CallWindow
from tumira.accounts.store import SYSTEM, LockedAccount
from tumira.core.errors import AccountSuspended, InsufficientBalance, RateLimited, SpendLimitReached
from tumira.pricing.quote import UNBILLED_OCTETS_MAX
from tumira.sending.limits import over_balance, over_limit, over_unbilled_limit, refuse_charge, spend

# Half an hour before midnight in Harare.
LATE: Final = datetime(2026, 11, 18, 21, 30, tzinfo=UTC)
TOMORROW: Final = LATE + timedelta(hours=1)
TODAY: Final = date(2026, 11, 18)
ONE: Final = Decimal(1)
CENT: Final = Decimal("0.01")


def account(**fields: object) -> LockedAccount:
    opened = LockedAccount(
        window=CallWindow((), ()),
        stored_window=CallWindow((), ()),
        lifetimes=Lifetimes(),
        passcode_limits=PasscodeLimits(),
        id=SYSTEM,
        balance=Decimal(10),
        rate_limit=60,
        daily_limit=None,
        call_limit=None,
        spent_on=TODAY,
        spent_today=Decimal(0),
        unbilled_today=0,
        weight=1,
        suspended=False,
        low_balance=ONE,
        review_consent=False,
        has_opt_outs=False,
    )
    return structs.replace(opened, **fields)


def test_a_day_may_spend_its_limit_and_not_a_cent_more() -> None:
    spent = account(daily_limit=Decimal(3), spent_today=Decimal(2))
    assert over_limit(spent, ONE, LATE) is None
    refusal = over_limit(spent, ONE + CENT, LATE)
    assert isinstance(refusal, SpendLimitReached)
    assert refusal.details[0]["spent_today"] == "2.0000"
    assert refusal.retry_after_s == 30 * 60


def test_the_limit_is_whole_again_at_midnight() -> None:
    spent = account(daily_limit=Decimal(3), spent_today=Decimal(3))
    assert isinstance(over_limit(spent, CENT, LATE), SpendLimitReached)
    assert over_limit(spent, Decimal(3), TOMORROW) is None
    assert isinstance(over_limit(spent, Decimal(3) + CENT, TOMORROW), SpendLimitReached)


def test_what_is_spent_counts_to_its_own_day() -> None:
    spent = account(daily_limit=Decimal(3))
    for now, today in ((LATE, ONE), (LATE, 2 * ONE), (TOMORROW, ONE), (TOMORROW, 2 * ONE)):
        spend(spent, ONE, 0, now)
        assert spent.spent_today == today
    assert spent.balance == Decimal(6)
    assert spent.spent_on == date(2026, 11, 19)


def test_a_call_may_cost_its_limit_and_not_a_cent_more() -> None:
    limited = account(call_limit=ONE)
    assert over_limit(limited, ONE, LATE) is None
    refusal = over_limit(limited, ONE + CENT, LATE)
    assert isinstance(refusal, SpendLimitReached)
    assert refusal.details[0]["call_limit"] == "1.0000"


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"suspended": True}, AccountSuspended),
        ({"balance": ONE - CENT}, InsufficientBalance),
        ({"call_limit": ONE - CENT}, SpendLimitReached),
        ({"daily_limit": ONE - CENT}, SpendLimitReached),
    ],
)
def test_a_charge_is_refused_for_each_reason_alone(fields: dict[str, object], kind: type) -> None:
    assert isinstance(refuse_charge(account(**fields), ONE, LATE), kind)


def test_a_refusal_says_what_is_needed_and_what_there_is() -> None:
    refusal = over_balance(account(balance=ONE), Decimal(3))
    assert isinstance(refusal, InsufficientBalance)
    assert (refusal.details[0]["required"], refusal.details[0]["available"]) == ("3.0000", "1.0000")


def test_the_last_cent_may_be_spent() -> None:
    assert refuse_charge(account(balance=ONE), ONE, LATE) is None


def test_a_balance_falls_low_once_when_it_passes_the_threshold() -> None:
    low = account(balance=2 * ONE, low_balance=ONE)
    fell = []
    for cost in (ONE, CENT, CENT):
        spend(low, cost, 0, LATE)
        fell.append(low.fell_low)
    # It stays so while the account is locked.
    assert fell == [False, True, True]
    below = account(balance=ONE - CENT, low_balance=ONE)
    spend(below, CENT, 0, LATE)
    assert not below.fell_low


def test_what_is_stored_unpaid_is_bounded_by_the_day() -> None:
    full = account(unbilled_today=UNBILLED_OCTETS_MAX - 5)
    assert over_unbilled_limit(full, 5, LATE) is None
    refusal = over_unbilled_limit(full, 6, LATE)
    assert isinstance(refusal, RateLimited)
    assert refusal.retry_after_s == 30 * 60
    assert over_unbilled_limit(full, 0, LATE) is None
    assert over_unbilled_limit(full, 6, TOMORROW) is None
    spend(full, Decimal(0), 3, LATE)
    assert full.unbilled_today == UNBILLED_OCTETS_MAX - 2
    spend(full, Decimal(0), 3, TOMORROW)
    assert full.unbilled_today == 3
