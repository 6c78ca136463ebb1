<?php

/**
 * Plugin Name: WooCommerce (stand-in)
 * Description: The hooks, functions and classes of WooCommerce that the plugin under test uses, and nothing else.
 *
 * WooCommerce itself is in no package index that tests can use. The names, arguments and order of everything here
 * follow its public interface. Orders and actions have tables of their own, as in WooCommerce since 8.2: what reads
 * an order as a post finds nothing.
 */

declare(strict_types=1);

namespace Automattic\WooCommerce\Utilities {
    final class FeaturesUtil
    {
        /** @var array<string, string> */
        public static array $declared = [];

        public static function declare_compatibility(string $feature, string $file, bool $positive = true): bool
        {
            if (!doing_action('before_woocommerce_init')) {
                throw new \LogicException('Compatibility is declared in before_woocommerce_init.');
            }
            self::$declared[$feature] = plugin_basename($file);
            return true;
        }
    }
}

namespace Automattic\WooCommerce\StoreApi\Exceptions {
    class RouteException extends \Exception
    {
        public function __construct(public string $error_code, string $message, int $status = 400, array $data = [])
        {
            parent::__construct($message, $status);
        }

        public function getErrorCode(): string
        {
            return $this->error_code;
        }
    }
}

namespace {
    use Automattic\WooCommerce\StoreApi\Exceptions\RouteException;

    final class WooCommerce
    {
        public object $countries;

        public function __construct()
        {
            $this->countries = new class {
                public function get_base_country(): string
                {
                    return 'ZW';
                }
            };
        }
    }

    function WC(): WooCommerce
    {
        static $woocommerce = new WooCommerce();
        return $woocommerce;
    }

    final class WC_Order
    {
        /** @var array<string, array{from: string, to: string}|null> */
        private ?array $transition = null;
        /** @var array<string, mixed> */
        private array $changed = [];

        /** @param array<string, string> $row */
        public function __construct(private array $row)
        {
        }

        public function get_id(): int
        {
            return (int) $this->row['id'];
        }

        public function get_order_number(): string
        {
            return (string) apply_filters('woocommerce_order_number', $this->get_id(), $this);
        }

        public function get_status(): string
        {
            return $this->row['status'];
        }

        public function has_status(string|array $status): bool
        {
            return in_array($this->get_status(), (array) $status, true);
        }

        public function get_billing_first_name(): string
        {
            return $this->row['first_name'];
        }

        public function get_billing_phone(): string
        {
            return $this->row['phone'];
        }

        public function get_billing_country(): string
        {
            return $this->row['country'];
        }

        public function get_currency(): string
        {
            return $this->row['currency'];
        }

        public function get_total(): string
        {
            return $this->row['total'];
        }

        public function get_meta(string $key): mixed
        {
            global $wpdb;
            if (array_key_exists($key, $this->changed)) {
                return $this->changed[$key];
            }
            $stored = $wpdb->get_var($wpdb->prepare(
                "SELECT meta_value FROM {$wpdb->prefix}wc_orders_meta WHERE order_id = %d AND meta_key = %s",
                $this->get_id(),
                $key,
            ));
            return $stored === null ? '' : maybe_unserialize($stored);
        }

        public function update_meta_data(string $key, mixed $value): void
        {
            $this->changed[$key] = $value;
        }

        public function save_meta_data(): void
        {
            global $wpdb;
            foreach ($this->changed as $key => $value) {
                $row = ['order_id' => $this->get_id(), 'meta_key' => $key, 'meta_value' => maybe_serialize($value)];
                $wpdb->replace("{$wpdb->prefix}wc_orders_meta", $row);
            }
            $this->changed = [];
        }

        public function set_status(string $status): void
        {
            if ($status !== $this->get_status()) {
                $this->transition = ['from' => $this->get_status(), 'to' => $status];
                $this->row['status'] = $status;
            }
        }

        public function save(): int
        {
            global $wpdb;
            $this->save_meta_data();
            $wpdb->update("{$wpdb->prefix}wc_orders", ['status' => $this->get_status()], ['id' => $this->get_id()]);
            [$transition, $this->transition] = [$this->transition, null];
            if ($transition !== null) {
                do_action("woocommerce_order_status_{$transition['to']}", $this->get_id(), $this, $transition);
                do_action('woocommerce_order_status_changed', $this->get_id(), $transition['from'], $transition['to'], $this);
            }
            return $this->get_id();
        }

        public function update_status(string $status): bool
        {
            $this->set_status($status);
            $this->save();
            return true;
        }

        public function add_order_note(string $note): int
        {
            return (int) wp_insert_comment([
                'comment_post_ID' => $this->get_id(),
                'comment_type' => 'order_note',
                'comment_content' => $note,
                'comment_approved' => 1,
            ]);
        }
    }

    function wc_get_order(int $id): WC_Order|false
    {
        global $wpdb;
        $row = $wpdb->get_row($wpdb->prepare("SELECT * FROM {$wpdb->prefix}wc_orders WHERE id = %d", $id), ARRAY_A);
        return $row === null ? false : new WC_Order($row);
    }

    /** @param array<string, string> $billing */
    function stand_in_create_order(array $billing, string $total = '12.5'): WC_Order
    {
        global $wpdb;
        $wpdb->insert("{$wpdb->prefix}wc_orders", [
            'status' => 'pending',
            'currency' => 'USD',
            'total' => $total,
            'first_name' => $billing['first_name'] ?? '',
            'phone' => $billing['phone'] ?? '',
            'country' => $billing['country'] ?? '',
        ]);
        return wc_get_order((int) $wpdb->insert_id);
    }

    /** @return array<string, string> */
    function wc_get_order_statuses(): array
    {
        return [
            'wc-pending' => 'Pending payment',
            'wc-processing' => 'Processing',
            'wc-on-hold' => 'On hold',
            'wc-completed' => 'Completed',
            'wc-cancelled' => 'Cancelled',
            'wc-refunded' => 'Refunded',
            'wc-failed' => 'Failed',
            'wc-checkout-draft' => 'Draft',
        ];
    }

    function wc_get_order_status_name(string $status): string
    {
        return wc_get_order_statuses()["wc-$status"] ?? $status;
    }

    function wc_get_price_decimals(): int
    {
        return 2;
    }

    // Action Scheduler.

    function as_enqueue_async_action(string $hook, array $args = [], string $group = ''): int
    {
        return as_schedule_single_action(0, $hook, $args, $group);
    }

    function as_schedule_single_action(int $timestamp, string $hook, array $args = [], string $group = ''): int
    {
        global $wpdb;
        $wpdb->insert("{$wpdb->prefix}actionscheduler_actions", [
            'hook' => $hook,
            'args' => wp_json_encode($args),
            'action_group' => $group,
            'status' => 'pending',
            'due' => $timestamp,
        ]);
        return (int) $wpdb->insert_id;
    }

    function as_unschedule_all_actions(string $hook, array $args = [], string $group = ''): void
    {
        global $wpdb;
        $found = ['hook' => $hook, 'args' => wp_json_encode($args), 'action_group' => $group, 'status' => 'pending'];
        $wpdb->update("{$wpdb->prefix}actionscheduler_actions", ['status' => 'canceled'], $found);
    }

    /** Runs the pending actions that are due by a moment, each claimed first, and returns how many there were. */
    function stand_in_run_queue(int $until): int
    {
        global $wpdb;
        $table = "{$wpdb->prefix}actionscheduler_actions";
        $ran = 0;
        $due = $wpdb->get_results($wpdb->prepare("SELECT * FROM $table WHERE status = 'pending' AND due <= %d ORDER BY id", $until));
        foreach ($due as $action) {
            $claim = ['id' => $action->id, 'status' => 'pending'];
            if ($wpdb->update($table, ['status' => 'in-progress'], $claim) !== 1) {
                continue;
            }
            $ran++;
            try {
                do_action_ref_array($action->hook, json_decode($action->args, true));
                $ended = 'complete';
            } catch (\Throwable $error) {
                $ended = 'failed';
                error_log((string) $error);
            }
            $wpdb->update($table, ['status' => $ended], ['id' => $action->id]);
        }
        return $ran;
    }

    add_action('plugins_loaded', static fn () => WC(), 0);
    add_action('init', static fn () => do_action('before_woocommerce_init'), 0);

    register_activation_hook(__FILE__, static function (): void {
        global $wpdb;
        foreach ([
            'wc_orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, status VARCHAR(20), currency VARCHAR(10), total VARCHAR(20),'
                . ' first_name TEXT, phone TEXT, country VARCHAR(2)) AUTO_INCREMENT = 1042',
            'wc_orders_meta (order_id BIGINT, meta_key VARCHAR(100), meta_value LONGTEXT, PRIMARY KEY (order_id, meta_key))',
            'actionscheduler_actions (id BIGINT AUTO_INCREMENT PRIMARY KEY, hook VARCHAR(191), args VARCHAR(191),'
                . ' action_group VARCHAR(191), status VARCHAR(20), due BIGINT)',
        ] as $table) {
            $wpdb->query("CREATE TABLE IF NOT EXISTS {$wpdb->prefix}$table");
        }
        get_role('administrator')->add_cap('manage_woocommerce');
    });

    // The settings pages.

    final class WC_Admin_Settings
    {
        /** @var list<string> */
        public static array $errors = [];
        /** @var list<string> */
        public static array $messages = [];

        public static function add_error(string $text): void
        {
            self::$errors[] = $text;
        }

        public static function add_message(string $text): void
        {
            self::$messages[] = $text;
        }

        /** @return array{string, string} the name of an option, and the key in it */
        private static function split(string $id): array
        {
            return preg_match('/^(.+)\[(.+)\]$/', $id, $parts) ? [$parts[1], $parts[2]] : [$id, ''];
        }

        /** @param list<array<string, mixed>> $fields */
        public static function output_fields(array $fields): void
        {
            foreach ($fields as $field) {
                [$name, $key] = self::split($field['id']);
                $stored = get_option($name, null);
                $value = ($key === '' ? $stored : $stored[$key] ?? null) ?? $field['default'] ?? '';
                $label = esc_html($field['title'] ?? '');
                $description = wp_kses_post($field['desc'] ?? '');
                $id = esc_attr($field['id']);
                $attributes = '';
                foreach ($field['custom_attributes'] ?? [] as $attribute => $given) {
                    $attributes .= ' ' . esc_attr($attribute) . '="' . esc_attr($given) . '"';
                }
                echo match ($field['type']) {
                    'title' => "<h2>$label</h2>$description<table>",
                    'sectionend' => '</table>',
                    'url' => "<tr><th><label for='$id'>$label</label></th><td><input type='url' name='$id' id='$id' value='"
                        . esc_attr($value) . "'></td></tr>",
                    'checkbox' => "<tr><th>$label</th><td><label><input type='checkbox' name='$id' value='1'"
                        . checked($value, 'yes', false) . "> $description</label></td></tr>",
                    'textarea' => "<tr><th><label for='$id'>$label</label></th><td><textarea name='$id' id='$id'$attributes>"
                        . esc_textarea($value) . '</textarea></td></tr>',
                    default => '',
                };
                if (!in_array($field['type'], ['title', 'sectionend', 'url', 'checkbox', 'textarea'], true)) {
                    do_action("woocommerce_admin_field_{$field['type']}", $field);
                }
            }
        }

        /** @param list<array<string, mixed>> $fields */
        public static function save_fields(array $fields): void
        {
            $updates = [];
            foreach ($fields as $field) {
                if (in_array($field['type'], ['title', 'sectionend'], true)) {
                    continue;
                }
                [$name, $key] = self::split($field['id']);
                $posted = $key === '' ? $_POST[$name] ?? null : $_POST[$name][$key] ?? null;
                $raw = $posted === null ? null : wp_unslash($posted);
                $value = match ($field['type']) {
                    'checkbox' => $raw === '1' ? 'yes' : 'no',
                    'textarea' => wp_kses_post(trim((string) $raw)),
                    default => sanitize_text_field((string) $raw),
                };
                $value = apply_filters("woocommerce_admin_settings_sanitize_option_$name", $value, $field, $raw);
                if ($value === null) {
                    continue;
                }
                if ($key === '') {
                    $updates[$name] = $value;
                } else {
                    $updates[$name] ??= (array) get_option($name, []);
                    $updates[$name][$key] = $value;
                }
                $autoload[$name] = $field['autoload'] ?? true;
            }
            foreach ($updates as $name => $value) {
                update_option($name, $value, $autoload[$name] ? 'yes' : 'no');
            }
        }
    }

    abstract class WC_Settings_Page
    {
        protected $id = '';
        protected $label = '';

        public function __construct()
        {
            add_action("woocommerce_settings_{$this->id}", [$this, 'output']);
            add_action("woocommerce_settings_save_{$this->id}", [$this, 'save']);
        }

        public function output()
        {
            WC_Admin_Settings::output_fields($this->get_settings_for_default_section());
        }

        public function save()
        {
            WC_Admin_Settings::save_fields($this->get_settings_for_default_section());
        }
    }

    add_action('admin_menu', static function (): void {
        $tab = sanitize_title(wp_unslash($_GET['tab'] ?? ''));
        $page = add_menu_page('WooCommerce', 'WooCommerce', 'manage_woocommerce', 'wc-settings', static function () use ($tab): void {
            foreach ([...WC_Admin_Settings::$errors, ...WC_Admin_Settings::$messages] as $text) {
                echo '<p class="told">' . esc_html($text) . '</p>';
            }
            echo '<form method="post">';
            do_action("woocommerce_settings_$tab");
            wp_nonce_field('woocommerce-settings');
            echo '<button>Save</button></form>';
        });
        add_action("load-$page", static function () use ($tab): void {
            apply_filters('woocommerce_get_settings_pages', []);
            if ($_SERVER['REQUEST_METHOD'] === 'POST') {
                check_admin_referer('woocommerce-settings');
                do_action("woocommerce_settings_save_$tab");
            }
        });
    });

    // The checkout: the classic form and the block.

    add_action('template_redirect', static function (): void {
        if (($_GET['wc-ajax'] ?? '') !== 'checkout') {
            return;
        }
        $data = wp_unslash($_POST);
        $errors = new WP_Error();
        do_action('woocommerce_after_checkout_validation', $data, $errors);
        if ($errors->has_errors()) {
            wp_send_json(['result' => 'failure', 'messages' => $errors->get_error_messages()]);
        }
        $order = stand_in_create_order([
            'first_name' => $data['billing_first_name'],
            'phone' => $data['billing_phone'],
            'country' => $data['billing_country'],
        ]);
        // As a payment by card does.
        $order->update_status('processing');
        wp_send_json(['result' => 'success', 'order_id' => $order->get_id()]);
    });

    add_action('rest_api_init', static function (): void {
        register_rest_route('wc/store/v1', '/checkout', [
            'methods' => 'POST, PUT',
            'permission_callback' => '__return_true',
            'callback' => static function (WP_REST_Request $request): WP_REST_Response {
                $order = stand_in_create_order($request['billing_address']);
                try {
                    do_action('woocommerce_store_api_checkout_update_order_from_request', $order, $request);
                } catch (RouteException $error) {
                    $told = ['code' => $error->getErrorCode(), 'message' => $error->getMessage()];
                    return new WP_REST_Response($told, $error->getCode());
                }
                if ($request->get_method() === 'POST') {
                    $order->update_status('processing');
                }
                return new WP_REST_Response(['order_id' => $order->get_id(), 'status' => $order->get_status()]);
            },
        ]);
    });
}
