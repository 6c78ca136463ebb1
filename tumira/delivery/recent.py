"""Segments that a carrier took lately: their receipts are matched and settled without a look-up."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from tumira.core.ids import MessageId
from tumira.delivery.outcomes import Taken
from tumira.delivery.receipt_rules import Receipt, key, same_number, spellings
from tumira.delivery.store.settlement import LockedMessage

RECENT_MAX: Final = 50_000


class RecentSegment(Struct, frozen=True, gc=False):
    message_id: MessageId
    number: int
    attempt: int
    recipient: str
    key: str
    # The message, if this is its only segment and its last receipt has not come.
    message: LockedMessage | None


class RecentSegments:
    """The segments of one carrier by their ids.

    What is remembered of a message is what it should be; who writes it compares.
    """

    def __init__(self) -> None:
        # In the order in which they came, so the first are the oldest.
        self._segments: dict[str, RecentSegment] = {}

    def add(self, taken: Taken, recipient: str, now: datetime) -> LockedMessage | None:
        """Remember a segment; return its message as it was claimed, if it has no other segment."""
        part, claimed = taken.part, taken.claimed
        message = None
        if claimed is not None and not taken.late:
            message = LockedMessage(
                claimed.id,
                claimed.batch_id,
                claimed.account_id,
                claimed.country,
                claimed.recipient,
                "sending",
                claimed.segments,
                claimed.cost,
                now,
                claimed.network,
            )
        self._segments[part.carrier_key] = RecentSegment(
            part.message_id, part.number, part.attempt, recipient, part.carrier_key, message
        )
        if len(self._segments) > RECENT_MAX:
            del self._segments[next(iter(self._segments))]
        return message

    def find(self, receipt: Receipt, *, readings: bool = False) -> RecentSegment | None:
        """Return the segment that was taken lately under a receipt's id, or another reading of it."""
        if receipt.carrier_ref is None:
            return None
        for spelling in spellings(receipt.carrier_ref)[1:] if readings else (key(receipt.carrier_ref),):
            recent = self._segments.get(spelling)
            if recent is not None and same_number(recent.recipient, receipt.recipient):
                return recent
        return None

    def end(self, segment: RecentSegment) -> None:
        """Forget the message of a segment whose last receipt has come: another one is looked up."""
        self._segments[segment.key] = RecentSegment(
            segment.message_id, segment.number, segment.attempt, segment.recipient, segment.key, None
        )

    def forget(self, taken: Taken) -> None:
        """Forget a segment that could not be recorded: a receipt would settle a message without it."""
        self._segments.pop(taken.part.carrier_key, None)


def as_sent(message: LockedMessage, now: datetime) -> LockedMessage:
    """Return what a remembered message is once its only segment is recorded."""
    return LockedMessage(
        message.id,
        message.batch_id,
        message.account_id,
        message.country,
        message.recipient,
        "sent",
        message.segments,
        message.cost,
        now,
        message.network,
    )
