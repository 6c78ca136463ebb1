// Shows what a message costs while it is typed, whom it reaches and whether it can be sent; also on the page for files.
//
// Segments are counted here, at once. Everything else comes from the server, as parts of the page, after a rest in
// typing: an element with `data-live` is filled with the part of the same name, one with `data-units` shows what it
// costs, in ten-thousandths of a dollar for one segment. No syntax newer than ES2019.
(function () {
  "use strict";

  const REST_MS = 500;
  const SPOKEN_MS = 1500;
  const ANSWER_MS = 10000;

  const form = document.querySelector("form[data-check]");
  const find = (id) => document.getElementById(id);
  const message = find("message");
  const recipients = find("recipients");
  const segmentsMax = Number(form.dataset.segmentsMax);
  let segments = 1;

  function group(number) {
    return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
  }

  // Writes an amount as the server does.
  function usd(units) {
    // A part of a cent counts whole.
    const cents = Math.ceil(units / 100);
    return "US$" + group(Math.floor(cents / 100)) + "." + String(cents % 100).padStart(2, "0");
  }

  // The page says `{n} segment|{n} segments`.
  function count(words, number) {
    const forms = words.split("|");
    return forms[number === 1 ? 0 : 1].replace("{n}", group(number));
  }

  function show(id, shown) {
    const element = find(id);
    if (element) {
      element.hidden = !shown;
    }
  }

  function showSize() {
    const size = window.Tumira.measure(message.value);
    segments = size.segments;
    const over = segments > segmentsMax;
    find("segments").textContent = count(form.dataset.segments, segments);
    find("segments").classList.toggle("over", over);
    find("encoding").textContent = size.encoding;
    find("left").textContent = over ? form.dataset.over : count(form.dataset.left, size.left);
    show("long", over);
    if (find("preview")) {
      find("preview").textContent = message.value || form.dataset.empty;
    }
    showCost();
  }

  function showCost() {
    document.querySelectorAll("[data-units]").forEach((element) => {
      element.textContent = usd(Number(element.dataset.units) * segments);
    });
    const total = document.querySelector("[data-balance]");
    if (total === null) {
      return;
    }
    const missing = Number(total.dataset.units) * segments - Number(total.dataset.balance);
    const least = Number(form.dataset.topUpMin);
    const amount = Math.max(Math.ceil(missing / 100) / 100, least).toFixed(2);
    find("missing").textContent = usd(missing);
    // Only for who may top up.
    find("top-up")?.setAttribute("href", form.dataset.topUp + amount);
    show("short", missing > 0);
  }

  // What a screen reader says, after a rest: one sentence for all that has changed.
  let speaking = 0;
  function speakSoon() {
    clearTimeout(speaking);
    speaking = setTimeout(() => {
      const parts = Array.from(document.querySelectorAll("[data-spoken]"), (one) => one.innerText.trim());
      find("spoken").textContent = parts.filter(Boolean).join(". ");
    }, SPOKEN_MS);
  }

  // Only what differs is replaced: nothing else moves, loses the focus or is read out again.
  function take(text) {
    new DOMParser()
      .parseFromString(text, "text/html")
      .querySelectorAll("[data-live]")
      .forEach((now) => {
        const then = form.querySelector('[data-live="' + now.dataset.live + '"]');
        if (then && then.innerHTML !== now.innerHTML) {
          then.replaceChildren(...now.childNodes);
        }
      });
    showCost();
    speakSoon();
  }

  // One question at a time; the answer about a text that has changed is not shown.
  let resting = 0;
  let asking = false;

  function askSoon() {
    clearTimeout(resting);
    resting = setTimeout(ask, REST_MS);
  }

  function typed() {
    const values = { recipients: recipients ? recipients.value : "", message: message.value };
    const asked = new URLSearchParams(Object.assign({ kind: form.dataset.kind }, values));
    form.querySelectorAll("[name=list]:checked").forEach((one) => asked.append("list", one.value));
    return asked.toString();
  }

  function ask() {
    if (asking) {
      return;
    }
    asking = true;
    const asked = typed();
    const stop = new AbortController();
    const limit = setTimeout(() => stop.abort(), ANSWER_MS);
    fetch(form.dataset.check, {
      method: "POST",
      body: new URLSearchParams(asked),
      redirect: "manual",
      signal: stop.signal,
    })
      .then((response) => {
        show("signed-out", response.type === "opaqueredirect");
        return response.ok ? response.text() : "";
      })
      .catch(() => "")
      .then((text) => {
        clearTimeout(limit);
        asking = false;
        if (typed() !== asked) {
          askSoon();
        } else if (text) {
          take(text);
        }
      });
  }

  // Typed in, so that the browser can undo it; where it does not let us type, set.
  function rewrite(text) {
    message.focus();
    message.select();
    if (!document.execCommand("insertText", false, text) || message.value !== text) {
      message.value = text;
    }
    changed();
  }

  function changed() {
    showSize();
    askSoon();
    speakSoon();
  }

  message.addEventListener("input", changed);
  if (recipients) {
    recipients.addEventListener("input", askSoon);
  }
  form.querySelectorAll("[name=list]").forEach((one) => one.addEventListener("change", askSoon));
  form.addEventListener("click", (event) => {
    const button = event.target.closest("[data-spelling]");
    if (button) {
      rewrite(button.dataset.spelling);
    }
  });
  document.querySelectorAll(".waits").forEach((element) => element.classList.remove("waits"));
  showSize();
  // A browser that comes back fills in what was typed.
  window.addEventListener("pageshow", () => {
    if ([message, recipients].some((one) => one && one.value !== one.defaultValue)) {
      changed();
    }
  });
})();
