<?php

declare(strict_types=1);

namespace Tumira\WooCommerce;

use Automattic\WooCommerce\StoreApi\Exceptions\RouteException;
use Tumira\InvalidNumberException;
use Tumira\Numbers;

/** The check of the billing phone at checkout, in the classic form and in the block. */
final class PhoneCheck
{
    /** The countries that texts go to, with a number as it is written there. */
    private const EXAMPLES = ['ZW' => '077 120 0001', 'ZA' => '082 123 0001'];

    public static function register(): void
    {
        add_action('woocommerce_after_checkout_validation', [self::class, 'checkForm'], 10, 2);
        add_action('woocommerce_store_api_checkout_update_order_from_request', [self::class, 'checkBlock'], 10, 2);
    }

    /** @param mixed $data what the customer entered, by field */
    public static function checkForm($data, \WP_Error $errors): void
    {
        $problem = self::problem((string) ($data['billing_phone'] ?? ''), (string) ($data['billing_country'] ?? ''));
        if ($problem !== null) {
            $errors->add('billing_phone_validation', esc_html($problem), ['id' => 'billing_phone']);
        }
    }

    /** @throws RouteException if the customer may not go on to payment */
    public static function checkBlock(\WC_Order $order, \WP_REST_Request $request): void
    {
        // The block saves while the customer is still typing; only the last request places the order.
        if ($request->get_method() !== 'POST') {
            return;
        }
        $problem = self::problem($order->get_billing_phone(), $order->get_billing_country());
        if ($problem !== null) {
            throw new RouteException('tumira_invalid_phone', esc_html($problem), 400);
        }
    }

    /** Returns what to tell the customer, or null. A phone that is left out is WooCommerce's own question. */
    private static function problem(string $phone, string $country): ?string
    {
        $isChecked = isset(self::EXAMPLES[$country]) && get_option(Settings::CHECK_PHONES, 'yes') === 'yes';
        if (!$isChecked || trim($phone) === '' || self::read($phone, $country) !== null) {
            return null;
        }
        return sprintf(
            /* translators: 1: a phone number as it is dialled in the country, 2: the same in international form */
            __('Enter the number of your mobile phone, such as %1$s or %2$s.', 'tumira-for-woocommerce'),
            self::EXAMPLES[$country],
            Numbers::e164(self::EXAMPLES[$country], $country),
        );
    }

    /** Returns a number in international form; null if it is none. Local numbers belong to a country that is given. */
    public static function read(string $phone, string $country): ?string
    {
        try {
            return Numbers::e164($phone, isset(self::EXAMPLES[$country]) ? $country : null);
        } catch (InvalidNumberException) {
            return null;
        }
    }
}
