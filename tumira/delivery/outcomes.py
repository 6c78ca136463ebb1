"""Outcomes of a claimed message: the values that a worker records and maintenance decides."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from tumira.core.ids import MessageId
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.store.queue import ClaimedMessage
from tumira.delivery.store.settlement import NewPart
from tumira.delivery.store.waiting import QueueEntry, QueuePlace

# The number of the only part of a message that the carrier cuts itself, as carriers over HTTP do.
WHOLE: Final = 0


class Taken(Struct, frozen=True, gc=False):
    """A carrier took a segment; with `complete`, all segments of the message."""

    message_id: MessageId
    part: NewPart
    complete: bool
    # The answer came after the message had been given up as doubtful, or the id was learnt from a receipt.
    late: bool = False
    # The message as it was claimed, if this is its only part.
    claimed: ClaimedMessage | None = None


class Reported(Struct, frozen=True, gc=False):
    message_id: MessageId
    number: int
    attempt: int
    carrier_id: int
    receipt: Receipt
    received_at: datetime


class CarrierRefused(Struct, frozen=True):
    """A carrier refused a message permanently, or it may not be submitted any more."""

    message_id: MessageId
    reason: str
    status: str = "failed"
    # It was in doubt before, so the carrier may have it all the same.
    doubted: bool = False
    # No carrier was asked, so no carrier's rule keeps the money.
    is_untried: bool = False


class RetryLater(Struct, frozen=True):
    """A carrier could not take a segment now; the message is retried."""

    message_id: MessageId
    carrier_id: int
    number: int
    wait_s: float
    detail: str


class LeftInDoubt(Struct, frozen=True):
    """A message was submitted, and it is unknown whether the carrier took it."""

    message_id: MessageId
    carrier_id: int
    wait_s: float
    detail: str


class Released(Struct, frozen=True):
    """A claimed message was not submitted and returns to its turn in the queue."""

    message_id: MessageId
    entry: QueueEntry


class AlreadyTaken(Struct, frozen=True):
    """A message that was claimed again had already been taken whole."""

    message_id: MessageId
    submitted_at: datetime
    carrier_id: int


class Resumed(Struct, frozen=True):
    """A message whose wait is over gets another turn; `resend` after a doubt.

    With `avoid`, another carrier than before takes it if there is one.
    """

    message_id: MessageId
    carrier_id: int | None
    lane: int
    expires_at: datetime
    resend: bool
    avoid: bool = False


class Ended(Struct, frozen=True):
    """Time has run out for a message, unless it has left the status in which it was found."""

    message_id: MessageId
    old: str
    status: str
    reason: str | None
    # The incident for the message's timeline, if any.
    incident: str | None = None
    # Its place in the queue when it was found, so that it need not be searched.
    place: QueuePlace | None = None


Outcome = (
    Taken | AlreadyTaken | Reported | CarrierRefused | RetryLater | LeftInDoubt | Released | Resumed | Ended
)
