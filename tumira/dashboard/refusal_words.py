"""Refusals of money and of the account, as pages say them."""

from decimal import Decimal

from tumira.core.errors import AccountSuspended, InsufficientBalance, Refusal, SpendLimitReached
from tumira.html.page import write_usd


def say_refusal(refusal: Refusal) -> str:
    detail = refusal.details[0] if refusal.details else {}
    match refusal:
        case InsufficientBalance():
            return (
                f"This costs {_usd(detail['required'])} and {_usd(detail['available'])} can be spent: "
                f"{_usd(detail['shortfall'])} is missing. Nothing was sent; top up, or send to fewer numbers."
            )
        case SpendLimitReached() if "call_limit" in detail:
            return (
                f"This costs {_usd(detail['required'])}, and your limit per call is "
                f"{_usd(detail['call_limit'])}. Nothing was sent; send to fewer numbers, or raise the limit."
            )
        case SpendLimitReached() if "daily_limit" in detail:
            return (
                f"This costs {_usd(detail['required'])}, {_usd(detail['spent_today'])} were spent today, and "
                f"the limit for a day is {_usd(detail['daily_limit'])}. Nothing was sent; raise the limit, "
                "or wait until midnight."
            )
        case AccountSuspended():
            return "This account is suspended, so nothing was sent. Please ask the operator why."
    return refusal.message


def _usd(amount: str) -> str:
    return write_usd(Decimal(amount))
