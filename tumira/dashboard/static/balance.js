// Keeps the balance at the top of a page up to date: asks ever more slowly for ten minutes, and not while the page is
// hidden. A page that is looked at again asks at once.
(function () {
  "use strict";

  var FIRST_MS = 10000;
  var LONGEST_MS = 60000;
  var GROWTH = 1.5;
  var ANSWER_MS = 15000;
  var ALL_MS = 600000;

  var shown = document.querySelector("[data-balance-now]");
  var tooLow = document.querySelector("[data-too-low]");
  if (!shown || !window.fetch || !window.AbortController) {
    return;
  }
  var begun = Date.now();
  var wait = FIRST_MS;
  var timer = null;
  var asking = false;
  var over = false;

  function take(now) {
    if (shown.textContent !== now.balance) {
      shown.textContent = now.balance;
    }
    if (tooLow && !now.is_too_low) {
      tooLow.textContent = tooLow.getAttribute("data-too-low");
    }
  }

  function ask() {
    var stop = new AbortController();
    var patience = setTimeout(function () {
      stop.abort();
    }, ANSWER_MS);
    asking = true;
    fetch(shown.getAttribute("data-balance-now"), { redirect: "manual", credentials: "same-origin", signal: stop.signal })
      .then(function (response) {
        // A redirect leads to the sign-in.
        over = response.type === "opaqueredirect" || response.status === 404;
        return response.ok ? response.json().then(take) : null;
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
    if (!over && !asking && !document.hidden && Date.now() - begun < ALL_MS) {
      timer = setTimeout(ask, wait);
    }
  }

  document.addEventListener("visibilitychange", function () {
    if (!document.hidden && !over && !asking) {
      begun = Date.now();
      wait = FIRST_MS;
      ask();
    } else {
      plan();
    }
  });
  plan();
})();
