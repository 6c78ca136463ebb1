<?php

declare(strict_types=1);

namespace Tumira\WooCommerce;

use Tumira\Answer;
use Tumira\Transport;
use Tumira\TransportException;

/** Calls through WordPress, so that its proxy, certificates and filters apply. */
final class WordPressTransport implements Transport
{
    public function request(string $method, string $url, array $headers, ?string $body, float $timeout): Answer
    {
        $answer = wp_remote_request($url, [
            'method' => $method,
            'headers' => $headers,
            'body' => $body,
            'timeout' => $timeout,
            'redirection' => 0,
        ]);
        if (is_wp_error($answer)) {
            throw new TransportException($answer->get_error_message());
        }
        $answered = [];
        foreach (wp_remote_retrieve_headers($answer) as $name => $value) {
            $answered[strtolower((string) $name)] = is_array($value) ? implode(', ', $value) : (string) $value;
        }
        $content = wp_remote_retrieve_body($answer);
        // WordPress takes what came before a connection was cut; a compressed body has another length.
        $isPlain = isset($answered['content-length']) && !isset($answered['content-encoding']);
        if ($isPlain && strlen($content) < (int) $answered['content-length']) {
            throw new TransportException('The connection was cut in the middle of the answer.');
        }
        return new Answer((int) wp_remote_retrieve_response_code($answer), $answered, $content);
    }
}
