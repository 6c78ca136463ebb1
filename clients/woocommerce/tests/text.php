<?php

// The parts of the plugin that need neither WordPress nor WooCommerce, and the syntax of all its files: php text.php

declare(strict_types=1);

namespace Tumira\WooCommerce;

require __DIR__ . '/../../php/autoload.php';
require __DIR__ . '/../src/Text.php';
require __DIR__ . '/../src/PhoneCheck.php';

error_reporting(E_ALL);
set_error_handler(fn (int $level, string $message) => throw new \ErrorException($message));

$count = 0;

function same(mixed $expected, mixed $actual, string $what): void
{
    global $count;
    $count++;
    if ($expected !== $actual) {
        fwrite(STDERR, "$what: expected " . var_export($expected, true) . ', got ' . var_export($actual, true) . "\n");
        exit(1);
    }
}

foreach ([
    ['Order {order} for {name}: {total}. {shop}', 'Order 1042 for Rudo: USD 12.50. Mbare Market', Text::PLACES],
    // A place in a value is not filled.
    ['Hi {name}, order {order}', 'Hi {order}, order 7', ['name' => '{order}', 'order' => '7']],
    // Nothing of an empty name is left.
    ['Hi {name}, order {order}', 'Hi, order 7', ['name' => '', 'order' => '7']],
    ['For {name} order {order}', 'For order 7', ['name' => '', 'order' => '7']],
    ['{other} {order}', '{other} 7', ['order' => '7']],
] as [$text, $expected, $values]) {
    same($expected, Text::fill($text, $values), $text);
}

same([], Text::unknownPlaces('{order} {name} {total} {shop}'), 'known places');
same(['Order', ''], Text::unknownPlaces('{Order} {order} {} {Order}'), 'unknown places');

foreach ([
    'Rudo' => 'Rudo',
    '  Anne-Marie  O\'Neil ' => 'Anne-Marie O\'Neil',
    'Zoë' => 'Zoë',
    // Neither links nor numbers go to the phone of a stranger.
    'You won! https://evil.example/x' => 'You won httpsevilexamplex',
    'Call 0771200009' => 'Call',
    "Rudo\nNow" => 'RudoNow',
    'Your parcel is held please pay the duty' => '',
    "\xff" => '',
] as $name => $expected) {
    same($expected, Text::plainName((string) $name), (string) $name);
}

$reference = Text::reference('0123456789abcdef', 1042, 'on-hold');
same('wc-0123456789abcdef-1042-on-hold', $reference, 'reference');
same([1042, 'on-hold'], Text::readReference('0123456789abcdef', $reference), 'own reference');
same(null, Text::readReference('fedcba9876543210', $reference), 'reference of another shop');
same(null, Text::readReference('0123456789abcdef', 'order-1042'), 'another reference');
// The service takes up to 64 characters, and WordPress has statuses of up to 20.
same(true, strlen(Text::reference('0123456789abcdef', PHP_INT_MAX, str_repeat('x', 20))) <= 64, 'length');

same('tmr_01m7g6wr6tf1ns5pgj33ea6aq4_…', Text::mask('tmr_01m7g6wr6tf1ns5pgj33ea6aq4_secret'), 'key');
same('whsec_…', Text::mask('whsec_AAEC'), 'webhook secret');
same('…', Text::mask('secret'), 'another secret');

// The rules are those of the client, where a country is given.
$vectors = json_decode(file_get_contents(__DIR__ . '/../../vectors.json'), true, 512, JSON_THROW_ON_ERROR);
foreach ($vectors['numbers'] as $one) {
    same($one['e164'], PhoneCheck::read($one['text'], $one['country'] ?? ''), $one['text']);
}
same(null, PhoneCheck::read('07700 900123', 'GB'), 'a local number of another country');

foreach ([...glob(__DIR__ . '/../*.php'), ...glob(__DIR__ . '/../src/*.php')] as $file) {
    token_get_all(file_get_contents($file), TOKEN_PARSE);
    $count++;
}

echo "$count checks passed\n";
