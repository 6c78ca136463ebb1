"""Refusals of money and of the account, as pages say them."""

from decimal import Decimal

from tumira.core.errors import AccountSuspended, InsufficientBalance, Refusal, SpendLimitReached
from tumira.core.translation import _
from tumira.html.page import write_cost, write_usd


def say_refusal(refusal: Refusal) -> str:
    detail = refusal.details[0] if refusal.details else {}
    match refusal:
        case InsufficientBalance():
            return _(
                "Your balance is too low: this costs {required} and you have {available}. Nothing was sent. "
                "You need {shortfall} more: top up, or remove some recipients."
            ).format(
                required=_cost(detail["required"]),
                available=_usd(detail["available"]),
                shortfall=_cost(detail["shortfall"]),
            )
        case SpendLimitReached() if "call_limit" in detail:
            return _(
                "This costs {required}, more than your limit of {limit} per send. Nothing was sent. "
                "Remove some recipients, or raise the limit in Settings."
            ).format(required=_cost(detail["required"]), limit=_usd(detail["call_limit"]))
        case SpendLimitReached() if "daily_limit" in detail:
            return _(
                "This costs {required}. You have spent {spent} today, and your limit is {limit} per day. "
                "Nothing was sent. Raise the limit in Settings, or wait until midnight."
            ).format(
                required=_cost(detail["required"]),
                spent=_cost(detail["spent_today"]),
                limit=_usd(detail["daily_limit"]),
            )
        case AccountSuspended():
            return _("Your account is suspended, so nothing was sent. Contact support.")
    return refusal.message


def _cost(amount: str) -> str:
    return write_cost(Decimal(amount))


def _usd(amount: str) -> str:
    return write_usd(Decimal(amount))
