<?php
// $headers by lower-case name; $body is file_get_contents('php://input').
function is_genuine(array $headers, string $body): bool
{
    $sentAt = $headers['webhook-timestamp'];
    if (abs(time() - (int) $sentAt) > 300) {
        return false;
    }
    $key = base64_decode(substr(getenv('WEBHOOK_SECRET'), strlen('whsec_')));
    $digest = hash_hmac('sha256', "{$headers['webhook-id']}.$sentAt.$body", $key, true);
    $expected = 'v1,' . base64_encode($digest);
    foreach (explode(' ', $headers['webhook-signature']) as $signature) {
        if (hash_equals($expected, $signature)) {
            return true;
        }
    }
    return false;
}
