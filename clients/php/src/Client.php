<?php

declare(strict_types=1);

namespace Tumira;

/**
 * Sends messages and looks them up.
 *
 * The address and the API key come from `TUMIRA_URL` and `TUMIRA_API_KEY` unless given. With a `country`, `ZW` or
 * `ZA`, local numbers are completed. All calls wait while the account has no calls left, and are repeated without
 * being billed twice.
 */
final class Client
{
    public const VERSION = '0.1.0';
    private const PREFIX = '/api/v1';

    private string $base;
    private string $key;
    private float $notBefore = 0.0;

    public function __construct(
        ?string $url = null,
        #[\SensitiveParameter] ?string $apiKey = null,
        private readonly ?string $country = null,
        private readonly Retry $retry = new Retry(),
        private readonly Transport $transport = new StreamTransport(),
    ) {
        $address = rtrim($url ?? (string) getenv('TUMIRA_URL'), '/');
        if (!preg_match('#^https?://[^/]#', $address)) {
            throw new \InvalidArgumentException(
                'Give the address of your service, as https://sms.example.com, or set TUMIRA_URL.',
            );
        }
        $this->base = preg_replace('#' . self::PREFIX . '$#D', '', $address) . self::PREFIX;
        $this->key = $apiKey ?? (string) getenv('TUMIRA_API_KEY');
        if (!preg_match('/^[!-~]+$/D', $this->key)) {
            throw new \InvalidArgumentException('Give an API key, tmr_…, or set TUMIRA_API_KEY.');
        }
    }

    /**
     * Sends a text to up to 1,000 recipients. Without a key each call is another send; with one, the same call is
     * sent and billed once within 72 hours.
     *
     * @param string|array<string> $to
     * @throws TumiraException
     */
    public function send(
        string|array $to,
        string $body,
        ?string $reference = null,
        ?string $idempotencyKey = null,
    ): Sent {
        return $this->sendBatch($this->numbers($to), $body, $reference, self::checkedKey($idempotencyKey));
    }

    /**
     * Sends a text to any number of recipients, 1,000 in a batch. After a `SendInterruptedException` repeat it with
     * the key that it holds.
     *
     * @param array<string> $to
     * @throws TumiraException
     */
    public function sendMany(
        array $to,
        string $body,
        ?string $reference = null,
        ?string $idempotencyKey = null,
    ): SentMany {
        $key = self::checkedKey($idempotencyKey);
        $parts = Retry::chunks($this->numbers($to));
        $batches = [];
        foreach ($parts as $index => $numbers) {
            try {
                $batches[] = $this->sendBatch($numbers, $body, $reference, Retry::chunkKey($key, $index));
            } catch (TumiraException $error) {
                throw new SendInterruptedException($key, $batches, count($parts), $error);
            }
        }
        return new SentMany($key, $batches);
    }

    /**
     * Returns what a send to any number of recipients would cost.
     *
     * @param string|array<string> $to
     * @throws TumiraException
     */
    public function price(string|array $to, string $body): Price
    {
        $total = null;
        foreach (Retry::chunks($this->numbers($to)) ?: [[]] as $numbers) {
            $payload = ['channel' => 'sms', 'to' => $numbers, 'body' => $body, 'dry_run' => true];
            $price = $this->call('POST', '/messages', fn (array $json) => Price::read($json), $payload);
            $total = $total?->plus($price) ?? $price;
        }
        return $total;
    }

    public function batch(string $id): Batch
    {
        return $this->call('GET', '/batches/' . rawurlencode($id), fn (array $json) => Batch::read($json['data']));
    }

    public function message(string $id): Message
    {
        return $this->call('GET', '/messages/' . rawurlencode($id), fn (array $json) => Message::read($json['data']));
    }

    public function balance(): Balance
    {
        return $this->call('GET', '/balance', fn (array $json) => new Balance($json['balance'], $json['currency']));
    }

    /** @return list<SegmentPrice> */
    public function prices(): array
    {
        $read = fn (array $one) => new SegmentPrice($one['channel'], $one['country'], $one['price_usd'], $one['status']);
        return $this->call('GET', '/pricing', fn (array $json) => array_map($read, array_values($json['data'])));
    }

    /**
     * @param string|array<string> $to
     * @return list<string>
     */
    private function numbers(string|array $to): array
    {
        return array_map(fn (string $one) => Numbers::complete($one, $this->country), array_values((array) $to));
    }

    /** @param list<string> $numbers */
    private function sendBatch(array $numbers, string $body, ?string $reference, string $key): Sent
    {
        $payload = ['channel' => 'sms', 'to' => $numbers, 'body' => $body];
        if ($reference !== null) {
            $payload['reference'] = $reference;
        }
        $read = fn (array $json, Answer $answer) => Sent::read(
            $json,
            $key,
            ($answer->headers['idempotency-replayed'] ?? '') === 'true',
        );
        return $this->call('POST', '/messages', $read, $payload, $key);
    }

    /**
     * Makes a call until there is an answer or no time; every try of a send has the same key.
     *
     * @template T
     * @param \Closure(array<string, mixed>, Answer): T $read
     * @param array<string, mixed>|null $payload
     * @return T
     */
    private function call(
        string $method,
        string $path,
        \Closure $read,
        ?array $payload = null,
        ?string $key = null,
    ): mixed {
        $began = self::now();
        $body = $payload === null ? null : json_encode($payload, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES);
        for ($attempt = 1; ; $attempt++) {
            $pause = $this->notBefore - self::now();
            // A longer pause than there is time for is not waited for: the service says what to do.
            if ($pause > 0 && $pause <= $this->retry->giveUpAfter - (self::now() - $began)) {
                self::sleep($pause);
            }
            $answer = null;
            try {
                $answer = $this->try($method, $path, $body, $key);
                $this->pace(Retry::readPause($answer->headers['ratelimit'] ?? null));
                $json = json_decode($answer->body, true);
                if ($answer->status >= 200 && $answer->status < 300) {
                    return self::readOrFail($read, $json, $answer);
                }
                $error = self::readRefusal($answer, $json, $key);
            } catch (TransportException $failed) {
                $error = new NoAnswerException("No answer: {$failed->getMessage()}", $key);
            }
            $isRefusal = $error instanceof ApiException;
            $retryAfter = Retry::readRetryAfter($answer?->headers['retry-after'] ?? null, microtime(true));
            if ($isRefusal && $error->errorCode === 'RATE_LIMITED') {
                $this->pace($retryAfter ?? 0.0);
            }
            $wait = $this->retry->waitAfter(
                $attempt,
                self::now() - $began,
                $answer?->status,
                $isRefusal ? $error->retryable : null,
                $retryAfter,
                random_int(0, PHP_INT_MAX) / PHP_INT_MAX,
            );
            if ($wait === null) {
                throw $error;
            }
            self::sleep($wait);
        }
    }

    private function try(string $method, string $path, ?string $body, ?string $key): Answer
    {
        $headers = [
            'Authorization' => "Bearer $this->key",
            'Accept' => 'application/json',
            'User-Agent' => 'tumira-php/' . self::VERSION,
        ];
        if ($body !== null) {
            $headers['Content-Type'] = 'application/json';
        }
        if ($key !== null) {
            $headers['Idempotency-Key'] = $key;
        }
        return $this->transport->request($method, $this->base . $path, $headers, $body, $this->retry->timeout);
    }

    /** Reads a success; one that cannot be read is no answer. */
    private static function readOrFail(\Closure $read, mixed $json, Answer $answer): mixed
    {
        set_error_handler(fn () => throw new TransportException('A field of the answer is missing.'));
        try {
            return $read(is_array($json) ? $json : [], $answer);
        } catch (\TypeError) {
            throw new TransportException('A field of the answer has another type.');
        } finally {
            restore_error_handler();
        }
    }

    /** Reads the error envelope; if a server in between answered, there is none. */
    private static function readRefusal(Answer $answer, mixed $json, ?string $key): TumiraException
    {
        $body = is_array($json) ? $json['error'] ?? null : null;
        if (!is_array($body) || !is_string($body['code'] ?? null) || !is_bool($body['retryable'] ?? null)) {
            return new NoAnswerException(
                "The answer with status {$answer->status} is not one of Tumira; check the address.",
                $key,
            );
        }
        $class = Codes::BY_CODE[$body['code']] ?? ApiException::class;
        return new $class(
            $body['code'],
            $answer->status,
            (string) ($body['message'] ?? ''),
            $body['retryable'],
            is_array($body['details'] ?? null) ? array_values($body['details']) : [],
            (string) ($body['request_id'] ?? ''),
            Retry::readRetryAfter($answer->headers['retry-after'] ?? null, microtime(true)),
            $key,
        );
    }

    private function pace(float $seconds): void
    {
        if ($seconds > 0) {
            $this->notBefore = max($this->notBefore, self::now() + $seconds);
        }
    }

    private static function checkedKey(?string $key): string
    {
        if ($key !== null && !preg_match('/^[!-~]{6,64}$/D', $key)) {
            throw new \InvalidArgumentException('An idempotency key has 6 to 64 visible ASCII characters.');
        }
        return $key ?? bin2hex(random_bytes(16));
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    private static function sleep(float $seconds): void
    {
        usleep((int) ceil($seconds * 1e6));
    }
}
