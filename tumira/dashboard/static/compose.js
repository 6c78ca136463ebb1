// What does a message cost that is being typed, whom does it reach, and may it be sent?
//
// Recipients are read as by tumira/sending/compose.py, and tests run both on the same texts. The server decides; this
// only shows. Amounts are whole ten-thousandths of a dollar. No syntax newer than ES2019.
(function (root) {
  "use strict";

  const ENDS = /[,;\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
  const BLANKS = /[\t \x1f\xa0\u1680\u2000-\u200f\u202a-\u202f\u205f\u2060\u2066-\u2069\u3000\ufeff]+/;
  const PUNCTUATION = /[().\-\u2010-\u2015/]/g;
  const BEGINNING = /^\+?[0-9]*$/;
  const DIGITS = /^[0-9]*$/;
  const NUMBER_MIN = 7;
  const DIGITS_MAX = 15;
  const NUMBER_MAX = 17;
  const INVALID = "INVALID_NUMBER";
  const UNSUPPORTED = "UNSUPPORTED_DESTINATION";

  // Makes of the page's data what finds a number's country: by calling code, and then by length.
  function prepare(data) {
    const destinations = data.destinations;
    const codes = Array.from(new Set(destinations.map((one) => one.calling_code)));
    codes.sort((one, other) => other.length - one.length);
    const offers = new Map();
    const mobile = new Map();
    destinations.forEach((one) => {
      if (one.mobile !== null) {
        mobile.set(one.calling_code, new RegExp("^\\+" + one.calling_code + "(?:" + one.mobile + ")"));
      }
      if (one.price === null) {
        return;
      }
      const lengths = offers.get(one.calling_code) || new Map();
      offers.set(one.calling_code, lengths);
      one.national_lengths.forEach((length) => {
        const whole = 1 + one.calling_code.length + length;
        if (!lengths.has(whole)) {
          lengths.set(whole, one);
        }
      });
    });
    return {
      destinations: destinations,
      shape: new RegExp("^\\+(?=[1-9][0-9]{6,14}$)(" + codes.concat("").join("|") + ")"),
      offers: offers,
      mobile: mobile,
      home: destinations.find((one) => one.country === data.country),
      explanations: data.explanations,
    };
  }

  function isMobile(number, code, tariff) {
    return !tariff.mobile.has(code) || tariff.mobile.get(code).test(number);
  }

  // Returns the country that a number is sent to, or the code that says why it is not.
  function place(number, tariff) {
    const shaped = tariff.shape.exec(number);
    if (shaped === null) {
      return INVALID;
    }
    const lengths = tariff.offers.get(shaped[1]);
    if (lengths === undefined) {
      return UNSUPPORTED;
    }
    return (isMobile(number, shaped[1], tariff) && lengths.get(number.length)) || INVALID;
  }

  function isReached(number, tariff) {
    return typeof place(number, tariff) !== "string";
  }

  function plain(written) {
    return written.replace(PUNCTUATION, "");
  }

  // Lists what a number may mean, the likeliest first.
  function listReadings(text, tariff, home) {
    if (text.startsWith("+")) {
      const shaped = tariff.shape.exec(text);
      return shaped !== null && text[shaped[0].length] === "0"
        ? [text, shaped[0] + text.slice(shaped[0].length + 1)]
        : [text];
    }
    if (home === undefined) {
      return text.startsWith("0") ? [text] : listReadings("+" + text, tariff);
    }
    const code = "+" + home.calling_code;
    if (text.startsWith("0")) {
      return [code + text.slice(1), code + text];
    }
    const full = listReadings("+" + text, tariff);
    return text.startsWith(home.calling_code) ? full : [code + text].concat(full);
  }

  // Writes a number in international form; one without a country code is one of the account's country.
  function complete(written, tariff) {
    const text = written.startsWith("00") ? "+" + written.slice(2) : written;
    if (!BEGINNING.test(text)) {
      return text;
    }
    const readings = listReadings(text, tariff, tariff.home);
    const shaped = tariff.shape.exec(readings[0]);
    return readings.find((one) => isReached(one, tariff)) || (shaped !== null && shaped[1] ? readings[0] : text);
  }

  // Returns how many pieces make up the recipient that begins here.
  function span(pieces, start, tariff) {
    let joined = plain(pieces[start]);
    if (!BEGINNING.test(joined) || isReached(complete(joined, tariff), tariff)) {
      return 1;
    }
    let number = 0;
    let glued = 1;
    let short = true;
    const most = Math.min(NUMBER_MAX, pieces.length - start);
    for (let count = 2; count <= most; count += 1) {
      const piece = plain(pieces[start + count - 1]);
      joined += piece;
      if (!DIGITS.test(piece) || joined.length > NUMBER_MAX) {
        break;
      }
      if (isReached(complete(joined, tariff), tariff)) {
        number = count;
      }
      short = short && piece.length < NUMBER_MIN;
      glued = short ? count : glued;
    }
    return number || glued;
  }

  function readRecipients(text, tariff) {
    const entries = [];
    text.split(ENDS).forEach((line) => {
      const pieces = line.split(BLANKS).filter(Boolean);
      let start = 0;
      while (start < pieces.length) {
        const end = start + span(pieces, start, tariff);
        const taken = pieces.slice(start, end);
        entries.push({ written: taken.join(" "), number: complete(plain(taken.join("")), tariff) });
        start = end;
      }
    });
    return entries;
  }

  function faultOfShape(number) {
    const digits = number.replace(/^\+/, "");
    if (digits === "" || !DIGITS.test(digits)) {
      return "no_number";
    }
    if (digits.length < NUMBER_MIN) {
      return "short";
    }
    return digits.length > DIGITS_MAX ? "long" : "no_code";
  }

  function explain(number, code, tariff) {
    const words = tariff.explanations;
    if (code === UNSUPPORTED) {
      return words.unsupported;
    }
    const shaped = tariff.shape.exec(number);
    if (shaped === null) {
      return words[faultOfShape(number)];
    }
    const there = tariff.destinations.filter((one) => one.calling_code === shaped[1]);
    const lengths = [].concat(...there.map((one) => one.national_lengths));
    const given = number.length - shaped[0].length;
    const isLandline = lengths.includes(given) && !isMobile(number, shaped[1], tariff);
    const values = { country: there[0].name, code: shaped[0], lengths: lengths.join(words.or), given: given };
    return words[isLandline ? "landline" : "length"].replace(/\{(\w+)\}/g, (_, name) => values[name]);
  }

  // Sorts recipients by country, each number once; `rejected` pairs what was written with why it is left out.
  function sort(entries, tariff) {
    const seen = new Set();
    const counts = new Map();
    const rejected = [];
    entries.forEach((entry) => {
      if (seen.has(entry.number)) {
        return;
      }
      seen.add(entry.number);
      const found = place(entry.number, tariff);
      if (typeof found === "string") {
        rejected.push([entry.written, explain(entry.number, found, tariff)]);
      } else {
        counts.set(found.country, (counts.get(found.country) || 0) + 1);
      }
    });
    return { given: entries.length, counts: counts, rejected: rejected };
  }

  function group(number) {
    return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
  }

  // Writes an amount as the server does: whole cents where that is exact, else all four decimals.
  function usd(units) {
    const decimals = String(units % 10000).padStart(4, "0").replace(/00$/, "");
    return "US$" + group(Math.floor(units / 10000)) + "." + decimals;
  }

  function plural(number, one, many) {
    return group(number) + " " + (number === 1 ? one : many || one + "s");
  }

  root.Tumira = root.Tumira || {};
  root.Tumira.compose = { prepare: prepare, read: readRecipients, sort: sort, usd: usd };

  const source = typeof document === "undefined" ? null : document.getElementById("compose-data");
  if (source === null) {
    return;
  }

  const REST_MS = 700;
  const SPOKEN_MS = 1500;
  const ANSWER_MS = 10000;
  const SHOWN_MAX = 20;
  const CHARACTERS_MAX = 8;

  const data = JSON.parse(source.textContent);
  const tariff = prepare(data);
  const prices = new Map(data.destinations.map((one) => [one.country, one.price || 0]));
  const segments = root.Tumira.segments;
  const find = (id) => document.getElementById(id);
  const message = find("message");
  const recipients = find("recipients");
  let sorted = sort([], tariff);
  let size = segments.measure("", data.alphabet);

  // Makes an element; strings become text, never markup.
  function make(name, className, ...children) {
    const element = document.createElement(name);
    if (className) {
      element.className = className;
    }
    element.append(...children);
    return element;
  }

  function fill(id, ...children) {
    const element = find(id);
    element.textContent = "";
    element.append(...children);
  }

  function totalFor(segmentCount) {
    const costs = Array.from(sorted.counts, ([country, count]) => count * prices.get(country));
    return segmentCount * costs.reduce((sum, cost) => sum + cost, 0);
  }

  function showCost() {
    document.querySelectorAll("#prices tr[data-country]").forEach((row) => {
      const country = row.dataset.country;
      const count = sorted.counts.get(country) || 0;
      row.cells[1].textContent = group(count);
      row.cells[2].textContent = usd(count * (prices.get(country) || 0) * size.segments);
    });
    find("total").textContent = usd(totalFor(size.segments));
  }

  function showRejected() {
    const parts = [];
    const over = sorted.given > data.limits.recipients;
    const rejected = over ? [] : sorted.rejected;
    const most = group(data.limits.recipients);
    find("over").textContent = over ? group(sorted.given) + " numbers; at most " + most + " at once" : "";
    if (rejected.length > 0) {
      parts.push(make("h3", "", plural(rejected.length, "number cannot", "numbers cannot") + " be sent to"));
      const items = rejected
        .slice(0, SHOWN_MAX)
        .map((one) => make("li", "", make("span", "mono", one[0]), " " + one[1]));
      parts.push(make("ul", "", ...items));
      if (rejected.length > SHOWN_MAX) {
        parts.push(make("p", "quiet", "And " + group(rejected.length - SHOWN_MAX) + " more."));
      }
    }
    fill("rejected", ...parts);
  }

  function showSize() {
    const over = size.segments > data.limits.segments;
    const count = make("strong", over ? "over" : "", plural(size.segments, "segment"));
    const left = over ? "at most " + data.limits.segments : plural(size.left, "character") + " left";
    fill("size", count, make("span", "badge", size.encoding), make("span", "quiet", left));
  }

  function named(characters) {
    const names = characters.slice(0, CHARACTERS_MAX).map((one) => segments.name(one, data.alphabet));
    return names.join(" ") + (characters.length > CHARACTERS_MAX ? " …" : "");
  }

  function showSpelling() {
    if (size.forced.length === 0) {
      fill("spelling");
      return;
    }
    const forced = make("p", "", "These make a segment short: ", make("span", "mono", named(size.forced)));
    const respelt = segments.respell(message.value, data.alphabet);
    if (respelt.left.length > 0) {
      const words = "There is no plain spelling for ";
      const left = make("p", "quiet", words, make("span", "mono", named(respelt.left)));
      fill("spelling", make("h3", "", "Letters outside the plain alphabet"), forced, left);
      return;
    }
    const pairs = respelt.replaced
      .slice(0, CHARACTERS_MAX)
      .map((one) => segments.name(one[0], data.alphabet) + " → " + segments.name(one[1], data.alphabet));
    const button = make("button", "plain small", "Use GSM-7 spelling");
    button.type = "button";
    button.addEventListener("click", () => rewrite(respelt.text));
    fill(
      "spelling",
      make("h3", "", "Letters outside the plain alphabet"),
      forced,
      make("p", "quiet", "Spelt plainly: " + pairs.join(", ")),
      make("p", "actions", button, make("span", "", saving(respelt.text)))
    );
  }

  function saving(text) {
    const fewer = size.segments - segments.measure(text, data.alphabet).segments;
    if (fewer <= 0) {
      return "saves no segment yet, but leaves more room";
    }
    const units = totalFor(fewer);
    const money = units > 0 ? ", " + usd(units) + " for these recipients" : "";
    return "saves " + plural(fewer, "segment") + money;
  }

  // Typed in, so that the browser can undo it; where it does not let us type, set.
  function rewrite(text) {
    message.focus();
    message.select();
    if (!document.execCommand("insertText", false, text) || message.value !== text) {
      message.value = text;
    }
    showMessage();
  }

  // What a screen reader says, after a rest: one sentence for all that has changed.
  let speaking = 0;
  function speakSoon() {
    clearTimeout(speaking);
    speaking = setTimeout(() => {
      const words = ["Segments: " + size.segments, "encoding " + size.encoding.replace("-", " ")];
      const accepted = Array.from(sorted.counts.values()).reduce((sum, count) => sum + count, 0);
      words.push("room for " + size.left, "recipients: " + accepted);
      if (sorted.rejected.length > 0) {
        words.push("left out: " + sorted.rejected.length);
      }
      words.push("total " + usd(totalFor(size.segments)).replace("US$", "") + " US dollars");
      find("spoken").textContent = words.join(", ") + ".";
    }, SPOKEN_MS);
  }

  // The verdict: asked for after a rest, one at a time; the answer for a text that has changed is not shown.
  let resting = 0;
  let asking = false;
  let judged = null;

  function judgeSoon() {
    clearTimeout(resting);
    resting = setTimeout(ask, REST_MS);
  }

  function isWorthJudging(text) {
    return text.length >= data.limits.judged_min && size.segments <= data.limits.segments;
  }

  function ask() {
    const text = message.value;
    if (!isWorthJudging(text)) {
      judged = null;
      showVerdict(null);
      return;
    }
    if (asking || text === judged) {
      return;
    }
    asking = true;
    judged = text;
    const stop = new AbortController();
    const limit = setTimeout(() => stop.abort(), ANSWER_MS);
    fetch(data.verdict, {
      method: "POST",
      body: new URLSearchParams({ message: text }),
      redirect: "manual",
      signal: stop.signal,
    })
      .then((response) => {
        if (response.type === "opaqueredirect") {
          return { signed_out: true };
        }
        return response.ok ? response.json() : null;
      })
      .catch(() => null)
      .then((verdict) => {
        clearTimeout(limit);
        asking = false;
        if (message.value === text) {
          showVerdict(verdict);
        } else {
          judgeSoon();
        }
      });
  }

  function link(href, words) {
    const anchor = make("a", "", words);
    anchor.href = href;
    return anchor;
  }

  function showVerdict(verdict) {
    if (verdict === null) {
      const words = "No marketing: every text is checked before it is sent. ";
      fill("verdict", make("p", "quiet", words, link("/docs#marketing", "What may be sent")));
    } else if (verdict.signed_out) {
      const anchor = link("/dashboard/sign-in", "Sign in on another page");
      anchor.target = "_blank";
      const words = " before you press Send, or what you typed is lost.";
      fill("verdict", make("p", "notice warning", "You are signed out. ", anchor, words));
    } else if (!verdict.refused) {
      fill("verdict", make("p", "quiet", "The text was checked: it can be sent."));
    } else {
      showOffence(verdict);
    }
  }

  function showOffence(verdict) {
    const pieces = verdict.pieces.map((one) => (one[1] ? make("mark", "", one[0]) : one[0]));
    const parts = [make("h3", "", "Why it is refused"), make("p", "", verdict.message)];
    parts.push(make("blockquote", "text", ...pieces));
    if (verdict.drop.length > 0) {
      parts.push(make("p", "", "Without this it can be sent:"));
      parts.push(make("ul", "", ...verdict.drop.map((sentence) => make("li", "", "“" + sentence + "”"))));
    }
    parts.push(make("p", "", link("/docs#marketing", "What may be sent, and what is marketing")));
    fill("verdict", ...parts);
  }

  function showMessage() {
    size = segments.measure(message.value, data.alphabet);
    showSize();
    showCost();
    showSpelling();
    judgeSoon();
    speakSoon();
  }

  function showRecipients() {
    sorted = sort(readRecipients(recipients.value, tariff), tariff);
    showCost();
    showRejected();
    showSpelling();
    speakSoon();
  }

  message.addEventListener("input", showMessage);
  recipients.addEventListener("input", showRecipients);
  document.querySelectorAll(".waits").forEach((element) => element.classList.remove("waits"));
  showMessage();
  showRecipients();
  // Nobody asked for this to be said.
  clearTimeout(speaking);
})(typeof self === "undefined" ? this : self);
