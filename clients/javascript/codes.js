// An error class for each code. Written by `make docs` from tumira/core/errors.py.

import { ApiError } from "./errors.js";

/** The header `Idempotency-Key` is not 6 to 64 visible ASCII characters, or is given twice. */
export class InvalidIdempotencyKeyError extends ApiError {}

/** The body is not JSON, not one object, not UTF-8, or names a field twice; or the request is not valid HTTP, for example with two `Host` headers. */
export class MalformedRequestError extends ApiError {}

/** The API key was revoked. */
export class ApiKeyRevokedError extends ApiError {}

/** No such API key exists. */
export class InvalidApiKeyError extends ApiError {}

/** The header `Authorization` is absent or is not `Bearer` and a key. */
export class MissingApiKeyError extends ApiError {}

/** The balance does not cover the whole batch. No part of it is sent. */
export class InsufficientBalanceError extends ApiError {}

/** The account is suspended: it can read but not send. */
export class AccountSuspendedError extends ApiError {}

/** The API key lacks the scope of this operation; `WWW-Authenticate` names it. */
export class InsufficientScopeError extends ApiError {}

/** The address or id is unknown, misspelt or belongs to another account. The response is the same. */
export class NotFoundError extends ApiError {}

/** The address exists but does not allow this method. */
export class MethodNotAllowedError extends ApiError {}

/** The headers took longer than 20 seconds to arrive, or the body longer than a minute and a second for every kilobyte. */
export class RequestTimeoutError extends ApiError {}

/** The Idempotency-Key was used in the last 72 hours with another payload. */
export class IdempotencyConflictError extends ApiError {}

/** The first call with this Idempotency-Key is still being written. */
export class IdempotencyInProgressError extends ApiError {}

/** The body is larger than 256 KiB. */
export class PayloadTooLargeError extends ApiError {}

/** `Content-Type` is not `application/json` in UTF-8, or the body is compressed. */
export class UnsupportedMediaTypeError extends ApiError {}

/** `channel` is `telegram` or `whatsapp`, which are reserved. */
export class ChannelNotAvailableError extends ApiError {}

/** The text is promotional, in whole or in part, or texts like it are blocked. */
export class ContentRejectedError extends ApiError {}

/** `to` has more than 1,000 entries, duplicates included. */
export class TooManyRecipientsError extends ApiError {}

/** The text takes more than 5 segments. */
export class TooManySegmentsError extends ApiError {}

/** Fields are missing, unknown or wrong. */
export class ValidationFailedError extends ApiError {}

/** The account used up its calls of the last 60 seconds, sent too many batches today of which every number was rejected, or an address tried too many unknown keys. */
export class RateLimitedError extends ApiError {}

/** The batch would exceed the spending limit of the account. Days end at midnight, UTC+02:00. */
export class SpendLimitReachedError extends ApiError {}

/** The request line and headers are larger than 32 KiB together, or there are more than 100 headers. */
export class HeadersTooLargeError extends ApiError {}

/** Something failed on our side. */
export class InternalError extends ApiError {}

/** The service cannot answer right now, for example while its database restarts. */
export class ServiceUnavailableError extends ApiError {}

export const BY_CODE = {
  INVALID_IDEMPOTENCY_KEY: InvalidIdempotencyKeyError,
  MALFORMED_REQUEST: MalformedRequestError,
  API_KEY_REVOKED: ApiKeyRevokedError,
  INVALID_API_KEY: InvalidApiKeyError,
  MISSING_API_KEY: MissingApiKeyError,
  INSUFFICIENT_BALANCE: InsufficientBalanceError,
  ACCOUNT_SUSPENDED: AccountSuspendedError,
  INSUFFICIENT_SCOPE: InsufficientScopeError,
  NOT_FOUND: NotFoundError,
  METHOD_NOT_ALLOWED: MethodNotAllowedError,
  REQUEST_TIMEOUT: RequestTimeoutError,
  IDEMPOTENCY_CONFLICT: IdempotencyConflictError,
  IDEMPOTENCY_IN_PROGRESS: IdempotencyInProgressError,
  PAYLOAD_TOO_LARGE: PayloadTooLargeError,
  UNSUPPORTED_MEDIA_TYPE: UnsupportedMediaTypeError,
  CHANNEL_NOT_AVAILABLE: ChannelNotAvailableError,
  CONTENT_REJECTED: ContentRejectedError,
  TOO_MANY_RECIPIENTS: TooManyRecipientsError,
  TOO_MANY_SEGMENTS: TooManySegmentsError,
  VALIDATION_FAILED: ValidationFailedError,
  RATE_LIMITED: RateLimitedError,
  SPEND_LIMIT_REACHED: SpendLimitReachedError,
  HEADERS_TOO_LARGE: HeadersTooLargeError,
  INTERNAL_ERROR: InternalError,
  SERVICE_UNAVAILABLE: ServiceUnavailableError,
};
