"""A claimed message on its way to a carrier: its PDU bodies, its progress and its outcome."""

import random
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final

from tumira.carriers.routes.rules import SegmentCost
from tumira.carriers.store import Carrier
from tumira.core.backoff import retry_wait_s
from tumira.delivery.margin import set_cost
from tumira.delivery.outcomes import (
    WHOLE,
    CarrierRefused,
    LeftInDoubt,
    Outcome,
    Released,
    RetryLater,
    Taken,
)
from tumira.delivery.receipt_rules import key
from tumira.delivery.smpp.encoding import EncodedText, encode
from tumira.delivery.smpp.pdu import SubmitBodies, relative_validity
from tumira.delivery.store.queue import ClaimedMessage, PastAttempts
from tumira.delivery.store.references import SubmissionReference
from tumira.delivery.store.settlement import NewPart
from tumira.delivery.store.waiting import QueueEntry

REFERENCES_MAX: Final = 20_000

# The recipient has opted out.
BLOCKED: Final = "RECIPIENT_BLOCKED"

_REFERENCES: Final = 256


class Submission:
    """A claimed message on its way to a carrier; its segments are numbered from 1.

    Without `encoded` the carrier gets the text whole, as the part number WHOLE, under the reference `handle`.
    """

    __slots__ = (
        "attempt",
        "claimed",
        "closed",
        "cost",
        "count",
        "encoded",
        "handle",
        "in_line",
        "named",
        "overdue",
        "reference",
        "refusal",
        "retries",
        "retry",
        "sender",
        "taken",
        "todo",
        "told_cost",
        "touched_at",
        "waiting",
    )

    def __init__(
        self,
        claimed: ClaimedMessage,
        encoded: EncodedText | None,
        reference: int | None,
        past: PastAttempts | None,
        handle: SubmissionReference | None = None,
    ) -> None:
        self.claimed = claimed
        self.encoded = encoded
        self.reference = reference
        # What the carrier takes for a segment by its route, and what its answer says that the message costs.
        self.cost: SegmentCost | None = None
        self.told_cost: tuple[Decimal, str] | None = None
        # The account's name or the route's, unless the carrier refused it; None for the carrier's own. And
        # the segments that were submitted under it.
        self.sender = claimed.sender_name
        self.named: dict[int, str] = {}
        self.handle = handle
        self.attempt = past.resends if past is not None else 0
        self.retries = past.retries if past is not None else 0
        numbers = (WHOLE,) if encoded is None else range(1, len(encoded.payloads) + 1)
        self.count = len(numbers)
        self.todo = list(numbers)
        if past is not None and past.taken:
            is_whole = WHOLE in past.taken
            self.todo = [number for number in numbers if not is_whole and number not in past.taken]
        self.taken = self.count - len(self.todo)
        # Segments whose answer is due, and those whose answer did not come in time.
        self.waiting: set[int] = set()
        self.overdue: set[int] = set()
        # When it was last queued, submitted or answered, by the clock of the event loop.
        self.touched_at = 0.0
        # Why a segment was refused for good, or for the time being.
        self.refusal: str | None = BLOCKED if claimed.opted_out else None
        self.retry: tuple[int, str] | None = None
        self.in_line = False
        self.closed = False

    @property
    def complete(self) -> bool:
        return self.taken >= self.count

    @property
    def again(self) -> bool:
        """Tell whether the next claim has to read what was done before."""
        return self.claimed.again or self.taken > 0


class SubmissionWriter:
    def __init__(self, source: str, alphabet: str) -> None:
        self._bodies = SubmitBodies(source)
        self._named_bodies = lru_cache(maxsize=1000)(SubmitBodies)
        # Segments of different texts to one number must not be joined, so the reference goes round for each.
        self._references: dict[str, int] = {}
        self._alphabet = alphabet
        self._encode = lru_cache(maxsize=1000)(encode)

    def prepare(self, claimed: ClaimedMessage, past: PastAttempts | None) -> Submission:
        """Begin the submission of a message, or continue an earlier one."""
        if claimed.segments == 1:
            return Submission(claimed, self._encode(claimed.body, 0, self._alphabet), None, past)
        reference = past.reference if past is not None and past.taken else None
        if reference is None:
            reference = self._next_reference(claimed.recipient)
        return Submission(claimed, encode(claimed.body, reference, self._alphabet), reference, past)

    def body(self, submission: Submission, number: int, left_s: int) -> bytes:
        encoded = submission.encoded
        assert encoded is not None
        bodies = self._bodies if submission.sender is None else self._named_bodies(submission.sender)
        return bodies.body(
            submission.claimed.recipient[1:],
            encoded.payloads[number - 1],
            encoded.esm_class,
            encoded.data_coding,
            _validity(left_s),
        )

    def _next_reference(self, recipient: str) -> int:
        last = self._references.pop(recipient, None)
        # Spread where it begins: after a restart the last one is forgotten.
        following = (hash(recipient) if last is None else last + 1) % _REFERENCES
        self._references[recipient] = following
        if len(self._references) > REFERENCES_MAX:
            del self._references[next(iter(self._references))]
        return following


@lru_cache(maxsize=4096)
def _validity(left_s: int) -> str:
    return relative_validity(left_s)


def segment_taken(
    submission: Submission, number: int, carrier: Carrier, times: tuple[datetime, datetime], carrier_ref: str
) -> Taken:
    """Return the outcome of a segment that was submitted and answered at these times."""
    claimed = submission.claimed
    part = NewPart(
        claimed.id,
        number,
        submission.attempt,
        carrier.id,
        submission.reference,
        carrier_ref,
        key(carrier_ref),
        claimed.claimed_at,
        *times,
        sender=submission.named.get(number) or carrier.settings.source or None,
    )
    if submission.cost is not None:
        set_cost(part, submission.cost, claimed.segments, submission.told_cost)
    whole = claimed if submission.count == 1 else None
    return Taken(claimed.id, part, submission.complete, submission.closed, whole)


def final_outcome(submission: Submission, carrier: Carrier, doubt: str) -> Outcome | None:
    """Return the outcome of the submission; None when all segments were taken and recorded one by one."""
    claimed = submission.claimed
    if submission.refusal == "QUEUE_EXPIRED":
        return CarrierRefused(
            claimed.id, submission.refusal, "expired", doubted=submission.attempt > 0, is_untried=True
        )
    if submission.refusal is not None:
        return CarrierRefused(
            claimed.id,
            submission.refusal,
            doubted=submission.attempt > 0,
            is_untried=claimed.opted_out and not submission.taken,
        )
    if submission.overdue:
        return LeftInDoubt(claimed.id, carrier.id, carrier.settings.doubt_wait_s, doubt)
    if submission.retry is not None:
        number, detail = submission.retry
        wait_s = retry_wait_s(submission.retries + 1, random.random())  # noqa: S311 - spreads, guards nothing
        return RetryLater(claimed.id, carrier.id, number, wait_s, detail)
    if not submission.complete:
        entry = QueueEntry(
            claimed.id,
            claimed.country,
            claimed.network,
            claimed.queue,
            claimed.lane,
            claimed.turn,
            submission.again,
            claimed.expires_at,
            claimed.avoid,
        )
        return Released(claimed.id, entry)
    return None
