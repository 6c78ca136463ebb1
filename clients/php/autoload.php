<?php

// For projects without Composer: require this file.

declare(strict_types=1);

foreach (['exceptions', 'codes', 'models', 'Numbers', 'Retry', 'Webhooks', 'Passcodes', 'StreamTransport', 'Client'] as $file) {
    require_once __DIR__ . "/src/$file.php";
}
