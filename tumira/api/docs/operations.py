"""What is said about each operation: its group, its description, and which refusals it can answer with?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tumira.core import errors
from tumira.core.errors import Refusal

TAGS: Final = {
    "Messages": "Send texts and follow what became of them.",
    "Account": "What the account can spend, and what sending costs.",
    "Webhooks": "What we call you for; you do not call these.",
}

_ANY_CALL: Final = (
    errors.MalformedRequest,
    errors.MissingApiKey,
    errors.InvalidApiKey,
    errors.ApiKeyRevoked,
    errors.InsufficientScope,
    errors.MethodNotAllowed,
    errors.RequestTimeout,
    errors.RateLimited,
    errors.HeadersTooLarge,
    errors.InternalError,
    errors.ServiceUnavailable,
)
_LOOKUP: Final = (*_ANY_CALL, errors.NotFound)
_SEND: Final = (
    *_ANY_CALL,
    errors.InvalidIdempotencyKey,
    errors.InsufficientBalance,
    errors.AccountSuspended,
    errors.IdempotencyConflict,
    errors.IdempotencyInProgress,
    errors.PayloadTooLarge,
    errors.UnsupportedMediaType,
    errors.ValidationFailed,
    errors.ChannelNotAvailable,
    errors.TooManyRecipients,
    errors.TooManySegments,
    errors.ContentRejected,
    errors.SpendLimitReached,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """What the reference says about an endpoint."""

    tag: str
    description: str
    refusals: Sequence[type[Refusal]]

    def statuses(self) -> Mapping[int, Sequence[type[Refusal]]]:
        """Return the refusals by status, ascending."""
        ordered = sorted(self.refusals, key=lambda refusal: (refusal.status, refusal.code))
        return {
            status: [refusal for refusal in ordered if refusal.status == status]
            for status in dict.fromkeys(refusal.status for refusal in ordered)
        }


OPERATIONS: Final = {
    "sendMessages": Operation(
        "Messages",
        "One call makes one batch: one debit, one `batch_id`, one message for each recipient. A 202 is given "
        "when all of it is on disk.\n\n"
        "Numbers that cannot be sent to are listed in `rejected` and not billed; the rest of the batch "
        "proceeds. A call of which every number is rejected is still answered 202, with `accepted` 0 and "
        "a cost of `0.0000`.\n\n"
        "Marketing is not carried: a text that is judged promotional is refused with `CONTENT_REJECTED`, and "
        "nothing is sent or debited.\n\n"
        "With `dry_run` the answer is 200 and says what the live call would cost. It stores nothing, does "
        "not look at the balance, and ignores a well-formed `Idempotency-Key`.",
        _SEND,
    ),
    "getMessage": Operation(
        "Messages",
        "Says where one message stands. `failure_reason` and `refunded_at` are present only when set.",
        _LOOKUP,
    ),
    "getBatch": Operation(
        "Messages",
        "Says where a batch stands, with every recipient's outcome in the order in which they were given.",
        _LOOKUP,
    ),
    "getBalance": Operation("Account", "Says what the account can spend now.", _ANY_CALL),
    "getPricing": Operation(
        "Account",
        "Lists the price per segment for each channel and country. Entries with the status `coming_soon` are "
        "announced and not yet charged.",
        _ANY_CALL,
    ),
}
