<?php

// What the service answers. Money is a string with four decimals.

declare(strict_types=1);

namespace Tumira;

/** A recipient who was not sent to and not billed, and why. */
final class Rejected
{
    public function __construct(public readonly string $to, public readonly string $code)
    {
    }

    /** @param array<string, mixed> $json @return list<self> */
    public static function readAll(array $json): array
    {
        return array_map(fn (array $one) => new self($one['to'], $one['code']), array_values($json['rejected']));
    }
}

/** A batch that was accepted: it is stored and paid. */
final class Sent
{
    /** @param list<Rejected> $rejected */
    public function __construct(
        public readonly string $batchId,
        public readonly int $accepted,
        public readonly array $rejected,
        public readonly int $segments,
        public readonly string $totalCost,
        public readonly string $currency,
        public readonly string $balanceAfter,
        public readonly string $idempotencyKey,
        /** True if the service had accepted this call before. */
        public readonly bool $replayed,
    ) {
    }

    /** @param array<string, mixed> $json */
    public static function read(array $json, string $idempotencyKey, bool $replayed): self
    {
        return new self(
            $json['batch_id'],
            $json['accepted'],
            Rejected::readAll($json),
            $json['segments'],
            $json['total_cost'],
            $json['currency'],
            $json['balance_after'],
            $idempotencyKey,
            $replayed,
        );
    }
}

/** The batches of one text to any number of recipients. */
final class SentMany
{
    public readonly int $accepted;
    /** @var list<Rejected> */
    public readonly array $rejected;
    public readonly string $totalCost;

    /** @param list<Sent> $batches */
    public function __construct(public readonly string $idempotencyKey, public readonly array $batches)
    {
        $this->accepted = array_sum(array_map(fn (Sent $one) => $one->accepted, $batches));
        $this->rejected = array_merge([], ...array_map(fn (Sent $one) => $one->rejected, $batches));
        $this->totalCost = Retry::addMoney(array_map(fn (Sent $one) => $one->totalCost, $batches));
    }
}

/** What a send would cost; nothing was sent. */
final class Price
{
    /** @param list<Rejected> $rejected */
    public function __construct(
        public readonly int $accepted,
        public readonly array $rejected,
        public readonly int $segments,
        public readonly string $totalCost,
        public readonly string $currency,
    ) {
    }

    /** @param array<string, mixed> $json */
    public static function read(array $json): self
    {
        return new self(
            $json['accepted'],
            Rejected::readAll($json),
            $json['segments'],
            $json['total_cost'],
            $json['currency'],
        );
    }

    public function plus(self $other): self
    {
        return new self(
            $this->accepted + $other->accepted,
            [...$this->rejected, ...$other->rejected],
            $this->segments,
            Retry::addMoney([$this->totalCost, $other->totalCost]),
            $this->currency,
        );
    }
}

/** The message to one recipient. */
final class Message
{
    public function __construct(
        public readonly string $messageId,
        public readonly string $to,
        public readonly string $country,
        public readonly string $status,
        public readonly int $segments,
        public readonly string $cost,
        public readonly ?\DateTimeImmutable $sentAt,
        public readonly ?\DateTimeImmutable $deliveredAt,
        public readonly ?string $failureReason,
        public readonly ?\DateTimeImmutable $refundedAt,
    ) {
    }

    /** @param array<string, mixed> $json */
    public static function read(array $json): self
    {
        return new self(
            $json['message_id'],
            $json['to'],
            $json['country'],
            $json['status'],
            $json['segments'],
            $json['cost'],
            self::time($json['sent_at'] ?? null),
            self::time($json['delivered_at'] ?? null),
            $json['failure_reason'] ?? null,
            self::time($json['refunded_at'] ?? null),
        );
    }

    private static function time(?string $text): ?\DateTimeImmutable
    {
        return $text === null ? null : new \DateTimeImmutable($text);
    }
}

/** One send and its messages. */
final class Batch
{
    /** @param list<Message> $messages */
    public function __construct(
        public readonly string $batchId,
        public readonly string $status,
        public readonly string $channel,
        public readonly ?string $reference,
        public readonly int $recipients,
        public readonly int $segments,
        public readonly string $totalCost,
        public readonly string $refunded,
        public readonly string $currency,
        public readonly \DateTimeImmutable $createdAt,
        public readonly array $messages,
    ) {
    }

    /** @param array<string, mixed> $json */
    public static function read(array $json): self
    {
        return new self(
            $json['batch_id'],
            $json['status'],
            $json['channel'],
            $json['reference'],
            $json['recipients'],
            $json['segments'],
            $json['total_cost'],
            $json['refunded'],
            $json['currency'],
            new \DateTimeImmutable($json['created_at']),
            array_map([Message::class, 'read'], array_values($json['messages'])),
        );
    }
}

final class Balance
{
    public function __construct(public readonly string $balance, public readonly string $currency)
    {
    }
}

/** The price of a segment to one country; `coming_soon` is announced and not yet charged. */
final class SegmentPrice
{
    public function __construct(
        public readonly string $channel,
        public readonly string $country,
        public readonly string $priceUsd,
        public readonly string $status,
    ) {
    }
}
