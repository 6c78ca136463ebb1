<?php

declare(strict_types=1);

namespace Tumira\Laravel;

/** What a notification says by text message, and your label for it. */
final class TumiraMessage
{
    public function __construct(public readonly string $body, public readonly ?string $reference = null)
    {
    }
}
