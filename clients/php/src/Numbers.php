<?php

declare(strict_types=1);

namespace Tumira;

/** Phone numbers as people write them, in international form. */
final class Numbers
{
    private const CODES = ['ZW' => '263', 'ZA' => '27'];
    // How numbers of these countries look. The service decides which it sends to.
    private const KNOWN = '/^\+(?:2637[0-9]{8}|27[1-9][0-9]{8})$/D';
    private const OURS = '/^\+(?:263|27)/';
    private const NUMBER = '/^\+[1-9][0-9]{6,14}$/D';
    // Blanks and punctuation; numbers copied from a contact list contain direction marks.
    private const SEPARATORS = '#[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200f}\x{2010}-\x{2015}\x{2028}-\x{202f}'
        . '\x{205f}\x{2060}\x{2066}-\x{2069}\x{3000}\x{feff}().\-/]+#u';

    /**
     * Returns a number in international form: `077 120 0001` in `ZW` is `+263771200001`.
     *
     * @throws InvalidNumberException
     */
    public static function e164(string $text, ?string $country = null): string
    {
        // Null if the text is not UTF-8.
        $plain = preg_replace(self::SEPARATORS, '', $text);
        foreach ($plain === null ? [] : self::readings($plain, $country) as $number) {
            $isForeign = preg_match(self::NUMBER, $number) && !preg_match(self::OURS, $number);
            if ($isForeign || preg_match(self::KNOWN, $number)) {
                return $number;
            }
        }
        throw new InvalidNumberException('This is not a mobile number: ' . substr($text, 0, 40));
    }

    /** Returns the number in international form, or the text unchanged for the service to reject. */
    public static function complete(string $text, ?string $country): string
    {
        try {
            return self::e164($text, $country);
        } catch (InvalidNumberException) {
            return $text;
        }
    }

    /** @return list<string> what a number can mean, the likeliest first */
    private static function readings(string $plain, ?string $country): array
    {
        if ($country !== null && !isset(self::CODES[$country])) {
            throw new \InvalidArgumentException("The country is ZW or ZA, not $country.");
        }
        if (str_starts_with($plain, '00')) {
            $plain = '+' . substr($plain, 2);
        }
        if (str_starts_with($plain, '+')) {
            // The zero that is dialled within the country is often left in: +263 (0)77 120 0001.
            return [$plain, (string) preg_replace('/^(\+(?:263|27))0(?=[0-9])/', '$1', $plain)];
        }
        if ($country === null) {
            return str_starts_with($plain, '0') ? [] : self::readings("+$plain", null);
        }
        $code = self::CODES[$country];
        if (str_starts_with($plain, '0')) {
            return ["+$code" . substr($plain, 1)];
        }
        if (str_starts_with($plain, $code)) {
            return self::readings("+$plain", null);
        }
        return ["+$code$plain", ...self::readings("+$plain", null)];
    }
}
