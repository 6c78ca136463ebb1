"""An error class for each code. Written by `make docs` from tumira/core/errors.py."""

from collections.abc import Mapping
from typing import Final

from tumira_client.errors import ApiError


class InvalidIdempotencyKeyError(ApiError):
    """The service answered `INVALID_IDEMPOTENCY_KEY`, 400."""


class MalformedRequestError(ApiError):
    """The service answered `MALFORMED_REQUEST`, 400."""


class ApiKeyRevokedError(ApiError):
    """The service answered `API_KEY_REVOKED`, 401."""


class InvalidApiKeyError(ApiError):
    """The service answered `INVALID_API_KEY`, 401."""


class MissingApiKeyError(ApiError):
    """The service answered `MISSING_API_KEY`, 401."""


class InsufficientBalanceError(ApiError):
    """The service answered `INSUFFICIENT_BALANCE`, 402."""


class AccountSuspendedError(ApiError):
    """The service answered `ACCOUNT_SUSPENDED`, 403."""


class InsufficientScopeError(ApiError):
    """The service answered `INSUFFICIENT_SCOPE`, 403."""


class NotFoundError(ApiError):
    """The service answered `NOT_FOUND`, 404."""


class MethodNotAllowedError(ApiError):
    """The service answered `METHOD_NOT_ALLOWED`, 405."""


class RequestTimeoutError(ApiError):
    """The service answered `REQUEST_TIMEOUT`, 408."""


class IdempotencyConflictError(ApiError):
    """The service answered `IDEMPOTENCY_CONFLICT`, 409."""


class IdempotencyInProgressError(ApiError):
    """The service answered `IDEMPOTENCY_IN_PROGRESS`, 409."""


class PayloadTooLargeError(ApiError):
    """The service answered `PAYLOAD_TOO_LARGE`, 413."""


class UnsupportedMediaTypeError(ApiError):
    """The service answered `UNSUPPORTED_MEDIA_TYPE`, 415."""


class ChannelNotAvailableError(ApiError):
    """The service answered `CHANNEL_NOT_AVAILABLE`, 422."""


class ContentRejectedError(ApiError):
    """The service answered `CONTENT_REJECTED`, 422."""


class TooManyRecipientsError(ApiError):
    """The service answered `TOO_MANY_RECIPIENTS`, 422."""


class TooManySegmentsError(ApiError):
    """The service answered `TOO_MANY_SEGMENTS`, 422."""


class ValidationFailedError(ApiError):
    """The service answered `VALIDATION_FAILED`, 422."""


class RateLimitedError(ApiError):
    """The service answered `RATE_LIMITED`, 429."""


class SpendLimitReachedError(ApiError):
    """The service answered `SPEND_LIMIT_REACHED`, 429."""


class HeadersTooLargeError(ApiError):
    """The service answered `HEADERS_TOO_LARGE`, 431."""


class InternalError(ApiError):
    """The service answered `INTERNAL_ERROR`, 500."""


class ServiceUnavailableError(ApiError):
    """The service answered `SERVICE_UNAVAILABLE`, 503."""


BY_CODE: Final[Mapping[str, type[ApiError]]] = {
    "INVALID_IDEMPOTENCY_KEY": InvalidIdempotencyKeyError,
    "MALFORMED_REQUEST": MalformedRequestError,
    "API_KEY_REVOKED": ApiKeyRevokedError,
    "INVALID_API_KEY": InvalidApiKeyError,
    "MISSING_API_KEY": MissingApiKeyError,
    "INSUFFICIENT_BALANCE": InsufficientBalanceError,
    "ACCOUNT_SUSPENDED": AccountSuspendedError,
    "INSUFFICIENT_SCOPE": InsufficientScopeError,
    "NOT_FOUND": NotFoundError,
    "METHOD_NOT_ALLOWED": MethodNotAllowedError,
    "REQUEST_TIMEOUT": RequestTimeoutError,
    "IDEMPOTENCY_CONFLICT": IdempotencyConflictError,
    "IDEMPOTENCY_IN_PROGRESS": IdempotencyInProgressError,
    "PAYLOAD_TOO_LARGE": PayloadTooLargeError,
    "UNSUPPORTED_MEDIA_TYPE": UnsupportedMediaTypeError,
    "CHANNEL_NOT_AVAILABLE": ChannelNotAvailableError,
    "CONTENT_REJECTED": ContentRejectedError,
    "TOO_MANY_RECIPIENTS": TooManyRecipientsError,
    "TOO_MANY_SEGMENTS": TooManySegmentsError,
    "VALIDATION_FAILED": ValidationFailedError,
    "RATE_LIMITED": RateLimitedError,
    "SPEND_LIMIT_REACHED": SpendLimitReachedError,
    "HEADERS_TOO_LARGE": HeadersTooLargeError,
    "INTERNAL_ERROR": InternalError,
    "SERVICE_UNAVAILABLE": ServiceUnavailableError,
}
