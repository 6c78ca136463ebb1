"""Top-ups that are in no database."""

from decimal import Decimal
from typing import Any, Final

from tumira.core.ids import AccountId, TopUpId, new_id
from tumira.topups.states import Currency, Method, TopUp, TopUpState

FIVE: Final = Decimal(5)


def new_top_up(**changes: Any) -> TopUp:
    """Return a top-up of five dollars that was just started, apart from the changes."""
    facts: dict[str, Any] = dict.fromkeys(TopUp.__slots__) | {
        "id": TopUpId(new_id(1_700_000_000_000)),
        "account_id": AccountId(new_id(1)),
        "method": Method.PAYNOW,
        "provider": "ecocash",
        "state": TopUpState.STARTED,
        "currency": Currency.USD,
        "asked": FIVE,
        "rate": Decimal(1),
        "owed": Decimal(0),
        "kept": {},
    }
    return TopUp(**(facts | changes))
