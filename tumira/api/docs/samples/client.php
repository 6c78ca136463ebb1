<?php
require 'vendor/autoload.php';

$tumira = new Tumira\Client('http://127.0.0.1:8080', country: 'ZW'); // The key is in TUMIRA_API_KEY.
$sent = $tumira->send('0771200001', 'Your order 1042 is ready.', idempotencyKey: 'order-1042-ready');
echo $sent->batchId, ' ', $sent->totalCost, "\n";
