// How far is a payment now? Asks again and again, ever more slowly, until it has ended or ten minutes have passed.
(function () {
  "use strict";

  var FIRST_MS = 1000;
  var GROWTH = 1.25;
  var LONGEST_MS = 5000;
  var ANSWER_MS = 15000;
  var ALL_MS = 600000;

  var note = document.getElementById("live");
  var shown = document.getElementById("progress");
  var begun = Date.now();
  var wait = FIRST_MS;
  var timer = null;
  var asking = false;
  var over = false;

  function say(text, link) {
    note.textContent = text + " ";
    if (link) {
      var reload = document.createElement("a");
      reload.href = location.pathname;
      reload.textContent = link;
      note.appendChild(reload);
    }
  }

  function end(text, link) {
    over = true;
    say(text, link);
  }

  // Only what differs is replaced: nothing else moves, loses the focus or is read out again.
  function take(text) {
    var fresh = new DOMParser().parseFromString(text, "text/html").getElementById("progress");
    if (!fresh) {
      end("You may have been signed out.", "Load the page again");
      return;
    }
    if (fresh.hasAttribute("data-anew") && !shown.hasAttribute("data-anew")) {
      // There is something to note and a button to press, which must not push anything away.
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
    if (fresh.getAttribute("data-open") !== "yes") {
      end("");
    }
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
          end("You may have been signed out.", "Load the page again");
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
        wait = Math.min(wait * GROWTH, LONGEST_MS);
        plan();
      });
  }

  function plan() {
    clearTimeout(timer);
    if (over || asking || document.hidden) {
      return;
    }
    if (Date.now() - begun > ALL_MS) {
      end("This page no longer updates by itself.", "Load it again");
      return;
    }
    timer = setTimeout(ask, wait);
  }

  // Who was away, in the app in which they paid, wants to know at once.
  function back() {
    wait = FIRST_MS;
    plan();
  }

  if (!note || !shown || !window.fetch || !window.AbortController) {
    return;
  }
  say("This page updates by itself.");
  document.addEventListener("visibilitychange", back);
  plan();
})();
