// Keeps a page up to date: the balance at its top, and a part of it that shows progress.
//
// The element with `data-balance-now` is the balance, and says where to ask for it. The element with `data-ask` says
// where to ask for the part, and shows what we say. The element with `data-part` is the part: `open`, `ended`, or
// `reload` once there is something to do that the page does not show yet.
(function () {
  "use strict";

  var GROWTH = 1.5;
  var ANSWER_MS = 15000;
  var ALL_MS = 600000;

  var texts = document.currentScript.dataset;
  if (!window.fetch || !window.AbortController) {
    return;
  }

  // Asks again and again, ever more slowly, for ten minutes, and not while the page is hidden. Who was away, in the app
  // in which they paid, wants to know at once. `take` gets the text of an answer, null once we are signed out; it
  // returns false to end. `say` is told true when this begins and false when the ten minutes are over.
  function poll(path, first, longest, take, say) {
    var begun = 0;
    var wait = first;
    var timer = null;
    var asking = false;
    var over = false;

    function ask() {
      var stop = new AbortController();
      var patience = setTimeout(function () {
        stop.abort();
      }, ANSWER_MS);
      asking = true;
      fetch(path, { redirect: "manual", credentials: "same-origin", signal: stop.signal })
        .then(function (response) {
          // A redirect leads to the sign-in.
          if (response.type === "opaqueredirect" || response.status === 404) {
            over = true;
            take(null);
            return null;
          }
          // A server that is busy or restarting is asked again later.
          return response.ok ? response.text() : null;
        })
        .then(function (text) {
          over = over || (text !== null && take(text) === false);
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
        say(false);
        return;
      }
      timer = setTimeout(ask, wait);
    }

    function begin() {
      begun = Date.now();
      wait = first;
      say(true);
    }

    document.addEventListener("visibilitychange", function () {
      clearTimeout(timer);
      if (!over && !asking && !document.hidden) {
        begin();
        ask();
      }
    });
    begin();
    plan();
  }

  function read(text) {
    return new DOMParser().parseFromString(text, "text/html");
  }

  function followBalance(shown) {
    var tooLow = document.querySelector("[data-too-low]");
    poll(
      shown.getAttribute("data-balance-now"),
      10000,
      60000,
      function (text) {
        var now = text === null ? {} : JSON.parse(text);
        if (text !== null && shown.textContent !== now.balance) {
          shown.textContent = now.balance;
        }
        if (text !== null && tooLow && !now.is_too_low) {
          tooLow.textContent = tooLow.getAttribute("data-too-low");
        }
      },
      function () {}
    );
  }

  function followPart(note, shown) {
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

    // Only what differs is replaced: nothing else moves, loses the focus or is read out again.
    function take(text) {
      var fresh = text === null ? null : read(text).querySelector("[data-part]");
      if (!fresh) {
        say(texts.signedOut, texts.reload);
        return false;
      }
      var state = fresh.getAttribute("data-part");
      if (state === "reload" && shown.getAttribute("data-part") !== "reload") {
        // There is a button to press now, and it must not push away what somebody is about to press.
        location.reload();
        return false;
      }
      fresh.querySelectorAll("[data-live]").forEach(function (now) {
        var then = shown.querySelector('[data-live="' + now.getAttribute("data-live") + '"]');
        if (then && then.innerHTML !== now.innerHTML) {
          then.replaceChildren.apply(then, Array.from(now.childNodes));
        }
      });
      var balance = document.querySelector("[data-balance-now]");
      if (balance && fresh.hasAttribute("data-balance")) {
        balance.textContent = fresh.getAttribute("data-balance");
      }
      if (state === "ended") {
        say(note.getAttribute("data-ended") || "");
        showRows();
      }
      return state !== "ended";
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

    poll(
      note.getAttribute("data-ask"),
      Number(note.getAttribute("data-first")) || 1000,
      Number(note.getAttribute("data-longest")) || 5000,
      take,
      function (goes) {
        say(goes ? texts.updating : texts.stopped, goes ? "" : texts.reload);
      }
    );
  }

  var balance = document.querySelector("[data-balance-now]");
  var note = document.querySelector("[data-ask]");
  var part = document.querySelector("[data-part]");
  if (balance) {
    followBalance(balance);
  }
  if (note && part) {
    followPart(note, part);
  }
})();
