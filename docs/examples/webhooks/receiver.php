<?php
// Receives webhooks of Tumira. PHP 8, no packages. EVENTS_DIRECTORY must not be public; to try it:
// WEBHOOK_SECRET=whsec_… EVENTS_DIRECTORY=/tmp php -S 127.0.0.1:8000 receiver.php
declare(strict_types=1);

const TOLERANCE_S = 5 * 60;
const BODY_MAX = 64 * 1024;

function is_genuine(string $secret, string $id, string $timestamp, string $signatures, string $body): bool
{
    if (!preg_match('/^[0-9]{1,12}\z/', $timestamp) || abs(time() - (int) $timestamp) > TOLERANCE_S) {
        return false;
    }
    $key = base64_decode(preg_replace('/^whsec_/', '', $secret), true);
    if ($key === false || $key === '') {
        throw new RuntimeException('WEBHOOK_SECRET is not whsec_ and base64.');
    }
    $expected = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
    // While a secret is being changed there are two signatures; one match is enough.
    foreach (explode(' ', $signatures) as $signature) {
        if (hash_equals($expected, $signature)) {
            return true;
        }
    }
    return false;
}

// Writes an event down, to be worked on later; false if we have it already. A table of your database with the id as
// its primary key does the same.
function keep(string $directory, string $id, string $body): bool
{
    $name = "$directory/$id.json";
    $part = "$directory/" . bin2hex(random_bytes(8)) . '.part';
    $is_new = file_put_contents($part, $body) === strlen($body) && @link($part, $name);
    @unlink($part);
    if (!file_exists($name)) {
        throw new RuntimeException("$name could not be written.");
    }
    return $is_new;
}

$id = $_SERVER['HTTP_WEBHOOK_ID'] ?? '';
$timestamp = $_SERVER['HTTP_WEBHOOK_TIMESTAMP'] ?? '';
$signatures = $_SERVER['HTTP_WEBHOOK_SIGNATURE'] ?? '';
$body = (string) file_get_contents('php://input', false, null, 0, BODY_MAX);

// The id becomes the name of a file, so it is checked too.
$genuine = preg_match('/^\w{1,64}\z/', $id)
    && is_genuine((string) getenv('WEBHOOK_SECRET'), $id, $timestamp, $signatures, $body);
if ($genuine && keep((string) getenv('EVENTS_DIRECTORY'), $id, $body)) {
    error_log("new $id " . json_decode($body, true)['type']);
}
http_response_code($genuine ? 204 : 400);
