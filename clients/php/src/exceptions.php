<?php

// What the client throws.

declare(strict_types=1);

namespace Tumira;

/** Everything that the client throws about a call, a number or an event. */
class TumiraException extends \RuntimeException
{
}

/** A call that the service refused; each code has a class of its own, and an unknown code has this one. */
class ApiException extends TumiraException
{
    /** @param list<array<string, mixed>> $details */
    public function __construct(
        public readonly string $errorCode,
        public readonly int $status,
        string $message,
        public readonly bool $retryable,
        public readonly array $details = [],
        public readonly string $requestId = '',
        public readonly ?float $retryAfter = null,
        public readonly ?string $idempotencyKey = null,
    ) {
        parent::__construct("$errorCode: $message", $status);
    }
}

/** No readable answer came in time: repeat a send with the same key; it is billed once. */
class NoAnswerException extends TumiraException
{
    public function __construct(string $message, public readonly ?string $idempotencyKey = null)
    {
        parent::__construct($message);
    }
}

/** A send to many stopped; the same call with the same key sends the rest and bills nothing twice. */
class SendInterruptedException extends TumiraException
{
    /** @param list<Sent> $batches */
    public function __construct(
        public readonly string $idempotencyKey,
        public readonly array $batches,
        int $count,
        \Throwable $previous,
    ) {
        $sent = count($batches);
        parent::__construct(
            "$sent of $count batches were sent; repeat the call with the idempotency key $idempotencyKey to send the rest.",
            0,
            $previous,
        );
    }
}

/** A text that is not a phone number, or a local number without a country. */
class InvalidNumberException extends TumiraException
{
}

/** An event that is not genuine or not recent; answer it with 400. */
class WebhookException extends TumiraException
{
}
