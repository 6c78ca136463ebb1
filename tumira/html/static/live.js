// Progress: asks for a part of the page again and again, ever more slowly, until that says that nothing more will come,
// or ten minutes have passed.
//
// The element with `data-ask` says where to ask, and shows what we say. The element with `data-part` is the part: `open`,
// `ended`, or `reload` once there is something to do that the page does not show yet.
(function () {
  "use strict";

  var FIRST_MS = 1000;
  var LONGEST_MS = 5000;
  var GROWTH = 1.5;
  var ANSWER_MS = 15000;
  var ALL_MS = 600000;

  var texts = document.currentScript.dataset;
  var note = document.querySelector("[data-ask]");
  var shown = document.querySelector("[data-part]");
  if (!note || !shown || !window.fetch || !window.AbortController) {
    return;
  }
  var first = Number(note.getAttribute("data-first")) || FIRST_MS;
  var longest = Number(note.getAttribute("data-longest")) || LONGEST_MS;
  var begun = Date.now();
  var wait = first;
  var timer = null;
  var asking = false;
  var over = false;

  function say(text, link) {
    note.textContent = text + " ";
    if (link) {
      var reload = document.createElement("a");
      reload.href = location.href;
      reload.textContent = link;
      // A link to the page that is shown, with a `#` in it, would only scroll.
      reload.addEventListener("click", function (event) {
        event.preventDefault();
        location.reload();
      });
      note.appendChild(reload);
    }
  }

  function end(text, link) {
    over = true;
    say(text, link);
  }

  function signedOut() {
    end(texts.signedOut, texts.reload);
  }

  function read(text) {
    return new DOMParser().parseFromString(text, "text/html");
  }

  // Only what differs is replaced: nothing else moves, loses the focus or is read out again.
  function take(text) {
    var fresh = read(text).querySelector("[data-part]");
    if (!fresh) {
      signedOut();
      return;
    }
    var state = fresh.getAttribute("data-part");
    if (state === "reload" && shown.getAttribute("data-part") !== "reload") {
      // There is a button to press now, and it must not push away what somebody is about to press.
      over = true;
      location.reload();
      return;
    }
    fresh.querySelectorAll("[data-live]").forEach(function (now) {
      var then = shown.querySelector('[data-live="' + now.getAttribute("data-live") + '"]');
      if (then && then.innerHTML !== now.innerHTML) {
        then.replaceChildren.apply(then, Array.from(now.childNodes));
      }
    });
    var balance = document.querySelector(".bar .balance strong");
    if (balance && fresh.hasAttribute("data-balance")) {
      balance.textContent = fresh.getAttribute("data-balance");
    }
    if (state === "ended") {
      end(note.getAttribute("data-ended") || "");
      showRows();
    }
  }

  // A table that goes with the part is shown as it is at the end, each row in its place.
  function showRows() {
    var rows = document.querySelector("[data-rows]");
    if (!rows) {
      return;
    }
    fetch(location.href, { redirect: "manual", credentials: "same-origin" })
      .then(function (response) {
        return response.ok ? response.text() : "";
      })
      .then(function (text) {
        var now = read(text).querySelector("[data-rows]");
        if (!now || now.rows.length !== rows.rows.length) {
          throw new Error("other rows");
        }
        rows.replaceChildren.apply(rows, Array.from(now.rows));
      })
      .catch(function () {
        say(note.getAttribute("data-ended") || "", texts.reload);
      });
  }

  function ask() {
    var stop = new AbortController();
    var patience = setTimeout(function () {
      stop.abort();
    }, ANSWER_MS);
    asking = true;
    fetch(note.getAttribute("data-ask"), { redirect: "manual", credentials: "same-origin", signal: stop.signal })
      .then(function (response) {
        if (response.type === "opaqueredirect" || response.status === 404) {
          signedOut();
          return null;
        }
        // A server that is busy or restarting is asked again later.
        return response.ok ? response.text().then(take) : null;
      })
      .catch(function () {
        // The line may come back.
      })
      .then(function () {
        clearTimeout(patience);
        asking = false;
        wait = Math.min(wait * GROWTH, longest);
        plan();
      });
  }

  function plan() {
    clearTimeout(timer);
    if (over || asking || document.hidden) {
      return;
    }
    if (Date.now() - begun > ALL_MS) {
      end(texts.stopped, texts.reload);
      return;
    }
    timer = setTimeout(ask, wait);
  }

  // Who was away, in the app in which they paid, wants to know at once.
  document.addEventListener("visibilitychange", function () {
    wait = first;
    plan();
  });
  say(texts.updating);
  plan();
})();
