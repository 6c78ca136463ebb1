"""Life of a message: its statuses and moves, its failure reasons, and how long it and its text are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

# From acceptance; a message that waits longer is not sent any more.
VALIDITY: Final = timedelta(hours=24)
# From submission; after it the message is unconfirmed, and a late receipt still counts.
RECEIPT_WAIT: Final = timedelta(hours=72)
LATE_RECEIPT_WAIT: Final = timedelta(days=7)
# From the completion of its batch.
TEXT_KEPT: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Status:
    """A status of a message; `refund` is None until it is final."""

    meaning: str
    final: bool
    refund: bool | None


MESSAGE_STATUSES: Final = {
    "queued": Status("Accepted and paid; waits for its turn.", final=False, refund=None),
    "sending": Status("Being handed to a carrier.", final=False, refund=None),
    "sent": Status("A carrier took it; its receipt is awaited.", final=False, refund=None),
    "delivered": Status("The handset has it.", final=True, refund=False),
    "undelivered": Status("The carrier reports that it did not arrive.", final=True, refund=True),
    "expired": Status("Its validity ended before it arrived.", final=True, refund=True),
    "unconfirmed": Status(
        "A carrier may have it, and no receipt came. The one final status that a late receipt still changes.",
        final=True,
        refund=False,
    ),
    "failed": Status("It could not be handed to a carrier.", final=True, refund=True),
}

# All legal moves. Only `sending` goes back, to be retried; of the final statuses only `unconfirmed` changes,
# when a receipt comes late.
MOVES: Final[Mapping[str, frozenset[str]]] = {
    "queued": frozenset({"sending", "failed", "expired"}),
    "sending": frozenset({"queued", "sent", "failed", "unconfirmed"}),
    "sent": frozenset({"delivered", "undelivered", "expired", "unconfirmed"}),
    "delivered": frozenset(),
    "undelivered": frozenset(),
    "expired": frozenset(),
    "unconfirmed": frozenset({"delivered", "undelivered", "expired"}),
    "failed": frozenset(),
}

# A receipt may arrive while the message is still being submitted, or back in the queue after a doubt. The
# message then passes through the statuses that it has skipped.
_ONWARD: Final[Mapping[str, str]] = {"queued": "sending", "sending": "sent"}

BATCH_STATUSES: Final = {
    "queued": "No message has been handed over yet.",
    "processing": "Some messages are not final yet.",
    "completed": "Every message is final; at once when no recipient was accepted.",
}

FAILURE_REASONS: Final = {
    "UNKNOWN_SUBSCRIBER": "The number is not in use.",
    "ABSENT_SUBSCRIBER": "The handset was off or out of reach.",
    "HANDSET_ERROR": "The handset refused it, for example because its memory was full.",
    "SUBSCRIBER_BARRED": "The network does not let this number receive messages.",
    "RECIPIENT_BLOCKED": "The recipient does not want such messages.",
    "VALIDITY_EXPIRED": "The carrier tried until the message's validity ended.",
    "CARRIER_REJECTED": "The carrier refused it without a reason that fits the others.",
    "CARRIER_UNAVAILABLE": "No carrier could be reached while the message was valid.",
    "CARRIER_CONTENT_BLOCKED": "The carrier refused it for its text.",
    "SENDER_NOT_ALLOWED": "The carrier does not accept the sender's name.",
    "NO_ROUTE": "No carrier serves the recipient's country.",
    "QUEUE_EXPIRED": "Its validity ended while it waited here.",
    "INTERNAL_ERROR": "Something failed on our side.",
    "UNKNOWN": "The carrier gave no reason.",
}


def is_final(status: str) -> bool:
    """Tell whether a message of this status no longer counts as pending in its batch."""
    return MESSAGE_STATUSES[status].final


def may_move(old: str, new: str) -> bool:
    return new in MOVES[old]


def steps(old: str, new: str) -> Sequence[str] | None:
    """Return the statuses that a message enters up to `new`; None if `new` cannot be reached.

    A direct move is one step, also where a longer path exists: `queued` to `expired` is our own expiry.
    """
    assert new in MOVES
    if old == new:
        return None
    entered: list[str] = []
    place = old
    while not may_move(place, new):
        if place not in _ONWARD:
            return None
        place = _ONWARD[place]
        entered.append(place)
    return (*entered, new)


def remaining_s(accepted_at: datetime, now: datetime) -> int:
    """Return the seconds that a message remains valid; zero or less when it has expired."""
    return int((accepted_at + VALIDITY - now).total_seconds())
