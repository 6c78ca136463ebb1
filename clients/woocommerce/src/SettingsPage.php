<?php

declare(strict_types=1);

namespace Tumira\WooCommerce;

use Tumira\TumiraException;

/** WooCommerce → Settings → Text messages. WooCommerce shows the fields, checks the nonce and stores the options. */
final class SettingsPage extends \WC_Settings_Page
{
    private const SECRET = 'tumira_secret';
    // Nothing is sent to it: texts are only priced.
    private const EXAMPLE_NUMBER = '+263771200001';

    public function __construct()
    {
        $this->id = 'tumira';
        $this->label = __('Text messages', 'tumira-for-woocommerce');
        add_action('woocommerce_admin_field_' . self::SECRET, [$this, 'showSecret']);
        foreach ([Settings::API_KEY, Settings::WEBHOOK_SECRET] as $option) {
            add_filter("woocommerce_admin_settings_sanitize_option_$option", [$this, 'readSecret'], 10, 3);
        }
        add_filter('woocommerce_admin_settings_sanitize_option_' . Settings::URL, [$this, 'readUrl'], 10, 3);
        add_filter('woocommerce_admin_settings_sanitize_option_' . Settings::TEXTS, [$this, 'readText'], 10, 3);
        parent::__construct();
    }

    /** @return list<array<string, mixed>> */
    protected function get_settings_for_default_section(): array
    {
        return [
            [
                'type' => 'title',
                'id' => 'tumira_service',
                'title' => __('Your account', 'tumira-for-woocommerce'),
                'desc' => __('Texts are paid from the balance of your Tumira account.', 'tumira-for-woocommerce'),
            ],
            [
                'type' => 'url',
                'id' => Settings::URL,
                'title' => __('Address of the service', 'tumira-for-woocommerce'),
                'placeholder' => 'https://sms.example.com',
                'autoload' => false,
            ],
            [
                'type' => self::SECRET,
                'id' => Settings::API_KEY,
                'title' => __('API key', 'tumira-for-woocommerce'),
                'desc' => __('Create one in the dashboard, with the scope messages:send.', 'tumira-for-woocommerce'),
                'autoload' => false,
            ],
            [
                'type' => self::SECRET,
                'id' => Settings::WEBHOOK_SECRET,
                'title' => __('Webhook secret', 'tumira-for-woocommerce'),
                'desc' => sprintf(
                    /* translators: %s: an address */
                    __('Optional: notes on the order whether a text was delivered. Add this endpoint in the dashboard: %s', 'tumira-for-woocommerce'),
                    rest_url(implode('', Events::ROUTE)),
                ),
                'autoload' => false,
            ],
            [
                'type' => 'checkbox',
                'id' => Settings::CHECK_PHONES,
                'title' => __('Phone numbers', 'tumira-for-woocommerce'),
                'desc' => __('Check the numbers of customers in Zimbabwe and South Africa at checkout', 'tumira-for-woocommerce'),
                'default' => 'yes',
            ],
            ['type' => 'sectionend', 'id' => 'tumira_service'],
            [
                'type' => 'title',
                'id' => 'tumira_statuses',
                'title' => __('Texts', 'tumira-for-woocommerce'),
                'desc' => sprintf(
                    /* translators: %s: the list of places */
                    __('Sent once for each order, when it gets the status. Places: %s. Marketing is refused: say what happened to the order, and nothing else.', 'tumira-for-woocommerce'),
                    '{' . implode('}, {', array_keys(Text::PLACES)) . '}',
                ),
            ],
            ...array_merge(...array_map([self::class, 'fields'], array_keys(Settings::statuses()), Settings::statuses())),
            ['type' => 'sectionend', 'id' => 'tumira_statuses'],
        ];
    }

    /** @return list<array<string, mixed>> */
    private static function fields(string $status, string $name): array
    {
        return [
            [
                'type' => 'checkbox',
                'id' => Settings::ENABLED . "[$status]",
                'title' => $name,
                'desc' => __('Send this text', 'tumira-for-woocommerce'),
                'default' => 'no',
            ],
            [
                'type' => 'textarea',
                'id' => Settings::TEXTS . "[$status]",
                'title' => '',
                'default' => Settings::defaultText($status),
                'css' => 'width: 400px; height: 75px;',
                /* translators: %s: an order status */
                'custom_attributes' => ['aria-label' => sprintf(__('Text for "%s"', 'tumira-for-woocommerce'), $name)],
            ],
        ];
    }

    public function save(): void
    {
        if (!current_user_can('manage_woocommerce')) {
            return;
        }
        parent::save();
        $this->checkTexts();
    }

    /** Prices the texts that are sent, so that a wrong key or a refused text is seen here and not on an order. */
    private function checkTexts(): void
    {
        foreach (Settings::statuses() as $status => $name) {
            $text = Settings::enabledText($status);
            if ($text === null) {
                continue;
            }
            try {
                $price = Settings::client()->price(self::EXAMPLE_NUMBER, Text::fill($text, Text::PLACES));
            } catch (TumiraException | \InvalidArgumentException $error) {
                \WC_Admin_Settings::add_error("$name: {$error->getMessage()}");
                continue;
            }
            \WC_Admin_Settings::add_message(sprintf(
                /* translators: 1: an order status, 2: a number, 3: a price */
                __('%1$s: %2$d segments, %3$s for each order to Zimbabwe', 'tumira-for-woocommerce'),
                $name,
                $price->segments,
                "$price->currency $price->totalCost",
            ));
        }
    }

    /**
     * Shows an empty field, and of what is stored only the part that is not secret.
     *
     * @param array<string, mixed> $field
     */
    public function showSecret(array $field): void
    {
        $stored = Settings::secret($field['id']);
        $isFixed = defined(strtoupper($field['id']));
        printf(
            '<tr><th scope="row" class="titledesc"><label for="%1$s">%2$s</label></th><td class="forminp">'
                . '<input type="password" id="%1$s" name="%1$s" value="" placeholder="%3$s" autocomplete="off" class="regular-text"%4$s>'
                . '<p class="description">%5$s</p></td></tr>',
            esc_attr($field['id']),
            esc_html($field['title']),
            esc_attr($stored === '' ? '' : Text::mask($stored)),
            disabled($isFixed, true, false),
            esc_html($isFixed ? __('Set in wp-config.php.', 'tumira-for-woocommerce') : $field['desc']),
        );
    }

    /**
     * Returns null to keep what is stored: the field is empty unless a new secret is entered.
     *
     * @param mixed $value
     * @param array<string, mixed> $field
     * @param mixed $raw
     */
    public function readSecret($value, array $field, $raw): ?string
    {
        $secret = trim((string) $raw);
        if ($secret === '' || preg_match('/^[!-~]{1,200}$/D', $secret)) {
            return $secret === '' ? null : $secret;
        }
        /* translators: %s: the name of a field */
        \WC_Admin_Settings::add_error(sprintf(__('%s: copy it without blanks.', 'tumira-for-woocommerce'), $field['title']));
        return null;
    }

    /**
     * @param mixed $value
     * @param array<string, mixed> $field
     * @param mixed $raw
     */
    public function readUrl($value, array $field, $raw): ?string
    {
        $url = trim((string) $raw);
        // The key travels with every call.
        $host = (string) wp_parse_url($url, PHP_URL_HOST);
        $isSafe = str_starts_with($url, 'https://') || in_array($host, ['127.0.0.1', 'localhost'], true);
        if ($url === '' || ($isSafe && $host !== '')) {
            return esc_url_raw($url, ['https', 'http']);
        }
        \WC_Admin_Settings::add_error(__('Enter the address of the service, beginning with https://.', 'tumira-for-woocommerce'));
        return null;
    }

    /**
     * Takes the text as it was typed: WooCommerce would write & as &amp;.
     *
     * @param mixed $value
     * @param array<string, mixed> $field
     * @param mixed $raw
     */
    public function readText($value, array $field, $raw): ?string
    {
        $text = trim(sanitize_textarea_field((string) $raw));
        $unknown = Text::unknownPlaces($text);
        if ($unknown === []) {
            return $text;
        }
        \WC_Admin_Settings::add_error(sprintf(
            /* translators: %s: a place, such as {order} */
            __('There is no place {%s}. The text was not changed.', 'tumira-for-woocommerce'),
            $unknown[0],
        ));
        return null;
    }
}
