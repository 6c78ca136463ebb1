<?php

declare(strict_types=1);

namespace Tumira;

/** When a call is repeated, how long the client waits, and under which key each batch is sent. */
final class Retry
{
    public const RECIPIENTS_MAX = 1000;
    private const FIRST_WAIT = 0.5;
    private const LONGEST_WAIT = 8.0;
    // PHP has a constant for it, which is deprecated since 8.5.
    private const HTTP_DATE = 'D, d M Y H:i:s \G\M\T';

    /** Seconds: `timeout` for one try, `giveUpAfter` for all of them. */
    public function __construct(
        public readonly int $triesMax = 6,
        public readonly float $timeout = 30.0,
        public readonly float $giveUpAfter = 120.0,
    ) {
    }

    /**
     * Returns how many seconds to wait after a failed try, never less than `Retry-After`; null to give up.
     * `$status` is null if nothing came, and `$retryable` if the answer was not one of the service.
     */
    public function waitAfter(
        int $attempt,
        float $elapsed,
        ?int $status,
        ?bool $retryable,
        ?float $retryAfter,
        float $random,
    ): ?float {
        if ($attempt >= $this->triesMax || !self::isTransient($status, $retryable)) {
            return null;
        }
        $backoff = min(self::LONGEST_WAIT, self::FIRST_WAIT * 2 ** ($attempt - 1)) * (0.5 + $random / 2);
        $wait = ($retryAfter ?? 0.0) + $backoff;
        return $elapsed + $wait <= $this->giveUpAfter ? $wait : null;
    }

    private static function isTransient(?int $status, ?bool $retryable): bool
    {
        // A success that cannot be read is no answer: with the same key the next try gets it again.
        return $retryable ?? ($status === null || $status < 300 || $status === 408 || $status === 429 || $status >= 500);
    }

    /** Reads the header `Retry-After`: seconds or a date. */
    public static function readRetryAfter(?string $value, float $now): ?float
    {
        if ($value === null) {
            return null;
        }
        if (preg_match('/^\s*[0-9]{1,9}\s*$/', $value)) {
            return (float) trim($value);
        }
        $moment = \DateTimeImmutable::createFromFormat(self::HTTP_DATE, trim($value), new \DateTimeZone('UTC'));
        return $moment === false ? null : max(0.0, $moment->getTimestamp() - $now);
    }

    /** Returns for how many seconds the header `RateLimit` allows no further call. */
    public static function readPause(?string $value): float
    {
        $pause = 0;
        foreach (explode(',', $value ?? '') as $policy) {
            $isUsedUp = preg_match('/;\s*r=([0-9]{1,9})(?![0-9.])/', $policy, $remaining) && (int) $remaining[1] === 0;
            if ($isUsedUp && preg_match('/;\s*t=([0-9]{1,9})(?![0-9.])/', $policy, $reset)) {
                $pause = max($pause, (int) $reset[1]);
            }
        }
        return (float) $pause;
    }

    /**
     * Splits the distinct numbers, in their order, so that the same numbers always give the same batches.
     *
     * @param array<string> $numbers
     * @return list<list<string>>
     */
    public static function chunks(array $numbers, int $size = self::RECIPIENTS_MAX): array
    {
        return array_chunk(array_values(array_unique($numbers, SORT_STRING)), max(1, $size));
    }

    /** Returns the key of a batch: the first has the caller's own, so `send` with that key is the same call. */
    public static function chunkKey(string $key, int $index): string
    {
        return $index === 0 ? $key : substr(hash('sha256', "$key $index"), 0, 32);
    }

    /**
     * Adds amounts such as "0.0400" exactly.
     *
     * @param list<string> $amounts
     */
    public static function addMoney(array $amounts): string
    {
        $total = array_sum(array_map(fn (string $amount) => (int) str_replace('.', '', $amount), $amounts));
        return sprintf('%d.%04d', intdiv($total, 10000), $total % 10000);
    }
}
