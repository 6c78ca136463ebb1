<?php

declare(strict_types=1);

namespace Tumira;

/** An answer; the names of its headers are in lower case. */
final class Answer
{
    /** @param array<string, string> $headers */
    public function __construct(
        public readonly int $status,
        public readonly array $headers,
        public readonly string $body,
    ) {
    }
}

/** Makes one HTTP request; write your own to use another library. It must not follow redirects or retry. */
interface Transport
{
    /**
     * @param array<string, string> $headers
     * @throws TransportException if no whole answer came
     */
    public function request(string $method, string $url, array $headers, ?string $body, float $timeout): Answer;
}

/** No whole answer came. */
class TransportException extends \RuntimeException
{
}

/** Uses the streams that every PHP has; needs `allow_url_fopen`. */
final class StreamTransport implements Transport
{
    private const BODY_MAX = 4 << 20;

    public function request(string $method, string $url, array $headers, ?string $body, float $timeout): Answer
    {
        $lines = ['Connection: close'];
        foreach ($headers as $name => $value) {
            $lines[] = "$name: $value";
        }
        $context = stream_context_create(['http' => [
            'method' => $method,
            'header' => $lines,
            'content' => $body ?? '',
            'ignore_errors' => true,
            'follow_location' => 0,
            'protocol_version' => 1.1,
            'timeout' => $timeout,
        ]]);
        $deadline = microtime(true) + $timeout;
        error_clear_last();
        $stream = @fopen($url, 'rb', false, $context);
        if ($stream === false) {
            throw new TransportException(error_get_last()['message'] ?? 'The connection failed.');
        }
        try {
            [$status, $answered] = self::readHead(stream_get_meta_data($stream)['wrapper_data'] ?? []);
            // Not every server closes the connection after its answer.
            $length = (int) ($answered['content-length'] ?? self::BODY_MAX);
            for ($content = ''; strlen($content) < $length && !feof($stream); ) {
                $content .= (string) @fread($stream, 65536);
                // The timeout of a stream is for each read, so the sum is watched.
                $isLate = stream_get_meta_data($stream)['timed_out'] || microtime(true) > $deadline;
                if ($isLate || strlen($content) > self::BODY_MAX) {
                    throw new TransportException('The answer took too long, or is too long.');
                }
            }
        } finally {
            fclose($stream);
        }
        if (isset($answered['content-length']) && strlen($content) < $length) {
            throw new TransportException('The connection was cut in the middle of the answer.');
        }
        return new Answer($status, $answered, $content);
    }

    /**
     * @param array<string> $lines
     * @return array{int, array<string, string>}
     */
    private static function readHead(array $lines): array
    {
        $status = 0;
        $headers = [];
        foreach ($lines as $line) {
            // A 100 comes before the answer that counts.
            if (preg_match('#^HTTP/[0-9.]+ ([0-9]{3})#', $line, $found)) {
                [$status, $headers] = [(int) $found[1], []];
            } elseif (str_contains($line, ':')) {
                [$name, $value] = explode(':', $line, 2);
                $headers[strtolower(trim($name))] = trim($value);
            }
        }
        if ($status === 0) {
            throw new TransportException('The answer is not HTTP.');
        }
        return [$status, $headers];
    }
}
