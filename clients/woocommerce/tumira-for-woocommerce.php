<?php

/**
 * Plugin Name: Tumira for WooCommerce
 * Description: Texts customers when the status of their order changes, and checks phone numbers at checkout.
 * Version: 0.1.0
 * Requires at least: 6.1
 * Requires PHP: 8.1
 * Requires Plugins: woocommerce
 * WC requires at least: 8.2
 * License: Apache-2.0
 * Text Domain: tumira-for-woocommerce
 * Domain Path: /languages
 */

declare(strict_types=1);

namespace Tumira\WooCommerce;

defined('ABSPATH') || exit;

// Another plugin may have loaded the client already.
if (!class_exists(\Tumira\Client::class)) {
    require __DIR__ . '/client/autoload.php';
}
foreach (['Text', 'WordPressTransport', 'Settings', 'PhoneCheck', 'OrderTexts', 'Events'] as $file) {
    require_once __DIR__ . "/src/$file.php";
}

add_action('before_woocommerce_init', static function (): void {
    if (class_exists(\Automattic\WooCommerce\Utilities\FeaturesUtil::class)) {
        foreach (['custom_order_tables', 'cart_checkout_blocks'] as $feature) {
            \Automattic\WooCommerce\Utilities\FeaturesUtil::declare_compatibility($feature, __FILE__, true);
        }
    }
});

add_action('init', static function (): void {
    load_plugin_textdomain('tumira-for-woocommerce', false, dirname(plugin_basename(__FILE__)) . '/languages');
});

add_action('plugins_loaded', static function (): void {
    if (!class_exists('WooCommerce')) {
        return;
    }
    OrderTexts::register();
    PhoneCheck::register();
    Events::register();
    // The class of settings pages exists only where they are shown.
    add_filter('woocommerce_get_settings_pages', static function (array $pages): array {
        require_once __DIR__ . '/src/SettingsPage.php';
        $pages[] = new SettingsPage();
        return $pages;
    });
});
