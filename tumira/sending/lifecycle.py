"""Life of a message: its statuses and moves, its failure reasons, and how long it and its text are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from tumira.core.translation import mark

# From acceptance, for messages of which no other end is stored.
VALIDITY: Final = timedelta(hours=24)
# The shortest validity that is given to a carrier; with less left, a message is not submitted.
HAND_OVER_MIN: Final = timedelta(seconds=60)
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
    "queued": Status(mark("Accepted and paid for. Waiting to be sent."), final=False, refund=None),
    "sending": Status(mark("Being handed to the carrier."), final=False, refund=None),
    "sent": Status(
        mark("Handed to the carrier. Waiting for the delivery receipt."), final=False, refund=None
    ),
    "delivered": Status(mark("Received by the phone."), final=True, refund=False),
    "undelivered": Status(mark("The carrier reported that it was not delivered."), final=True, refund=True),
    "expired": Status(mark("It could not be delivered in time."), final=True, refund=True),
    "unconfirmed": Status(
        mark("The carrier may have it, but no delivery receipt came. A late receipt can still change this."),
        final=True,
        refund=False,
    ),
    "failed": Status(mark("It could not be handed to a carrier."), final=True, refund=True),
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
    "queued": mark("No message has been handed to a carrier yet."),
    "processing": mark("Some messages are still in progress."),
    "completed": mark("Every message has a final status, or no recipient was accepted."),
}

FAILURE_REASONS: Final = {
    "UNKNOWN_SUBSCRIBER": mark("The number is not in use."),
    "ABSENT_SUBSCRIBER": mark("The phone was off or out of coverage."),
    "HANDSET_ERROR": mark("The phone rejected it, for example because its memory was full."),
    "SUBSCRIBER_BARRED": mark("The network blocks messages to this number."),
    "RECIPIENT_BLOCKED": mark("The recipient has blocked these messages or opted out of them."),
    "VALIDITY_EXPIRED": mark("The carrier could not deliver it in time."),
    "CARRIER_REJECTED": mark("The carrier refused it without a specific reason."),
    "CARRIER_UNAVAILABLE": mark("No carrier could be reached in time."),
    "CARRIER_CONTENT_BLOCKED": mark("The carrier refused the text."),
    "SENDER_NOT_ALLOWED": mark("The carrier does not accept the sender name."),
    "NO_ROUTE": mark("No carrier serves this country."),
    "QUEUE_EXPIRED": mark("It waited too long in our queue."),
    "INTERNAL_ERROR": mark("Something failed on our side."),
    "UNKNOWN": mark("The carrier gave no reason."),
}


# The message certainly did not arrive.
FAILED: Final = ("failed", "undelivered", "expired")


def is_final(status: str) -> bool:
    """Tell whether a message of this status no longer counts as pending in its batch."""
    return MESSAGE_STATUSES[status].final


def may_move(old: str, new: str) -> bool:
    return new in MOVES[old]


@cache
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


def remaining_s(expires_at: datetime, now: datetime) -> int | None:
    """Return the seconds that a message stays valid at a carrier; None if it may not be submitted."""
    left = expires_at - now
    return None if left < HAND_OVER_MIN else int(left.total_seconds())
