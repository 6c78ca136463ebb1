<?php

declare(strict_types=1);

namespace Tumira\WooCommerce;

use Tumira\ApiException;
use Tumira\Sent;
use Tumira\TumiraException;

/**
 * The text of each status of an order, sent once and in the background.
 *
 * The change of a status only adds an action to the queue of WooCommerce. The action stores number and text with the
 * order before its first try, so that every try is the same call under the same key, and is billed once.
 */
final class OrderTexts
{
    public const ACTION = 'tumira_send_order_text';
    public const GROUP = 'tumira';
    /** Seconds after each failed try; the last is repeated. */
    private const WAITS = [60, 300, 900, 3600];
    // Well within the 72 hours for which the service recognises a key.
    private const GIVE_UP_AFTER = 24 * 3600;

    public static function register(): void
    {
        add_action('woocommerce_order_status_changed', [self::class, 'enqueue'], 10, 3);
        add_action(self::ACTION, [self::class, 'send'], 10, 2);
    }

    /**
     * @param mixed $orderId
     * @param mixed $from
     * @param mixed $to
     */
    public static function enqueue($orderId, $from, $to): void
    {
        if (Settings::enabledText((string) $to) !== null) {
            as_enqueue_async_action(self::ACTION, [(int) $orderId, (string) $to], self::GROUP);
        }
    }

    /**
     * @param mixed $orderId
     * @param mixed $status
     */
    public static function send($orderId, $status): void
    {
        [$orderId, $status] = [(int) $orderId, (string) $status];
        $order = wc_get_order($orderId);
        if (!$order instanceof \WC_Order) {
            return;
        }
        $entry = self::read($order, $status) ?? self::prepare($order, $status);
        if ($entry === null || isset($entry['outcome'])) {
            return;
        }
        if (!$order->has_status($status)) {
            self::finish($order, $status, $entry, 'outdated', __('not sent, because the order has another status now.', 'tumira-for-woocommerce'));
            return;
        }
        if (time() - $entry['began'] > self::GIVE_UP_AFTER) {
            self::finish($order, $status, $entry, 'given up', __('not sent within 24 hours.', 'tumira-for-woocommerce'));
            return;
        }
        $entry['tries']++;
        self::write($order, $status, $entry);
        // Scheduled before the try, so that it also follows a try whose process was killed.
        $wait = self::WAITS[min($entry['tries'], count(self::WAITS)) - 1];
        as_schedule_single_action(time() + $wait, self::ACTION, [$orderId, $status], self::GROUP);
        self::try($order, $status, $entry);
    }

    /** @param array<string, mixed> $entry */
    private static function try(\WC_Order $order, string $status, array $entry): void
    {
        $reference = Text::reference(Settings::shop(), $order->get_id(), $status);
        try {
            $sent = Settings::client()->send($entry['to'], $entry['body'], $reference, hash('sha256', $reference));
        } catch (TumiraException | \InvalidArgumentException $error) {
            // The text or the number is refused; everything else can pass or be corrected.
            if ($error instanceof ApiException && in_array($error->status, [409, 422], true) && !$error->retryable) {
                self::finish($order, $status, $entry, $error->errorCode, sprintf(
                    /* translators: %s: the reason */
                    __('refused. %s', 'tumira-for-woocommerce'),
                    $error->getMessage(),
                ));
            } elseif ($entry['tries'] === 1) {
                self::note($order, $status, sprintf(
                    /* translators: %s: the reason */
                    __('not sent yet, and tried again for 24 hours. %s', 'tumira-for-woocommerce'),
                    $error->getMessage(),
                ));
            }
            return;
        }
        self::finish($order, $status, ['batch_id' => $sent->batchId] + $entry, ...self::describe($sent));
    }

    /** @return array{string, string} */
    private static function describe(Sent $sent): array
    {
        $code = $sent->rejected[0]->code ?? 'sent';
        return [$code, match ($code) {
            'sent' => sprintf(
                /* translators: 1: the price, such as USD 0.0400, 2: the id of the batch */
                __('sent for %1$s (%2$s).', 'tumira-for-woocommerce'),
                "$sent->currency $sent->totalCost",
                $sent->batchId,
            ),
            'RECIPIENT_OPTED_OUT' => __('not sent, because the customer replied STOP.', 'tumira-for-woocommerce'),
            'UNSUPPORTED_DESTINATION' => __('not sent, because the number is in another country.', 'tumira-for-woocommerce'),
            default => sprintf(
                /* translators: %s: a code */
                __('not sent, because the number was rejected (%s).', 'tumira-for-woocommerce'),
                $code,
            ),
        }];
    }

    /** @return array<string, mixed>|null what is sent, stored with the order; null if there is nothing to send */
    private static function prepare(\WC_Order $order, string $status): ?array
    {
        $text = Settings::enabledText($status);
        if ($text === null || !$order->has_status($status)) {
            return null;
        }
        $entry = ['to' => '', 'body' => '', 'began' => time(), 'tries' => 0];
        // An order that was made by hand may have no country.
        $country = $order->get_billing_country() ?: WC()->countries->get_base_country();
        $number = PhoneCheck::read($order->get_billing_phone(), $country);
        if ($number === null) {
            self::finish($order, $status, $entry, 'no number', __('not sent, because the order has no mobile number.', 'tumira-for-woocommerce'));
            return null;
        }
        $entry['to'] = $number;
        $entry['body'] = Text::fill($text, [
            'order' => $order->get_order_number(),
            'name' => Text::plainName($order->get_billing_first_name()),
            // With the code of the currency: its sign would make many texts longer.
            'total' => $order->get_currency() . ' ' . number_format((float) $order->get_total(), wc_get_price_decimals(), '.', ''),
            'shop' => wp_specialchars_decode(get_bloginfo('name'), ENT_QUOTES),
        ]);
        self::write($order, $status, $entry);
        return $entry;
    }

    /** @param array<string, mixed> $entry */
    private static function finish(\WC_Order $order, string $status, array $entry, string $outcome, string $said): void
    {
        self::note($order, $status, $said);
        self::write($order, $status, ['outcome' => $outcome] + $entry);
        as_unschedule_all_actions(self::ACTION, [$order->get_id(), $status], self::GROUP);
    }

    public static function note(\WC_Order $order, string $status, string $said): void
    {
        $order->add_order_note(sprintf(
            /* translators: 1: an order status, 2: what happened to its text */
            __('Text for "%1$s": %2$s', 'tumira-for-woocommerce'),
            esc_html(wc_get_order_status_name($status)),
            esc_html($said),
        ));
    }

    /** @return array<string, mixed>|null */
    public static function read(\WC_Order $order, string $status): ?array
    {
        $entry = $order->get_meta("_tumira_text_$status");
        return is_array($entry) ? $entry : null;
    }

    /** @param array<string, mixed> $entry */
    public static function write(\WC_Order $order, string $status, array $entry): void
    {
        $order->update_meta_data("_tumira_text_$status", $entry);
        $order->save_meta_data();
    }
}
