<?php

// Runs one command in a shop, as an administrator would at its server: php shop.php FOLDER COMMAND [ARGUMENT…]
// The answer is JSON.

declare(strict_types=1);

[, $folder, $command] = $argv;
$arguments = array_slice($argv, 3);

$_SERVER['HTTP_HOST'] = (string) getenv('SHOP_HOST');
if ($command === 'install') {
    define('WP_INSTALLING', true);
}
require "$folder/wp-load.php";

function answer(string $command, array $arguments): mixed
{
    global $wpdb;
    switch ($command) {
        case 'install':
            require_once ABSPATH . 'wp-admin/includes/upgrade.php';
            wp_install('Mbare & Sons', 'owner', 'owner@example.com', true, '', $arguments[0]);
            wp_insert_user(['user_login' => 'reader', 'user_pass' => $arguments[0], 'role' => 'editor']);
            return null;
        case 'activate':
            require_once ABSPATH . 'wp-admin/includes/plugin.php';
            return is_wp_error($failed = activate_plugin($arguments[0])) ? $failed->get_error_message() : null;
        case 'uninstall':
            require_once ABSPATH . 'wp-admin/includes/plugin.php';
            deactivate_plugins($arguments[0]);
            return uninstall_plugin($arguments[0]);
        case 'options':
            $rows = $wpdb->get_results("SELECT option_name, autoload FROM $wpdb->options WHERE option_name LIKE 'tumira%'");
            return array_column($rows, 'autoload', 'option_name');
        case 'order':
            return stand_in_create_order(json_decode($arguments[0], true))->get_id();
        case 'status':
            return wc_get_order((int) $arguments[0])->update_status($arguments[1]);
        case 'age':
            // As if the first try had been long ago.
            $order = wc_get_order((int) $arguments[0]);
            $key = "_tumira_text_$arguments[1]";
            $order->update_meta_data($key, ['began' => time() - (int) $arguments[2]] + $order->get_meta($key));
            $order->save_meta_data();
            return null;
        case 'run':
            return stand_in_run_queue(time() + (int) ($arguments[0] ?? 0));
        case 'notes':
            $found = $wpdb->prepare("SELECT comment_content FROM $wpdb->comments WHERE comment_post_ID = %d ORDER BY comment_ID", $arguments[0]);
            return $wpdb->get_col($found);
        case 'actions':
            return $wpdb->get_results("SELECT args, status, due FROM {$wpdb->prefix}actionscheduler_actions ORDER BY id", ARRAY_A);
        case 'declared':
            return Automattic\WooCommerce\Utilities\FeaturesUtil::$declared;
    }
    throw new InvalidArgumentException($command);
}

echo "\n", json_encode(answer($command, $arguments)), "\n";
