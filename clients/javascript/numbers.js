// Phone numbers as people write them, in international form.

import { InvalidNumberError } from "./errors.js";

const CODES = { ZW: "263", ZA: "27" };
// How numbers of these countries look. The service decides which it sends to.
const KNOWN = /^\+(?:2637[0-9]{8}|27[1-9][0-9]{8})$/;
const OURS = /^\+(?:263|27)/;
const NUMBER = /^\+[1-9][0-9]{6,14}$/;
// Blanks and punctuation; numbers copied from a contact list contain direction marks.
const SEPARATORS =
  /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200f\u2010-\u2015\u2028-\u202f\u205f\u2060\u2066-\u2069\u3000\ufeff().\-/]+/g;

/** Returns a number in international form: `077 120 0001` in `ZW` is `+263771200001`. */
export function e164(text, country) {
  for (const number of readings(String(text).replace(SEPARATORS, ""), country)) {
    if (KNOWN.test(number) || (NUMBER.test(number) && !OURS.test(number))) return number;
  }
  throw new InvalidNumberError(`This is not a mobile number: ${JSON.stringify(String(text).slice(0, 40))}`);
}

/** Returns the number in international form, or the text unchanged for the service to reject. */
export function complete(text, country) {
  try {
    return e164(text, country);
  } catch (error) {
    if (error instanceof InvalidNumberError) return text;
    throw error;
  }
}

/** Returns what a number can mean, the likeliest first. */
function readings(plain, country) {
  if (country !== undefined && country !== null && !Object.hasOwn(CODES, country)) {
    throw new TypeError(`The country is ZW or ZA, not ${country}.`);
  }
  if (plain.startsWith("00")) plain = `+${plain.slice(2)}`;
  // The zero that is dialled within the country is often left in: +263 (0)77 120 0001.
  if (plain.startsWith("+")) return [plain, plain.replace(/^(\+(?:263|27))0(?=[0-9])/, "$1")];
  if (!country) return plain.startsWith("0") ? [] : readings(`+${plain}`);
  const code = CODES[country];
  if (plain.startsWith("0")) return [`+${code}${plain.slice(1)}`];
  if (plain.startsWith(code)) return readings(`+${plain}`);
  return [`+${code}${plain}`, ...readings(`+${plain}`)];
}
