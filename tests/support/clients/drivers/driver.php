<?php

// Runs calls of the PHP client: one JSON object on standard input, a JSON list on standard output.

declare(strict_types=1);

use Tumira\ApiException;
use Tumira\Batch;
use Tumira\Client;
use Tumira\Retry;
use Tumira\SendInterruptedException;
use Tumira\Sent;
use Tumira\SentMany;
use Tumira\TumiraException;

require 'vendor/autoload.php';

set_error_handler(function (int $level, string $message) {
    // What is silenced with @ is dealt with.
    if (error_reporting() & $level) {
        throw new ErrorException($message);
    }
    return true;
});

function plain(mixed $value): array
{
    if (is_array($value)) {
        $countries = array_unique(array_map(fn ($one) => $one->country, $value));
        sort($countries);
        return ['prices' => $countries];
    }
    if ($value instanceof Batch) {
        return [
            'status' => $value->status,
            'to' => array_map(fn ($one) => $one->to, $value->messages),
            'ids' => array_map(fn ($one) => $one->messageId, $value->messages),
        ];
    }
    if ($value instanceof Sent || $value instanceof SentMany) {
        $parts = $value instanceof Sent ? [$value] : $value->batches;
        return [
            'batches' => array_map(fn ($one) => $one->batchId, $parts),
            'accepted' => $value->accepted,
            'rejected' => array_map(fn ($one) => [$one->to, $one->code], $value->rejected),
            'total_cost' => $value->totalCost,
            'key' => $value->idempotencyKey,
            'replayed' => array_filter($parts, fn ($one) => !$one->replayed) === [],
        ];
    }
    $told = [];
    foreach (['balance' => 'balance', 'total_cost' => 'totalCost', 'to' => 'to'] as $name => $property) {
        if (property_exists($value, $property)) {
            $told[$name] = $value->$property;
        }
    }
    return $told;
}

function failed(TumiraException $error): array
{
    $told = ['error' => preg_replace('/^Tumira\\\\|Exception$/', '', get_class($error))];
    if (property_exists($error, 'idempotencyKey')) {
        $told['key'] = $error->idempotencyKey;
    }
    if ($error instanceof ApiException) {
        $told += ['code' => $error->errorCode, 'status' => $error->status, 'details' => $error->details];
    }
    if ($error instanceof SendInterruptedException) {
        $told += [
            'batches' => array_map(fn ($one) => $one->batchId, $error->batches),
            'cause' => failed($error->getPrevious()),
        ];
    }
    return $told;
}

$order = json_decode(stream_get_contents(STDIN), true, 512, JSON_THROW_ON_ERROR);
$tumira = new Client($order['url'], $order['key'], 'ZW', new Retry(timeout: (float) $order['timeout']));
$answers = [];
foreach ($order['calls'] as $call) {
    $name = lcfirst(str_replace('_', '', ucwords(array_shift($call), '_')));
    $options = array_pop($call);
    $named = array_filter([
        'idempotencyKey' => $options['idempotency_key'] ?? null,
        'reference' => $options['reference'] ?? null,
    ]);
    try {
        $answers[] = plain($tumira->$name(...$call, ...$named));
    } catch (TumiraException $error) {
        $answers[] = failed($error);
    }
}
echo json_encode($answers, JSON_THROW_ON_ERROR), "\n";
