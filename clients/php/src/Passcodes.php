<?php

declare(strict_types=1);

namespace Tumira;

/** What is stored of a code; `expiresAt` is in seconds since 1970. */
final class StoredCode
{
    public function __construct(
        public readonly string $hash,
        public readonly int $expiresAt,
        public readonly int $tries = 0,
    ) {
    }
}

/** Where codes are stored, one for each phone: a table of your database. */
interface CodeStore
{
    /** Stores the code in place of an older one. */
    public function put(string $phone, StoredCode $code): void;

    /** Adds one to `tries` and returns the code after that, in one atomic step. */
    public function countTry(string $phone): ?StoredCode;

    /** Removes the code if it still has this hash, and tells whether it had. */
    public function remove(string $phone, string $hash): bool;
}

/** Codes in the memory of one process, for trials; they are lost when it ends. */
final class MemoryCodeStore implements CodeStore
{
    /** @var array<string, StoredCode> */
    private array $codes = [];

    public function put(string $phone, StoredCode $code): void
    {
        $this->codes[$phone] = $code;
    }

    public function countTry(string $phone): ?StoredCode
    {
        $code = $this->codes[$phone] ?? null;
        if ($code === null) {
            return null;
        }
        return $this->codes[$phone] = new StoredCode($code->hash, $code->expiresAt, $code->tries + 1);
    }

    public function remove(string $phone, string $hash): bool
    {
        if (($this->codes[$phone] ?? null)?->hash !== $hash) {
            return false;
        }
        unset($this->codes[$phone]);
        return true;
    }
}

/** One-time passcodes in a store of your own; the secret is a long random text that only your servers know. */
final class Passcodes
{
    private const SECRET_MIN = 16;

    /** @var \Closure(): float */
    private \Closure $clock;

    /** @param (\Closure(): float)|null $clock */
    public function __construct(
        private readonly CodeStore $store,
        #[\SensitiveParameter] private readonly string $secret,
        private readonly ?string $country = null,
        private readonly int $digits = 6,
        private readonly int $lifetime = 600,
        private readonly int $triesMax = 5,
        ?\Closure $clock = null,
    ) {
        if (preg_match_all('/./su', $secret) < self::SECRET_MIN) {
            throw new \InvalidArgumentException('The secret for codes has at least ' . self::SECRET_MIN . ' characters.');
        }
        $this->clock = $clock ?? fn () => microtime(true);
    }

    /** Makes and stores a code for a phone, in place of an older one; send it, and never log it. */
    public function make(string $phone): string
    {
        $number = Numbers::e164($phone, $this->country);
        $code = sprintf("%0{$this->digits}d", random_int(0, 10 ** $this->digits - 1));
        $expiresAt = (int) ($this->clock)() + $this->lifetime;
        $this->store->put($number, new StoredCode($this->hash($number, $code), $expiresAt));
        return $code;
    }

    /** Tells whether this is the phone's code; it is right once. */
    public function check(string $phone, string $typed): bool
    {
        $number = Numbers::e164($phone, $this->country);
        $stored = $this->store->countTry($number);
        if ($stored === null) {
            return false;
        }
        $same = hash_equals($stored->hash, $this->hash($number, (string) preg_replace('/\s+/', '', $typed)));
        if (!$same || $stored->tries > $this->triesMax || ($this->clock)() >= $stored->expiresAt) {
            return false;
        }
        // Of two checks at the same moment, one removes it.
        return $this->store->remove($number, $stored->hash);
    }

    /** Returns what is stored of a code. */
    public function hash(string $phone, string $code): string
    {
        return hash_hmac('sha256', "$phone $code", $this->secret);
    }
}
