"""The port to a carrier: what a sender needs of a connection, whatever protocol it speaks."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

from tumira.delivery.responses import ResponseRule
from tumira.delivery.store.queue import ClaimedMessage, PastAttempts
from tumira.delivery.store.references import SubmissionReference
from tumira.delivery.submission import Submission
from tumira.postgres.connection import Connection

NO_ANSWER: Final = "no answer came in time"

References = Mapping[UUID, SubmissionReference]
NO_REFERENCES: Final[References] = {}


class LinkListener(Protocol):
    """The user of a link; no method may wait."""

    def linked(self) -> None:
        """Continue: messages may be submitted."""

    def answered(self, tag: object, rule: ResponseRule, detail: str, carrier_ref: str) -> None:
        """Take the carrier's answer to a submit; it may still come after `unanswered`.

        `detail` names the answer as people look it up; it is empty when the segment was taken.
        """

    def unanswered(self, tag: object, why: str = NO_ANSWER) -> None:
        """Note that it is unknown whether the carrier took a segment; the link goes on."""

    def settled(self) -> None:
        """Continue after a group of the calls above."""

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        """Note that nothing can be submitted for now, and which submits will never be answered."""


class Link(Protocol):
    """A connection to a carrier. It connects, and connects again after every end, until dropped or closed."""

    # Why nothing can be submitted, once that is known.
    problem: str | None
    # The longest wait for an answer; and without any answer, for how long more is submitted.
    response_s: float
    quiet_s: float

    @property
    def is_up(self) -> bool: ...

    @property
    def is_usable(self) -> bool:
        """Tell whether to submit: it is up, and not closing."""

    @property
    def is_on_trial(self) -> bool:
        """Tell whether a single message has to show that the carrier takes messages again."""

    @property
    def outstanding(self) -> int: ...

    async def register(
        self, connection: Connection, claimed: Sequence[ClaimedMessage], past: Mapping[UUID, PastAttempts]
    ) -> References:
        """Store, in the transaction of a claim, what has to be known of it whatever happens."""

    def prepare(
        self, claimed: ClaimedMessage, past: PastAttempts | None, reference: SubmissionReference | None
    ) -> Submission: ...

    def submit(self, tag: object, submission: Submission, number: int, left_s: int) -> None:
        """Submit a segment of a message that stays valid for `left_s`; the answer comes with the tag."""

    def reset(self, problem: str) -> None:
        """End because of what the carrier answered, and connect again."""

    def drop(self) -> None:
        """Stop at once: another worker has the lease."""

    async def close(self, wait_s: float) -> None:
        """Disconnect permanently, after waiting up to `wait_s` for outstanding answers."""
