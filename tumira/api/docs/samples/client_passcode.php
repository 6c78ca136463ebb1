<?php
require 'vendor/autoload.php';

$tumira = new Tumira\Client('http://127.0.0.1:8080');
$store = new Tumira\MemoryCodeStore(); // in production a class with three methods on a table of your database
$codes = new Tumira\Passcodes($store, getenv('CODE_SECRET'), country: 'ZW');

function send_code(string $phone): void
{
    global $tumira, $codes;
    $tumira->send($phone, "Your code is {$codes->make($phone)}. It is valid for 10 minutes.");
}

function check_code(string $phone, string $typed): bool
{
    global $codes;
    return $codes->check($phone, $typed);
}
