<?php
$message = ['channel' => 'sms', 'to' => '+263771200001', 'body' => 'Your order 1042 is ready.'];
$context = stream_context_create(['http' => [
    'method' => 'POST',
    'header' => [
        'Authorization: Bearer ' . getenv('TUMIRA_API_KEY'),
        'Content-Type: application/json',
        'Idempotency-Key: order-1042-ready',
    ],
    'content' => json_encode($message),
    'ignore_errors' => true,
    'timeout' => 30,
]]);
$body = file_get_contents('http://127.0.0.1:8080/api/v1/messages', false, $context);
$answer = json_decode($body, true);
echo $answer['batch_id'] ?? $answer['error']['message'], "\n";
