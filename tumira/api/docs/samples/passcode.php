<?php
session_start();

function send_code(string $phone): void
{
    $code = sprintf('%06d', random_int(0, 999999));
    $_SESSION['code'] = ['hash' => code_hash($phone, $code), 'expires' => time() + 600, 'tries' => 0];
    send_text($phone, "Your code is $code. It is valid for 10 minutes.", bin2hex(random_bytes(16)));
}

function check_code(string $phone, string $typed): bool
{
    $entry = $_SESSION['code'] ?? null;
    if ($entry === null || time() > $entry['expires'] || $entry['tries'] >= 5) {
        return false;
    }
    $_SESSION['code']['tries']++;
    if (!hash_equals($entry['hash'], code_hash($phone, $typed))) {
        return false;
    }
    unset($_SESSION['code']); // A code is valid once.
    return true;
}

function code_hash(string $phone, string $code): string
{
    return hash_hmac('sha256', "$phone $code", getenv('CODE_SECRET'));
}

function send_text(string $phone, string $text, string $idempotencyKey): void
{
    $context = stream_context_create(['http' => [
        'method' => 'POST',
        'header' => [
            'Authorization: Bearer ' . getenv('TUMIRA_API_KEY'),
            'Content-Type: application/json',
            "Idempotency-Key: $idempotencyKey", // The same on every try: sent and billed once.
        ],
        'content' => json_encode(['channel' => 'sms', 'to' => $phone, 'body' => $text]),
        'ignore_errors' => true,
        'timeout' => 10,
    ]]);
    foreach ([1, 3, 0] as $wait) {
        $body = @file_get_contents('http://127.0.0.1:8080/api/v1/messages', false, $context);
        $answer = json_decode((string) $body, true);
        if (isset($answer['batch_id'])) {
            return;
        }
        if (($answer['error']['retryable'] ?? true) === false) {
            break;
        }
        sleep($wait);
    }
    throw new RuntimeException('The code was not sent: ' . ($answer['error']['code'] ?? 'no answer'));
}
