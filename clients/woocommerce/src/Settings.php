<?php

declare(strict_types=1);

namespace Tumira\WooCommerce;

use Tumira\Client;
use Tumira\Retry;

/** The settings of the shop, as options of WordPress. */
final class Settings
{
    public const URL = 'tumira_url';
    public const API_KEY = 'tumira_api_key';
    public const WEBHOOK_SECRET = 'tumira_webhook_secret';
    public const CHECK_PHONES = 'tumira_check_phones';
    public const ENABLED = 'tumira_enabled';
    public const TEXTS = 'tumira_texts';
    public const SHOP = 'tumira_shop';
    public const ALL = [
        self::URL, self::API_KEY, self::WEBHOOK_SECRET, self::CHECK_PHONES, self::ENABLED, self::TEXTS, self::SHOP,
    ];

    /** Returns a client that gives up soon, because the queue tries again. */
    public static function client(): Client
    {
        return new Client(
            (string) get_option(self::URL, ''),
            self::secret(self::API_KEY),
            retry: new Retry(triesMax: 2, timeout: 10.0, giveUpAfter: 20.0),
            transport: new WordPressTransport(),
        );
    }

    /** Returns a secret; a constant of wp-config.php, such as TUMIRA_API_KEY, replaces what is stored. */
    public static function secret(string $option): string
    {
        $constant = strtoupper($option);
        return (string) (defined($constant) ? constant($constant) : get_option($option, ''));
    }

    /** Returns the text of a status; null if the shop sends none. */
    public static function enabledText(string $status): ?string
    {
        $enabled = (array) get_option(self::ENABLED, []);
        $text = ($enabled[$status] ?? 'no') === 'yes' ? self::text($status) : '';
        return $text === '' ? null : $text;
    }

    public static function text(string $status): string
    {
        $texts = (array) get_option(self::TEXTS, []);
        return trim((string) ($texts[$status] ?? self::defaultText($status)));
    }

    public static function defaultText(string $status): string
    {
        return match ($status) {
            'processing' => __('Hi {name}, we received your order {order} for {total}. {shop}', 'tumira-for-woocommerce'),
            'on-hold' => __('Your order {order} waits for your payment of {total}. {shop}', 'tumira-for-woocommerce'),
            'completed' => __('Your order {order} is complete. Thank you! {shop}', 'tumira-for-woocommerce'),
            'cancelled' => __('Your order {order} was cancelled. {shop}', 'tumira-for-woocommerce'),
            'refunded' => __('Your order {order} was refunded. {shop}', 'tumira-for-woocommerce'),
            'failed' => __('The payment for your order {order} failed. {shop}', 'tumira-for-woocommerce'),
            default => __('Your order {order} has a new status. {shop}', 'tumira-for-woocommerce'),
        };
    }

    /** @return array<string, string> the names of all statuses that a customer can meet, without the prefix of WooCommerce */
    public static function statuses(): array
    {
        $statuses = [];
        foreach (wc_get_order_statuses() as $status => $name) {
            $statuses[(string) preg_replace('/^wc-/', '', (string) $status)] = (string) $name;
        }
        unset($statuses['checkout-draft']);
        return $statuses;
    }

    /** Returns an id of the shop that a copy of its database keeps: what a copy sends again is billed once. */
    public static function shop(): string
    {
        // Another process may have added it first.
        if (get_option(self::SHOP) === false) {
            add_option(self::SHOP, bin2hex(random_bytes(8)));
        }
        return (string) get_option(self::SHOP);
    }
}
