// What goes on now? Asks every few seconds while somebody looks, for ten minutes at most.
(function () {
  "use strict";

  var EVERY_MS = 5000;
  var ANSWER_MS = 15000;
  var ALL_MS = 600000;

  var note = document.querySelector("[data-note]");
  var shown = document.getElementById("now");
  var begun = Date.now();
  var timer = null;
  var asking = false;
  var over = false;

  function end(text) {
    over = true;
    note.textContent = text;
  }

  // Only what differs is replaced: nothing else moves, loses the focus or is read out again.
  function take(text) {
    var fresh = new DOMParser().parseFromString(text, "text/html").getElementById("now");
    if (!fresh) {
      end("You may have been signed out. Load the page again.");
      return;
    }
    fresh.querySelectorAll("[data-live]").forEach(function (now) {
      var then = shown.querySelector('[data-live="' + now.getAttribute("data-live") + '"]');
      if (then && then.innerHTML !== now.innerHTML) {
        then.replaceChildren.apply(then, Array.from(now.childNodes));
      }
    });
  }

  function ask() {
    var stop = new AbortController();
    var patience = setTimeout(function () {
      stop.abort();
    }, ANSWER_MS);
    asking = true;
    fetch(note.getAttribute("data-note"), { redirect: "manual", credentials: "same-origin", signal: stop.signal })
      .then(function (response) {
        if (response.type === "opaqueredirect" || response.status === 404) {
          end("You may have been signed out. Load the page again.");
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
        plan();
      });
  }

  function plan() {
    clearTimeout(timer);
    if (over || asking || document.hidden) {
      return;
    }
    if (Date.now() - begun > ALL_MS) {
      end("This page no longer updates by itself. Load it again.");
      return;
    }
    timer = setTimeout(ask, EVERY_MS);
  }

  if (!note || !shown || !window.fetch || !window.AbortController) {
    return;
  }
  note.textContent = "Updates by itself.";
  document.addEventListener("visibilitychange", plan);
  plan();
})();
