// How far is the batch now? Asks again and again, ever more slowly, until it is completed or ten minutes have passed.
(function () {
  "use strict";

  var FIRST_MS = 1000;
  var SECOND_MS = 2000;
  var GROWTH = 1.5;
  var LONGEST_MS = 10000;
  var ANSWER_MS = 15000;
  var ALL_MS = 600000;

  var note = document.querySelector("[data-note]");
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
      reload.href = location.href;
      reload.textContent = link;
      // A link to the page that is shown, with its `#messages`, would only scroll.
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

  // Only what differs is replaced: nothing else moves, loses the focus or is read out again.
  function take(text) {
    var fresh = new DOMParser().parseFromString(text, "text/html").getElementById("progress");
    if (!fresh) {
      end("You may have been signed out.", "Load the page again");
      return;
    }
    fresh.querySelectorAll("[data-live]").forEach(function (now) {
      var then = shown.querySelector('[data-live="' + now.getAttribute("data-live") + '"]');
      if (then && then.innerHTML !== now.innerHTML) {
        then.replaceChildren.apply(then, Array.from(now.childNodes));
      }
    });
    if (fresh.getAttribute("data-done") === "yes") {
      end("Completed.", "Show the messages as they are now");
      showEnds();
    }
  }

  // Once all of them have ended, the messages of this page are shown as they are, each in its place.
  function showEnds() {
    var rows = document.querySelector("[data-messages]");
    if (!rows) {
      return;
    }
    fetch(location.href, { redirect: "manual", credentials: "same-origin" })
      .then(function (response) {
        return response.ok ? response.text() : "";
      })
      .then(function (text) {
        var now = new DOMParser().parseFromString(text, "text/html").querySelector("[data-messages]");
        if (now && now.rows.length === rows.rows.length) {
          rows.replaceChildren.apply(rows, Array.from(now.rows));
          say("Completed.");
        }
      })
      .catch(function () {
        // The link is still there.
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
        wait = wait === FIRST_MS ? SECOND_MS : Math.min(wait * GROWTH, LONGEST_MS);
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

  if (!note || !shown || !window.fetch || !window.AbortController) {
    return;
  }
  say("The progress updates by itself.");
  document.addEventListener("visibilitychange", plan);
  plan();
})();
