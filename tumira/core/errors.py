"""Refusals of the API, each declared once, and errors for the operator.

The JSON envelope, the OpenAPI document, `docs/errors.md` and the tests that provoke every code are made from
these classes. A class's docstring is its default message: one sentence a developer can act on.
"""

import errno
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, Final


class FieldCode(StrEnum):
    """What can be wrong with one field of a request; stands in `details` of `VALIDATION_FAILED`."""

    REQUIRED = "REQUIRED"
    WRONG_TYPE = "WRONG_TYPE"
    EMPTY = "EMPTY"
    TOO_LONG = "TOO_LONG"
    INVALID_VALUE = "INVALID_VALUE"
    INVALID_CHARACTER = "INVALID_CHARACTER"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"


class RecipientCode(StrEnum):
    """Why a recipient was not accepted; stands in `rejected` of a send or dry-run response."""

    UNSUPPORTED_DESTINATION = "UNSUPPORTED_DESTINATION"
    INVALID_NUMBER = "INVALID_NUMBER"
    RECIPIENT_OPTED_OUT = "RECIPIENT_OPTED_OUT"
    RECIPIENT_LIMIT = "RECIPIENT_LIMIT"


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error of ours
    """A call that is answered with the error envelope instead of a result."""

    code: ClassVar[str]
    status: ClassVar[int]
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str | None = None,
        *,
        details: Sequence[Mapping[str, Any]] = (),
        retry_after_s: int | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.message = message or " ".join((type(self).__doc__ or "").split())
        super().__init__(self.message)
        self.details = details
        self.retry_after_s = retry_after_s
        self.headers = headers


class MalformedRequest(Refusal):
    """The body is not one JSON object in UTF-8."""

    code = "MALFORMED_REQUEST"
    status = 400


class InvalidIdempotencyKey(Refusal):
    """The Idempotency-Key header must be 6 to 64 visible ASCII characters, given once."""

    code = "INVALID_IDEMPOTENCY_KEY"
    status = 400


class Unauthenticated(Refusal):
    """The caller did not prove who they are."""

    status = 401
    challenge: ClassVar[str]


class MissingApiKey(Unauthenticated):
    """Send your API key in the header `Authorization: Bearer <API_KEY>`."""

    code = "MISSING_API_KEY"
    challenge = 'Bearer realm="tumira"'


class InvalidApiKey(Unauthenticated):
    """The API key is not known; check that it was copied whole."""

    code = "INVALID_API_KEY"
    challenge = 'Bearer realm="tumira", error="invalid_token", error_description="unknown API key"'


class ApiKeyRevoked(Unauthenticated):
    """The API key was revoked; create a new one and use that."""

    code = "API_KEY_REVOKED"
    challenge = 'Bearer realm="tumira", error="invalid_token", error_description="revoked API key"'


class InsufficientBalance(Refusal):
    """The balance does not cover the batch; nothing was sent or debited. Top up and try again."""

    code = "INSUFFICIENT_BALANCE"
    status = 402

    @classmethod
    def of(cls, required: Decimal, available: Decimal) -> "InsufficientBalance":
        """Say how much is missing."""
        shortfall = required - available
        return cls(
            f"The batch costs {required:.4f} USD and the balance is {available:.4f} USD; nothing was sent or "
            f"debited. Top up at least {shortfall:.4f} USD and try again.",
            details=[
                {
                    "code": cls.code,
                    "message": "The balance is too low by the shortfall.",
                    "required": f"{required:.4f}",
                    "available": f"{available:.4f}",
                    "shortfall": f"{shortfall:.4f}",
                }
            ],
        )


class InsufficientScope(Refusal):
    """The API key lacks the scope that this call needs."""

    code = "INSUFFICIENT_SCOPE"
    status = 403


class AccountSuspended(Refusal):
    """The account is suspended: it can look things up but not send. Contact the operator."""

    code = "ACCOUNT_SUSPENDED"
    status = 403


class NotFound(Refusal):
    """There is nothing here under this address or id."""

    code = "NOT_FOUND"
    status = 404


class MethodNotAllowed(Refusal):
    """This address does not take that method; the Allow header lists those it takes."""

    code = "METHOD_NOT_ALLOWED"
    status = 405


class RequestTimeout(Refusal):
    """The request did not arrive whole in time; send it again, with the same Idempotency-Key for a send."""

    code = "REQUEST_TIMEOUT"
    status = 408
    retryable = True


class IdempotencyConflict(Refusal):
    """This Idempotency-Key was used with a different payload; use a new key for a new send."""

    code = "IDEMPOTENCY_CONFLICT"
    status = 409


class IdempotencyInProgress(Refusal):
    """The first call with this Idempotency-Key has not finished; try again in a second."""

    code = "IDEMPOTENCY_IN_PROGRESS"
    status = 409
    retryable = True


class PayloadTooLarge(Refusal):
    """The body is larger than 256 KiB; split the recipients over several calls."""

    code = "PAYLOAD_TOO_LARGE"
    status = 413


class UnsupportedMediaType(Refusal):
    """Send the body as JSON, uncompressed, with `Content-Type: application/json`."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    status = 415


class ValidationFailed(Refusal):
    """Some fields are not valid; `details` lists every fault."""

    code = "VALIDATION_FAILED"
    status = 422


class ChannelNotAvailable(Refusal):
    """This channel is reserved and not usable yet; use `sms`."""

    code = "CHANNEL_NOT_AVAILABLE"
    status = 422


class TooManyRecipients(Refusal):
    """A call takes at most 1,000 numbers; split them over several calls."""

    code = "TOO_MANY_RECIPIENTS"
    status = 422


class TooManySegments(Refusal):
    """The text needs more than 5 segments; shorten it."""

    code = "TOO_MANY_SEGMENTS"
    status = 422


class ContentRejected(Refusal):
    """The text is marketing, which is not carried; send what the recipient asked for or needs to know."""

    code = "CONTENT_REJECTED"
    status = 422

    # The category of what no judge refused.
    BLOCKED: ClassVar = "blocked_template"

    @classmethod
    def of(
        cls, category: str, score: float, reasons: Sequence[Mapping[str, Any]], drop: Sequence[str]
    ) -> "ContentRejected":
        """Say which words weighed, and which sentences to drop if the rest can be sent."""
        if drop:
            more = f" and {len(drop) - 1} more, listed in `details`," if len(drop) > 1 else ""
            message = f"Part of the text is marketing: drop “{_shortened(drop[0])}”{more} and send the rest."
            fault = "Part of the text is marketing."
        else:
            message = (
                "The text is marketing, which is not carried: send only what the recipient asked for or has "
                "to know, or ask the operator to allow it as a template."
            )
            fault = "The text is marketing."
        return cls(message, details=[_content_detail(fault, category, score, reasons, drop)])

    @classmethod
    def blocked(cls) -> "ContentRejected":
        """Say that the operator refuses texts of this form, whatever they are judged to be."""
        return cls(
            "The operator has blocked texts of this form: write it differently, or ask the operator.",
            details=[_content_detail("Texts of this form are blocked.", cls.BLOCKED, 1.0, (), ())],
        )

    @property
    def detail(self) -> Mapping[str, Any]:
        return self.details[0]


_SENTENCE_SHOWN: Final = 60


def _shortened(sentence: str) -> str:
    sentence = " ".join(sentence.split())
    return sentence if len(sentence) <= _SENTENCE_SHOWN else sentence[: _SENTENCE_SHOWN - 1].rstrip() + "…"


def _content_detail(
    message: str, category: str, score: float, reasons: Sequence[Mapping[str, Any]], drop: Sequence[str]
) -> Mapping[str, Any]:
    return {
        "field": "body",
        "code": ContentRejected.code,
        "message": message,
        "category": category,
        "score": round(score, 2),
        "reasons": reasons,
        "drop": drop,
    }


class RateLimited(Refusal):
    """Too many calls in the last 60 seconds; this one was not processed and is safe to repeat later."""

    code = "RATE_LIMITED"
    status = 429
    retryable = True


class SpendLimitReached(Refusal):
    """The batch would pass the account's own limit per call or for today; nothing was sent or debited."""

    code = "SPEND_LIMIT_REACHED"
    status = 429
    retryable = True


class HeadersTooLarge(Refusal):
    """The request line and headers are larger than 32 KiB together, or there are more than 100 headers."""

    code = "HEADERS_TOO_LARGE"
    status = 431


class InternalError(Refusal):
    """Something failed on our side; nothing was sent or debited. Quote the request id when you report it."""

    code = "INTERNAL_ERROR"
    status = 500
    retryable = True


class ServiceUnavailable(Refusal):
    """The service cannot answer right now; try again shortly, with the same Idempotency-Key for a send."""

    code = "SERVICE_UNAVAILABLE"
    status = 503
    retryable = True


def all_refusals() -> Sequence[type[Refusal]]:
    """Return every class with a code of its own, in the order of declaration."""
    found: list[type[Refusal]] = []
    waiting: list[type[Refusal]] = [Refusal]
    while waiting:
        parent = waiting.pop(0)
        children = parent.__subclasses__()
        waiting.extend(children)
        found.extend(child for child in children if "code" in vars(child))
    return sorted(found, key=lambda refusal: (refusal.status, refusal.code))


class OperatorError(Exception):
    """A problem that the operator has to solve; its text says what is wrong and what to do."""


# The exit code of a node that only its operator can help: EX_CONFIG of sysexits.h. A crash of Python is 1.
OPERATOR_EXIT_CODE: Final = 78


class TemporaryOperatorError(OperatorError):
    """A problem that may pass without the operator: a node tries again, a command prints it and ends."""


def port_error(error: Exception, words: str) -> OperatorError:
    """Return the error for a port that cannot be used; a port in use may become free."""
    # An outgoing connection of any program may have the port for a while.
    is_temporary = getattr(error, "errno", None) in {errno.EADDRINUSE, errno.EADDRNOTAVAIL}
    return TemporaryOperatorError(words) if is_temporary else OperatorError(words)


class FieldError(OperatorError):
    """A problem with one value, by its name on the page or the command line."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field = field
