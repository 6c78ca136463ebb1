// How many segments does a text take, and how is it written in the GSM-7 alphabet, while somebody types?
//
// The same as tumira/pricing/segments.py and spelling.py, with the tables that `alphabet()` there gives: tests run both
// on the same texts. The server decides what a message costs; this only shows it. No syntax newer than ES2019.
(function (root) {
  "use strict";

  const SEPTETS = { single: 160, part: 153 };
  const UNITS = { single: 70, part: 67 };
  const ESCAPE = "\x1b";
  const DIGIT = /^[0-9]/;
  const WORD = /^[0-9A-Za-z]/;
  const BLANK_BEFORE = ["", " ", "\n", "\r"];
  const NOT_CHARACTERS = /^[\ud800-\udfff\ue000-\uf8ff\u{f0000}-\u{10ffff}]/u;

  // What is made of an alphabet once, so that a keystroke need not.
  const prepared = new WeakMap();

  function prepare(alphabet) {
    if (!prepared.has(alphabet)) {
      const beginning = (inside) => new RegExp("^[" + inside + "]", "u");
      const pictures = alphabet.pictographs;
      const marks = alphabet.marks;
      prepared.set(alphabet, {
        gsm7: new Set(alphabet.basic + alphabet.extension),
        extension: new Set(alphabet.extension),
        spellings: new Map(Object.entries(alphabet.spellings)),
        afterDigit: new Map(Object.entries(alphabet.after_digit)),
        names: new Map(Object.entries(alphabet.names)),
        mark: beginning(marks),
        joiner: beginning(alphabet.joiners),
        invisible: beginning(alphabet.invisible),
        pictograph: beginning(pictures),
        decomposed: beginning(alphabet.decomposed),
        piece: new RegExp(
          "[" + pictures + "][" + pictures + marks + alphabet.joiners + "]*" +
            "|[^" + marks + "][" + marks + "]*|[" + marks + "]+",
          "gu"
        ),
      });
    }
    return prepared.get(alphabet);
  }

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

  function fillUnits(text) {
    // A low surrogate belongs to the unit before it.
    return fill(text.length, UNITS, (cut) => (text.charCodeAt(cut) & 0xfc00) === 0xdc00);
  }

  function measure(text, alphabet) {
    const tables = prepare(alphabet);
    const characters = Array.from(text);
    const forced = Array.from(new Set(characters.filter((character) => !tables.gsm7.has(character))));
    const gsm7 = forced.length === 0;
    // One character for each septet.
    const escaped = gsm7
      ? characters.map((character) => (tables.extension.has(character) ? ESCAPE + character : character)).join("")
      : "";
    const filled = gsm7 ? fill(escaped.length, SEPTETS, (cut) => escaped[cut - 1] === ESCAPE) : fillUnits(text);
    return {
      segments: filled.segments,
      encoding: gsm7 ? "GSM-7" : "UCS-2",
      characters: gsm7 ? escaped.length : text.length,
      left: filled.left,
      forced: forced,
    };
  }

  function first(text) {
    return String.fromCodePoint(text.codePointAt(0));
  }

  function last(written) {
    return written.length === 0 ? "" : written[written.length - 1].slice(-1);
  }

  // Takes a character apart and keeps of its accents those that the alphabet has.
  function decompose(character, tables) {
    if (!tables.decomposed.test(character)) {
      return null;
    }
    let spelt = "";
    for (const letter of character.normalize("NFKD")) {
      if (tables.mark.test(letter)) {
        const accented = (spelt.slice(-1) + letter).normalize("NFC");
        spelt = tables.gsm7.has(accented) ? spelt.slice(0, -1) + accented : spelt;
      } else if (tables.gsm7.has(letter)) {
        spelt += letter;
      } else if (tables.spellings.has(letter)) {
        spelt += tables.spellings.get(letter);
      } else {
        return null;
      }
    }
    return spelt;
  }

  // Returns what stands for a piece, or null if it has to stay.
  function spell(piece, before, lastWritten, stayed, tables) {
    if (tables.gsm7.has(piece)) {
      return piece;
    }
    if (tables.pictograph.test(piece) || tables.invisible.test(piece) || tables.mark.test(piece)) {
      return "";
    }
    if (tables.joiner.test(piece)) {
      return stayed ? null : "";
    }
    // Composed first: a stroke through an equals sign must not be dropped like an accent.
    const base = first(piece.normalize("NFC"));
    if (tables.gsm7.has(base)) {
      return base;
    }
    // Of several in a row only the first stands behind the number.
    if (tables.afterDigit.has(base) && !tables.afterDigit.has(before) && DIGIT.test(lastWritten)) {
      return tables.afterDigit.get(base);
    }
    return tables.spellings.has(base) ? tables.spellings.get(base) : decompose(base, tables);
  }

  // Writes on and says so; where a picture was, one blank parts two words and none stands at a line's end.
  function write(written, spelt, gap) {
    const end = last(written);
    if (gap && spelt === " " && BLANK_BEFORE.includes(end)) {
      return false;
    }
    if (gap && (spelt === "\n" || spelt === "\r") && written[written.length - 1] === " ") {
      written.pop();
    } else if (gap && WORD.test(spelt) && WORD.test(end)) {
      written.push(" ");
    }
    written.push(spelt);
    return true;
  }

  function respell(text, alphabet) {
    const tables = prepare(alphabet);
    const replaced = new Map();
    const left = new Set();
    const written = [];
    let before = "";
    let stayed = false;
    let gap = false;
    for (const piece of text.match(tables.piece) || []) {
      const spelt = spell(piece, before, last(written), stayed, tables);
      stayed = spelt === null;
      if (stayed) {
        left.add(piece);
      } else if (spelt !== piece && !replaced.has(piece)) {
        replaced.set(piece, spelt);
      }
      if (spelt !== "") {
        gap = !write(written, stayed ? piece : spelt, gap);
      } else if (tables.pictograph.test(piece)) {
        gap = true;
      }
      before = first(piece);
    }
    if (gap && written[written.length - 1] === " ") {
      written.pop();
    }
    return { text: written.join(""), replaced: Array.from(replaced), left: Array.from(left) };
  }

  // Returns how to show a character to people: itself, or words if they would not see it.
  function name(character, alphabet) {
    const tables = prepare(alphabet);
    if (character === "") {
      return "nothing";
    }
    if (first(character) !== character) {
      return character;
    }
    let words = tables.names.get(character);
    if (words === undefined && tables.invisible.test(character)) {
      words = "invisible character";
    } else if (words === undefined && tables.mark.test(character)) {
      words = "accent";
    } else if (words === undefined && NOT_CHARACTERS.test(character)) {
      words = "unknown character";
    }
    const code = character.codePointAt(0).toString(16).toUpperCase();
    return words === undefined ? character : words + " (U+" + code.padStart(4, "0") + ")";
  }

  root.Tumira = root.Tumira || {};
  root.Tumira.segments = { measure: measure, respell: respell, name: name };
})(typeof self === "undefined" ? this : self);
