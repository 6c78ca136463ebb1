<?php

// The client does what the test vectors of all clients say: php vectors.php

declare(strict_types=1);

namespace Tumira;

require __DIR__ . '/../autoload.php';

error_reporting(E_ALL);
set_error_handler(fn (int $level, string $message) => throw new \ErrorException($message));

$vectors = json_decode(file_get_contents(__DIR__ . '/../../vectors.json'), true, 512, JSON_THROW_ON_ERROR);
$count = 0;

function same(mixed $expected, mixed $actual, string $what): void
{
    global $count;
    $count++;
    // 12 and 12.0 are the same number of seconds.
    $equal = is_float($expected) || is_float($actual) ? $expected !== null && $actual !== null && $expected == $actual : $expected === $actual;
    if (!$equal) {
        fwrite(STDERR, "$what: expected " . var_export($expected, true) . ', got ' . var_export($actual, true) . "\n");
        exit(1);
    }
}

/** @param class-string<\Throwable> $class */
function refused(string $class, \Closure $call, string $what): void
{
    try {
        $call();
    } catch (\Throwable $error) {
        same(true, $error instanceof $class, "$what: " . get_class($error));
        return;
    }
    same($class, null, $what);
}

foreach ($vectors['numbers'] as $one) {
    $read = fn () => Numbers::e164($one['text'], $one['country']);
    if ($one['e164'] === null) {
        refused(InvalidNumberException::class, $read, $one['text']);
    } else {
        same($one['e164'], $read(), $one['text']);
    }
}
refused(\InvalidArgumentException::class, fn () => Numbers::e164('0771200001', 'XX'), 'unknown country');
refused(InvalidNumberException::class, fn () => Numbers::e164("077\xff1200001", 'ZW'), 'not UTF-8');

foreach ($vectors['signatures'] as $one) {
    $check = fn () => (new Webhooks($one['secrets'], $one['tolerance'] ?? 300))->check($one['headers'], $one['body'], (float) $one['now']);
    if ($one['valid']) {
        same(((array) array_values($one['headers'])[0])[0], $check(), $one['name']);
    } else {
        refused(WebhookException::class, $check, $one['name']);
    }
}
$one = $vectors['signatures'][0];
$event = (new Webhooks($one['secrets']))->verify($one['headers'], $one['body'], (float) $one['now']);
same(['evt_01', 'message.delivered', 'delivered'], [$event->id, $event->type, $event->data['status']], 'event');
$one = $vectors['signatures'][1];
refused(WebhookException::class, fn () => (new Webhooks($one['secrets']))->verify($one['headers'], $one['body'], (float) $one['now']), 'not an event');
foreach ([[], '', 'whsec_', 'whsec_***'] as $secrets) {
    refused(\InvalidArgumentException::class, fn () => new Webhooks($secrets), 'secret');
}

$retry = new Retry();
same($vectors['retry_policy'], ['tries_max' => $retry->triesMax, 'give_up_after' => (int) $retry->giveUpAfter], 'policy');
foreach ($vectors['retries'] as $one) {
    $wait = $retry->waitAfter(
        $one['attempt'],
        (float) $one['elapsed'],
        $one['status'],
        $one['retryable'],
        $one['retry_after'] === null ? null : (float) $one['retry_after'],
        $one['random'],
    );
    same($one['wait'], $wait, json_encode($one));
}
foreach ($vectors['retry_after'] as $one) {
    same($one['seconds'], Retry::readRetryAfter($one['header'], (float) $one['now']), "Retry-After {$one['header']}");
}
foreach ($vectors['pacing'] as $one) {
    same($one['pause'], Retry::readPause($one['header']), "RateLimit {$one['header']}");
}
foreach ($vectors['chunk_keys'] as $one) {
    same($one['derived'], Retry::chunkKey($one['key'], $one['index']), $one['key']);
}
foreach ($vectors['chunks'] as $one) {
    same($one['chunks'], Retry::chunks($one['to'], $one['size']), json_encode($one));
}
foreach ($vectors['sums'] as $one) {
    same($one['total'], Retry::addMoney($one['amounts']), json_encode($one));
}

foreach ($vectors['passcode_hashes'] as $one) {
    same($one['hash'], (new Passcodes(new MemoryCodeStore(), $one['secret']))->hash($one['phone'], $one['code']), $one['code']);
}
$rules = $vectors['passcode_rules'];
foreach ($vectors['passcodes'] as $one) {
    $store = new MemoryCodeStore();
    $now = 0.0;
    $clock = function () use (&$now) {
        return $now;
    };
    $codes = new Passcodes($store, $rules['secret'], $rules['country'], triesMax: $rules['tries_max'], clock: $clock);
    foreach ($one['steps'] as $step) {
        if (isset($step['put'])) {
            $store->put($step['put'], new StoredCode($step['hash'], $step['expires_at'], $step['tries']));
            continue;
        }
        $now = (float) $step['at'];
        same($step['ok'], $codes->check($step['check'], $step['typed']), "{$one['name']}: {$step['typed']}");
    }
}
$store = new MemoryCodeStore();
$codes = new Passcodes($store, 'a long random text', 'ZW', clock: fn () => 1000.5);
$code = $codes->make('077 120 0001');
same(1, preg_match('/^[0-9]{6}$/D', $code), 'a code has six digits');
$stored = $store->countTry('+263771200001');
same([$codes->hash('+263771200001', $code), 1600], [$stored->hash, $stored->expiresAt], 'a hash is stored');
same([true, false], [$codes->check('+263771200001', $code), $codes->check('+263771200001', $code)], 'right once');
refused(\InvalidArgumentException::class, fn () => new Passcodes($store, 'short'), 'secret');

echo "$count checks passed\n";
