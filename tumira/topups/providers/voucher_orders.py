"""What do all issuers of vouchers need to know of an order, and what follows from a call that failed?"""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import structlog

from tumira.core.ids import TOP_UP, write_id
from tumira.topups.providers.port import Order
from tumira.topups.providers.voucher import read_replacement
from tumira.topups.sealing import Seal
from tumira.topups.states import LARGEST, SMALLEST, News, Paid, Reason, Refused, Unclear, worth
from tumira.topups.voucher_pins import write_change

# For so long an issuer that is asked again with the same reference gives the answer that it gave before.
REPLAYED_FOR: Final = timedelta(minutes=30)
TOO_LATE: Final = "what became of it could not be found out while the issuer still tells"

FORBIDDEN: Final = (401, 403)
FAILURES: Final = 500

_log: Final = structlog.get_logger()


def reference_of(order: Order) -> str:
    """Return the reference under which an issuer knows an order: letters, digits and a hyphen."""
    return write_id(TOP_UP, order.id).replace("_", "-")


def open_pin(seal: Seal, order: Order) -> str | None:
    """Return the PIN; None where it was erased, or sealed when the access to the issuer was another."""
    return None if order.sealed_pin is None else seal.open(order.sealed_pin)


def unsent(problem: str, *, is_first: bool) -> News:
    """Return what is known when a call did not get through: nothing was taken, unless by one before it."""
    return Refused(Reason.NEVER_ARRIVED, problem) if is_first else Unclear(problem)


def fault_of_value(value: Decimal, order: Order) -> Refused | None:
    """Say why a voucher of so many rand is not taken; None if it is."""
    amount = worth(value, order.rate)
    if amount < SMALLEST:
        return Refused(Reason.VALUE_TOO_SMALL, f"it is worth {value} rand, less than US${SMALLEST}")
    if amount > LARGEST:
        return Refused(Reason.VALUE_TOO_LARGE, f"it is worth {value} rand, more than US${LARGEST}")
    return None


@dataclass(frozen=True, slots=True)
class ChangeNames:
    """What an issuer calls the parts of a change voucher."""

    pin: str
    cents: str
    expires: str = ""


def taken(order: Order, seal: Seal, reference: str, amount: Decimal, change: Any, names: ChangeNames) -> Paid:
    """Return that so many rand were taken; the change is sealed as soon as it is known."""
    if not isinstance(change, dict) or not change:
        return Paid(reference, amount)
    found = read_replacement(change.get(names.pin), change.get(names.cents), change.get(names.expires))
    if found is None:
        # The issuer may have sent it to the customer's phone; we cannot show it.
        _log.warning("change of a voucher not readable", top_up=write_id(TOP_UP, order.id))
        return Paid(reference, amount)
    return Paid(reference, amount, seal.close(write_change(found)))
