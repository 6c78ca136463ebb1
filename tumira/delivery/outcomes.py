"""What can become of a message that was claimed? The values that a worker records, and tasks decide."""

from datetime import datetime

from msgspec import Struct

from tumira.core.ids import MessageId
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.store.settlement import NewPart
from tumira.delivery.store.waiting import QueuePlace


class Taken(Struct, frozen=True, gc=False):
    """A carrier took a segment; `complete` with it, all segments of the message."""

    message_id: MessageId
    part: NewPart
    complete: bool
    # The answer came after the message had been given up as doubtful, or the id was learnt from a receipt.
    late: bool = False


class Reported(Struct, frozen=True, gc=False):
    """A receipt came for a segment."""

    message_id: MessageId
    number: int
    attempt: int
    carrier_id: int
    receipt: Receipt
    received_at: datetime


class CarrierRefused(Struct, frozen=True):
    """A carrier refused a message for good, or it was not worth handing over any more (`expired`)."""

    message_id: MessageId
    reason: str
    status: str = "failed"
    # It was in doubt before, so the carrier may have it all the same.
    doubted: bool = False


class RetryLater(Struct, frozen=True):
    """A carrier could not take a segment now; the message is tried again."""

    message_id: MessageId
    carrier_id: int
    number: int
    wait_s: float
    detail: str


class InDoubt(Struct, frozen=True):
    """A message was handed over, and nobody knows whether the carrier took it."""

    message_id: MessageId
    carrier_id: int
    wait_s: float
    detail: str


class Released(Struct, frozen=True):
    """A claimed message was not handed over and goes back to its turn."""

    message_id: MessageId
    country: str
    lane: int
    turn: int
    again: bool
    avoid: int | None = None


class AlreadyTaken(Struct, frozen=True):
    """A message that was claimed again turned out to have been taken whole before."""

    message_id: MessageId
    submitted_at: datetime


class Resumed(Struct, frozen=True):
    """A message has waited long enough and gets another turn; `resend` after a doubt.

    With `avoid`, another carrier than before takes it if there is one.
    """

    message_id: MessageId
    carrier_id: int | None
    lane: int
    resend: bool
    avoid: bool = False


class Ended(Struct, frozen=True):
    """Time has run out for a message, unless it has left the status in which it was found."""

    message_id: MessageId
    old: str
    status: str
    reason: str | None
    # What the message's timeline says beside it, if anything.
    incident: str | None = None
    # Where it stood in the queue when it was found, so that nobody has to look for it.
    place: QueuePlace | None = None


Outcome = Taken | AlreadyTaken | Reported | CarrierRefused | RetryLater | InDoubt | Released | Resumed | Ended
