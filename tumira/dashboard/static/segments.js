// Counts the segments of a text while it is typed.
//
// The same as tumira/pricing/segments.py: tests run both on the same texts. The server decides what a message costs;
// this only shows it. No syntax newer than ES2019.
(function (root) {
  "use strict";

  const SEPTETS = { single: 160, part: 153 };
  const UNITS = { single: 70, part: 67 };
  const BASIC =
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?" +
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
  // Each takes two septets: an escape and a code.
  const EXTENSION = /[\f^{}\\[~\]|€]/g;
  const ESCAPE = "\x1b";
  const letters = new Set(BASIC + "\f^{}\\[~]|€");

  // Fills one part after the other; `divides` says whether a cut would go through a character.
  function fill(length, limits, divides) {
    if (length <= limits.single) {
      return { segments: 1, left: limits.single - length };
    }
    let segments = 1;
    let start = 0;
    while (length - start > limits.part) {
      const cut = start + limits.part;
      start = divides(cut) ? cut - 1 : cut;
      segments += 1;
    }
    return { segments: segments, left: limits.part - (length - start) };
  }

  root.Tumira = root.Tumira || {};
  root.Tumira.measure = function (text) {
    const gsm7 = Array.from(text).every((character) => letters.has(character));
    // One character for each septet.
    const counted = gsm7 ? text.replace(EXTENSION, ESCAPE + "$&") : text;
    const filled = gsm7
      ? fill(counted.length, SEPTETS, (cut) => counted[cut - 1] === ESCAPE)
      : // A low surrogate belongs to the unit before it.
        fill(counted.length, UNITS, (cut) => (counted.charCodeAt(cut) & 0xfc00) === 0xdc00);
    return { segments: filled.segments, encoding: gsm7 ? "GSM-7" : "UCS-2", left: filled.left };
  };
})(typeof self === "undefined" ? this : self);
