"""Limits of an account: its balance, its spending per call and per day, and storage that nobody pays for."""

from datetime import date, datetime
from decimal import Decimal
from typing import Final

from tumira.accounts.store import LockedAccount
from tumira.core import days
from tumira.core.errors import (
    AccountSuspended,
    InsufficientBalance,
    RateLimited,
    Refusal,
    SpendLimitReached,
)
from tumira.pricing.quote import UNBILLED_OCTETS_MAX

DAY_S: Final = 86_400


def refuse_charge(account: LockedAccount, cost: Decimal, now: datetime) -> Refusal | None:
    """Refuse a charge that a locked account may not make or cannot pay."""
    if account.suspended:
        return AccountSuspended()
    return over_limit(account, cost, now) or over_balance(account, cost)


def over_balance(account: LockedAccount, cost: Decimal) -> Refusal | None:
    return InsufficientBalance.of(cost, account.balance) if cost > account.balance else None


def over_limit(account: LockedAccount, cost: Decimal, now: datetime) -> Refusal | None:
    """Refuse a batch that would exceed the account's own limit for a call, or for the day."""
    if account.call_limit is not None and cost > account.call_limit:
        return _limit_reached(
            f"The batch costs {cost:.4f} USD and the account's limit per call is "
            f"{account.call_limit:.4f} USD",
            "Send to fewer recipients at once, or raise the limit in the settings.",
            # Waiting does not make the batch cheaper, but clients retry after this long: let it be long.
            now,
            required=cost,
            call_limit=account.call_limit,
        )
    if account.daily_limit is None:
        return None
    spent = account.spent_today if account.spent_on == days.local_day(now) else Decimal(0)
    if spent + cost <= account.daily_limit:
        return None
    return daily_limit_reached(cost, spent, account.daily_limit, now)


def daily_limit_reached(
    cost: Decimal, spent: Decimal, daily_limit: Decimal, now: datetime
) -> SpendLimitReached:
    return _limit_reached(
        f"The batch costs {cost:.4f} USD, {spent:.4f} USD were spent today and the account's daily limit is "
        f"{daily_limit:.4f} USD",
        "The day ends at midnight, UTC+02:00.",
        now,
        required=cost,
        spent_today=spent,
        daily_limit=daily_limit,
    )


def _limit_reached(why: str, hint: str, now: datetime, **figures: Decimal) -> SpendLimitReached:
    amounts = {name: f"{amount:.4f}" for name, amount in figures.items()}
    return SpendLimitReached(
        f"{why}; nothing was sent or debited.",
        details=[{"code": SpendLimitReached.code, "message": hint, **amounts}],
        retry_after_s=_left_of_day_s(now),
    )


def over_unbilled_limit(account: LockedAccount, octets: int, now: datetime) -> Refusal | None:
    """Refuse to store more in a day for sends that cost nothing."""
    if not octets or octets + _unbilled_on(account, days.local_day(now)) <= UNBILLED_OCTETS_MAX:
        return None
    return RateLimited(
        "Too many sends without one number that can be sent to were stored today; nothing was sent or "
        "debited. Correct the numbers.",
        retry_after_s=_left_of_day_s(now),
    )


def spend(account: LockedAccount, cost: Decimal, octets: int, now: datetime) -> None:
    """Take the cost of a batch from a locked account, and count it to the day, or what it stores unpaid."""
    assert cost <= account.balance
    today = days.local_day(now)
    account.fell_low = account.fell_low or account.balance >= account.low_balance > account.balance - cost
    account.balance -= cost
    account.spent_today = cost + (account.spent_today if account.spent_on == today else Decimal(0))
    account.unbilled_today = octets + _unbilled_on(account, today)
    account.spent_on = today


def _unbilled_on(account: LockedAccount, today: date) -> int:
    return account.unbilled_today if account.spent_on == today else 0


def _left_of_day_s(now: datetime) -> int:
    return DAY_S - int(now.timestamp() + days.LOCAL_TIME.total_seconds()) % DAY_S
