<?php

declare(strict_types=1);

namespace Tumira;

/** An event that Tumira sent; `id` is the same on every try. */
final class WebhookEvent
{
    /** @param array<string, mixed> $data */
    public function __construct(
        public readonly string $id,
        public readonly string $type,
        public readonly string $timestamp,
        public readonly int $sequence,
        public readonly array $data,
    ) {
    }
}

/** Checks that an event comes from Tumira (Standard Webhooks, `v1`). */
final class Webhooks
{
    /** @var non-empty-list<string> */
    private array $keys;

    /** @param string|list<string> $secrets one, or several while the secret is being changed */
    public function __construct(string|array $secrets, private readonly int $tolerance = 300)
    {
        $this->keys = array_map([self::class, 'readSecret'], array_values((array) $secrets));
        if ($this->keys === []) {
            throw new \InvalidArgumentException('Name the signing secret of your endpoint, whsec_….');
        }
    }

    /**
     * Returns the event; `$headers` is `getallheaders()` or `$request->headers->all()`, and `$body` is
     * `file_get_contents('php://input')` or `$request->getContent()`.
     *
     * @param array<string, string|array<string|null>> $headers
     * @throws WebhookException
     */
    public function verify(array $headers, string $body, ?float $now = null): WebhookEvent
    {
        $id = $this->check($headers, $body, $now);
        $event = json_decode($body, true);
        if (!is_string($event['type'] ?? null) || !is_string($event['timestamp'] ?? null) || !is_array($event['data'] ?? null)) {
            throw new WebhookException('The signed body is not an event.');
        }
        return new WebhookEvent($id, $event['type'], $event['timestamp'], (int) ($event['sequence'] ?? 0), $event['data']);
    }

    /**
     * Checks the signature and the time, and returns the event's id.
     *
     * @param array<string, string|array<string|null>> $headers
     * @throws WebhookException
     */
    public function check(array $headers, string $body, ?float $now = null): string
    {
        $id = self::header($headers, 'webhook-id');
        $sentAt = self::header($headers, 'webhook-timestamp');
        $signatures = explode(' ', self::header($headers, 'webhook-signature'));
        if (!preg_match('/^[0-9]{1,12}$/D', $sentAt)) {
            throw new WebhookException('The header webhook-timestamp is not a number of seconds.');
        }
        if (abs(($now ?? time()) - (int) $sentAt) > $this->tolerance) {
            throw new WebhookException('The event is too old, or the clock of this machine is wrong.');
        }
        // All are compared, so that the time does not say which one fits.
        $fits = false;
        foreach ($this->keys as $key) {
            $expected = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$sentAt.$body", $key, true));
            foreach ($signatures as $signature) {
                $fits = hash_equals($expected, $signature) || $fits;
            }
        }
        if (!$fits) {
            throw new WebhookException('No signature fits: the secret or the body is another.');
        }
        return $id;
    }

    private static function readSecret(string $secret): string
    {
        $text = str_starts_with($secret, 'whsec_') ? substr($secret, 6) : $secret;
        $isBase64 = preg_match('#^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$#D', $text);
        if ($text === '' || !$isBase64) {
            throw new \InvalidArgumentException('A signing secret is whsec_ and base64.');
        }
        return (string) base64_decode($text, true);
    }

    /** @param array<string, string|array<string|null>> $headers */
    private static function header(array $headers, string $wanted): string
    {
        $values = [];
        foreach ($headers as $name => $value) {
            if (strtolower((string) $name) === $wanted) {
                array_push($values, ...array_values((array) $value));
            }
        }
        if (count($values) !== 1 || (string) $values[0] === '') {
            throw new WebhookException("The header $wanted is missing or given twice.");
        }
        return (string) $values[0];
    }
}
