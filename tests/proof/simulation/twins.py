"""Broken twins of the engine: each has one mistake, which the checks must find within some seeds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from tumira.delivery import sender as sender_module
from tumira.delivery import submission
from tumira.delivery.circuit_breaker import CircuitBreaker
from tumira.delivery.outcomes import CarrierRefused, LeftInDoubt
from tumira.delivery.sender import Sender
from tumira.delivery.store import refunds
from tumira.delivery.throttle import Throttle

# What is replaced, under which name, and by what.
Change = tuple[Any, str, Any]


def _without_lease() -> Sequence[Change]:
    """Let a sender submit although its lease has run out."""
    original = Sender.renew

    def renew(self: Sender, until: float, tps: float) -> None:
        original(self, until + 1000.0, tps)

    return [(Sender, "renew", renew)]


def _without_refund() -> Sequence[Change]:
    """Leave every refund out."""

    async def refund(*_arguments: object, **_options: object) -> None:
        return None

    return [(refunds, "refund", refund)]


def _doubt_as_failure() -> Sequence[Change]:
    """Take a submission without an answer for refused."""
    original = submission.final_outcome

    def final_outcome(*arguments: Any) -> Any:
        outcome = original(*arguments)
        if isinstance(outcome, LeftInDoubt):
            return CarrierRefused(outcome.message_id, "CARRIER_REJECTED")
        return outcome

    return [(sender_module, "final_outcome", final_outcome)]


def _without_throttle() -> Sequence[Change]:
    """Let the throttle allow everything."""

    def allowance(_self: Throttle, _now: float, most: int, _kept: int = 0) -> int:
        return most

    return [(Throttle, "allowance", allowance)]


def _without_window() -> Sequence[Change]:
    """Do not count the submits without an answer."""
    return [(Sender, "_window", property(lambda _self: 1000))]


def _without_circuit() -> Sequence[Change]:
    """Never open a circuit."""

    def places(_self: CircuitBreaker, _now: float, most: int) -> int:
        return most

    return [(CircuitBreaker, "places", places)]


TWINS: Final[Mapping[str, Callable[[], Sequence[Change]]]] = {
    "no lease": _without_lease,
    "no refund": _without_refund,
    "doubt is failure": _doubt_as_failure,
    "no throttle": _without_throttle,
    "no window": _without_window,
    "no circuit": _without_circuit,
}


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Let the engine make a mistake."""
    with ExitStack() as stack:
        for target, attribute, value in TWINS[name]() if name is not None else ():
            stack.enter_context(patch.object(target, attribute, value))
        yield
