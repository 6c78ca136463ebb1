<?php

// An exception for each code. Written by `make docs` from tumira/core/errors.py.

declare(strict_types=1);

namespace Tumira;

/** The header `Idempotency-Key` is not 6 to 64 visible ASCII characters, or is given twice. */
class InvalidIdempotencyKeyException extends ApiException
{
}

/** The body is not JSON, not one object, not UTF-8, or names a field twice; or the request is not valid HTTP, for example with two `Host` headers. */
class MalformedRequestException extends ApiException
{
}

/** The API key was revoked. */
class ApiKeyRevokedException extends ApiException
{
}

/** No such API key exists. */
class InvalidApiKeyException extends ApiException
{
}

/** The header `Authorization` is absent or is not `Bearer` and a key. */
class MissingApiKeyException extends ApiException
{
}

/** The balance does not cover the whole batch. No part of it is sent. */
class InsufficientBalanceException extends ApiException
{
}

/** The account is suspended: it can read but not send. */
class AccountSuspendedException extends ApiException
{
}

/** The API key lacks the scope of this operation; `WWW-Authenticate` names it. */
class InsufficientScopeException extends ApiException
{
}

/** The address or id is unknown, misspelt or belongs to another account. The response is the same. */
class NotFoundException extends ApiException
{
}

/** The address exists but does not allow this method. */
class MethodNotAllowedException extends ApiException
{
}

/** The headers took longer than 20 seconds to arrive, or the body longer than a minute and a second for every kilobyte. */
class RequestTimeoutException extends ApiException
{
}

/** The Idempotency-Key was used in the last 72 hours with another payload. */
class IdempotencyConflictException extends ApiException
{
}

/** The first call with this Idempotency-Key is still being written. */
class IdempotencyInProgressException extends ApiException
{
}

/** The body is larger than 256 KiB. */
class PayloadTooLargeException extends ApiException
{
}

/** `Content-Type` is not `application/json` in UTF-8, or the body is compressed. */
class UnsupportedMediaTypeException extends ApiException
{
}

/** `channel` is `telegram` or `whatsapp`, which are reserved. */
class ChannelNotAvailableException extends ApiException
{
}

/** The text is promotional, in whole or in part, or texts like it are blocked. */
class ContentRejectedException extends ApiException
{
}

/** `to` has more than 1,000 entries, duplicates included. */
class TooManyRecipientsException extends ApiException
{
}

/** The text takes more than 5 segments. */
class TooManySegmentsException extends ApiException
{
}

/** Fields are missing, unknown or wrong. */
class ValidationFailedException extends ApiException
{
}

/** The account used up its calls of the last 60 seconds, sent too many batches today of which every number was rejected, or an address tried too many unknown keys. */
class RateLimitedException extends ApiException
{
}

/** The batch would exceed the spending limit of the account. Days end at midnight, UTC+02:00. */
class SpendLimitReachedException extends ApiException
{
}

/** The request line and headers are larger than 32 KiB together, or there are more than 100 headers. */
class HeadersTooLargeException extends ApiException
{
}

/** Something failed on our side. */
class InternalErrorException extends ApiException
{
}

/** The service cannot answer right now, for example while its database restarts. */
class ServiceUnavailableException extends ApiException
{
}

/** The exception of each code. */
final class Codes
{
    public const BY_CODE = [
        'INVALID_IDEMPOTENCY_KEY' => InvalidIdempotencyKeyException::class,
        'MALFORMED_REQUEST' => MalformedRequestException::class,
        'API_KEY_REVOKED' => ApiKeyRevokedException::class,
        'INVALID_API_KEY' => InvalidApiKeyException::class,
        'MISSING_API_KEY' => MissingApiKeyException::class,
        'INSUFFICIENT_BALANCE' => InsufficientBalanceException::class,
        'ACCOUNT_SUSPENDED' => AccountSuspendedException::class,
        'INSUFFICIENT_SCOPE' => InsufficientScopeException::class,
        'NOT_FOUND' => NotFoundException::class,
        'METHOD_NOT_ALLOWED' => MethodNotAllowedException::class,
        'REQUEST_TIMEOUT' => RequestTimeoutException::class,
        'IDEMPOTENCY_CONFLICT' => IdempotencyConflictException::class,
        'IDEMPOTENCY_IN_PROGRESS' => IdempotencyInProgressException::class,
        'PAYLOAD_TOO_LARGE' => PayloadTooLargeException::class,
        'UNSUPPORTED_MEDIA_TYPE' => UnsupportedMediaTypeException::class,
        'CHANNEL_NOT_AVAILABLE' => ChannelNotAvailableException::class,
        'CONTENT_REJECTED' => ContentRejectedException::class,
        'TOO_MANY_RECIPIENTS' => TooManyRecipientsException::class,
        'TOO_MANY_SEGMENTS' => TooManySegmentsException::class,
        'VALIDATION_FAILED' => ValidationFailedException::class,
        'RATE_LIMITED' => RateLimitedException::class,
        'SPEND_LIMIT_REACHED' => SpendLimitReachedException::class,
        'HEADERS_TOO_LARGE' => HeadersTooLargeException::class,
        'INTERNAL_ERROR' => InternalErrorException::class,
        'SERVICE_UNAVAILABLE' => ServiceUnavailableException::class,
    ];
}
