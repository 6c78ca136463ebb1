<?php

declare(strict_types=1);

namespace Tumira\WooCommerce;

use Tumira\WebhookEvent;
use Tumira\WebhookException;
use Tumira\Webhooks;

/** Events of the service, where the shop has set the secret of an endpoint: whether each text was delivered. */
final class Events
{
    public const ROUTE = ['tumira/v1', '/events'];

    public static function register(): void
    {
        add_action('rest_api_init', static function (): void {
            // The signature is the permission.
            register_rest_route(self::ROUTE[0], self::ROUTE[1], [
                'methods' => 'POST',
                'callback' => [self::class, 'receive'],
                'permission_callback' => '__return_true',
            ]);
        });
    }

    public static function receive(\WP_REST_Request $request): \WP_REST_Response
    {
        $headers = [];
        foreach (['webhook-id', 'webhook-timestamp', 'webhook-signature'] as $name) {
            $headers[$name] = (string) $request->get_header($name);
        }
        try {
            $event = (new Webhooks(Settings::secret(Settings::WEBHOOK_SECRET)))->verify($headers, $request->get_body());
        } catch (WebhookException | \InvalidArgumentException) {
            return new \WP_REST_Response(null, 400);
        }
        return new \WP_REST_Response(null, self::apply($event) ? 204 : 503);
    }

    /** Notes what happened to a text; false if the event came before the answer to the send, and should come again. */
    private static function apply(WebhookEvent $event): bool
    {
        $said = match ($event->type) {
            'message.delivered' => __('delivered.', 'tumira-for-woocommerce'),
            'message.undelivered' => __('not delivered.', 'tumira-for-woocommerce'),
            'message.expired' => __('not delivered in time.', 'tumira-for-woocommerce'),
            'message.failed' => __('no carrier took it.', 'tumira-for-woocommerce'),
            'message.unconfirmed' => __('sent, but no receipt came.', 'tumira-for-woocommerce'),
            default => null,
        };
        $named = Text::readReference(Settings::shop(), (string) ($event->data['reference'] ?? ''));
        $order = $said === null || $named === null ? null : wc_get_order($named[0]);
        $entry = $order instanceof \WC_Order ? OrderTexts::read($order, $named[1]) : null;
        if ($entry === null) {
            return true;
        }
        if (!isset($entry['batch_id'])) {
            return isset($entry['outcome']);
        }
        $isNews = $entry['batch_id'] === ($event->data['batch_id'] ?? '') && $event->sequence > ($entry['sequence'] ?? 0);
        if ($isNews) {
            OrderTexts::note($order, $named[1], $said);
            OrderTexts::write($order, $named[1], ['sequence' => $event->sequence] + $entry);
        }
        return true;
    }
}
