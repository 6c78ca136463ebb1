<?php

declare(strict_types=1);

namespace Tumira\WooCommerce;

/** The texts of order statuses: which places they have, and how these are filled. */
final class Text
{
    /** The places that a text can have, with examples. */
    public const PLACES = ['order' => '1042', 'name' => 'Rudo', 'total' => 'USD 12.50', 'shop' => 'Mbare Market'];
    private const NAME_MAX = 30;

    /**
     * Fills the places of a text, each once: what was filled in is not read again.
     *
     * @param array<string, string> $values
     */
    public static function fill(string $text, array $values): string
    {
        $places = [];
        foreach ($values as $name => $value) {
            $places['{' . $name . '}'] = $value;
        }
        // An empty name leaves two blanks, or one before a comma.
        $filled = (string) preg_replace(['/ +([,.!])/', '/ {2,}/'], ['$1', ' '], strtr($text, $places));
        return trim($filled);
    }

    /** @return list<string> the places of a text that would not be filled */
    public static function unknownPlaces(string $text): array
    {
        preg_match_all('/\{([^{}]*)\}/', $text, $found);
        return array_values(array_diff(array_unique($found[1]), array_keys(self::PLACES)));
    }

    /**
     * Returns a name without what names do not have. A customer writes it, and could otherwise send links and numbers
     * to strangers in the name of the shop.
     */
    public static function plainName(string $name): string
    {
        $letters = (string) preg_replace(["/[^\p{L}\p{M} '’-]+/u", '/\s+/u'], ['', ' '], $name);
        // Not by mb_strlen: PHP may lack its extension.
        return preg_match_all('/./us', $letters) > self::NAME_MAX ? '' : trim($letters);
    }

    /** Returns the name of the send: the same for every try, and another for each order, status and shop. */
    public static function reference(string $shop, int $order, string $status): string
    {
        return "wc-$shop-$order-$status";
    }

    /** @return array{int, string}|null the order and status that a reference of this shop names */
    public static function readReference(string $shop, string $reference): ?array
    {
        $found = preg_match('/^wc-([0-9a-f]+)-([0-9]{1,18})-(.+)$/D', $reference, $parts) && $parts[1] === $shop;
        return $found ? [(int) $parts[2], $parts[3]] : null;
    }

    /** Returns what may be shown of a secret: everything up to its last underscore. */
    public static function mask(string $secret): string
    {
        $end = strrpos($secret, '_');
        return ($end === false ? '' : substr($secret, 0, $end + 1)) . '…';
    }
}
