<?php

// Removes the settings; what was noted on orders stays with them.

declare(strict_types=1);

defined('WP_UNINSTALL_PLUGIN') || exit;

require_once __DIR__ . '/src/Settings.php';

foreach (Tumira\WooCommerce\Settings::ALL as $option) {
    delete_option($option);
}
