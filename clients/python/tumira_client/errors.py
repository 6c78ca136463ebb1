"""What the client raises."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Required, TypedDict

if TYPE_CHECKING:
    from tumira_client.models import Sent


class ContentReason(TypedDict):
    """Words because of which a text was refused, and where they are in it."""

    words: str
    start: int
    end: int
    category: str


class ErrorDetail(TypedDict, total=False):
    """One fault, or figures about the refusal; all but `code` and `message` are there where they apply."""

    code: Required[str]
    message: Required[str]
    field: str
    required: str
    available: str
    shortfall: str
    spent_today: str
    daily_limit: str
    recipients: int
    recipients_max: int
    segments: int
    segments_max: int
    encoding: str
    ucs2_characters: Sequence[str]
    category: str
    score: float
    reasons: Sequence[ContentReason]
    drop: Sequence[str]


class TumiraError(Exception):
    """Everything that the client raises about a call, a number or an event."""


class ApiError(TumiraError):
    """A call that the service refused; each code has a class of its own, and an unknown code has this one."""

    def __init__(
        self,
        *,
        code: str,
        status: int,
        message: str,
        retryable: bool,
        details: Sequence[ErrorDetail] = (),
        request_id: str = "",
        retry_after_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.status = status
        self.message = message
        self.retryable = retryable
        self.details = details
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.idempotency_key = idempotency_key


class NoAnswerError(TumiraError):
    """No readable answer came in time: a send may have been accepted.

    Repeat it with the same `idempotency_key`; it is billed once.
    """

    def __init__(self, message: str, *, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key


class SendInterruptedError(TumiraError):
    """A send to many stopped at one of its batches; its cause is the error of that batch.

    The same call with the same `idempotency_key` sends the rest and bills nothing twice.
    """

    def __init__(self, *, idempotency_key: str, batches: Sequence["Sent"], count: int) -> None:
        super().__init__(
            f"{len(batches)} of {count} batches were sent; repeat the call with the idempotency key "
            f"{idempotency_key} to send the rest."
        )
        self.idempotency_key = idempotency_key
        self.batches = batches


class InvalidNumberError(TumiraError, ValueError):
    """A text that is not a phone number, or a local number without a country."""


class WebhookError(TumiraError):
    """An event that is not genuine or not recent; answer it with 400."""
