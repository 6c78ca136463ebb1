"""Where can a message or a batch stand, and why does a message fail?"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Status:
    """One place where a message can stand; `refund` is None until it is final."""

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
