"""Broken twins of the engine: each has one mistake, which the checks must find within some seeds."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import Any, Final
from unittest.mock import patch

from tumira.delivery import sender as sender_module
from tumira.delivery import submission
from tumira.delivery.circuit_breaker import CircuitBreaker
from tumira.delivery.outcomes import CarrierRefused, LeftInDoubt, Resumed
from tumira.delivery.sender import Sender
from tumira.delivery.settle_rules import Consequences
from tumira.delivery.store import refunds, waiting
from tumira.delivery.store.settlement import LockedMessage, MessageChange
from tumira.delivery.throttle import Throttle
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending import lifecycle
from tumira.webhooks.reader import EventCursor

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


def _refund_twice() -> Sequence[Change]:
    """Credit each refund twice and record it once."""
    original = refunds.refund

    async def refund(connection: Connection, messages: Sequence[LockedMessage]) -> None:
        await original(connection, messages)
        for one in messages:
            await connection.execute(
                "UPDATE accounts SET balance = balance + $1 WHERE id = $2", one.cost, one.account_id
            )

    return [(refunds, "refund", refund)]


def _retry_early() -> Sequence[Change]:
    """Take every retry for due."""
    return [
        (waiting, "SQL_LIST_DUE", _without(waiting.SQL_LIST_DUE, "due_at <= statement_timestamp()")),
        (waiting, "SQL_CLAIM_DUE", _without(waiting.SQL_CLAIM_DUE, "due_at <= clock_timestamp()")),
    ]


def _without(statement: Statement, condition: str) -> Statement:
    assert condition in statement.text
    changed = copy(statement)
    changed.text = statement.text.replace(condition, "true")
    return changed


def _skip_events() -> Sequence[Change]:
    """Count events as done that are still on their way."""
    return [(EventCursor, "position", property(lambda self: self._read))]


def _refund_untold() -> Sequence[Change]:
    """Leave out the event about a refund."""
    original = Consequences._tell

    def tell(self: Consequences, message: LockedMessage, type_: str) -> None:
        if type_ != "message.refunded":
            original(self, message, type_)

    return [(Consequences, "_tell", tell)]


def _status_goes_back() -> Sequence[Change]:
    """Let the last receipt win, also after the message has ended."""
    return [(lifecycle, "is_final", lambda _status: False), (lifecycle, "steps", lambda _old, new: (new,))]


def _resend_unrecorded() -> Sequence[Change]:
    """Send a message again after a doubt without saying so."""
    original = Consequences._resume

    def resume(self: Consequences, change: MessageChange, resumed: Resumed) -> None:
        original(self, change, resumed)
        self.incidents = [one for one in self.incidents if one.kind != "resend"]

    return [(Consequences, "_resume", resume)]


TWINS: Final[dict[str, Callable[[], Sequence[Change]]]] = {
    "no refund": _without_refund,
    "second refund": _refund_twice,
    "doubt is failure": _doubt_as_failure,
    "no lease": _without_lease,
    "no throttle": _without_throttle,
    "no window": _without_window,
    "no circuit": _without_circuit,
    "retry too early": _retry_early,
    "refund not told": _refund_untold,
    "status goes back": _status_goes_back,
    "resend not recorded": _resend_unrecorded,
}


# The seed in which each was found out last; it is tried first.
SEEN: Final = {
    "no refund": 1,
    "second refund": 1,
    "doubt is failure": 1,
    "no lease": 15,
    "no throttle": 2,
    "no window": 1,
    "no circuit": 24,
    "retry too early": 17,
    "refund not told": 1,
    "status goes back": 1,
    "resend not recorded": 5,
}

# Mistakes that no seed has shown so far; `--twin` tries them, `--twins` does not.
UNSEEN: Final[dict[str, Callable[[], Sequence[Change]]]] = {
    "events skipped": _skip_events,
}


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Let the engine make a mistake."""
    with ExitStack() as stack:
        for target, attribute, value in (TWINS | UNSEEN)[name]() if name is not None else ():
            stack.enter_context(patch.object(target, attribute, value))
        yield
