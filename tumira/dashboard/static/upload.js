// Takes a file that is dropped, says at once when it is too large, and shows how far a file was sent.
(function () {
  "use strict";

  var FIRST_MS = 300;
  var GROWTH = 1.3;
  var LONGEST_MS = 5000;
  var ANSWER_MS = 15000;
  var ALL_MS = 600000;

  function form() {
    var file = document.getElementById("file");
    var drop = document.getElementById("drop");
    var fault = document.getElementById("file-fault");
    var checking = document.getElementById("checking");
    var button = file.form.querySelector("button");

    function look() {
      var most = Number(file.getAttribute("data-bytes-max"));
      var large = file.files.length > 0 && file.files[0].size > most;
      var words = large ? "The file is larger than " + most / 1048576 + " MB; split it, and send the parts." : "";
      file.setCustomValidity(words);
      fault.textContent = words;
      drop.classList.toggle("faulty", large);
    }

    file.addEventListener("change", look);
    ["dragenter", "dragover"].forEach(function (name) {
      drop.addEventListener(name, function (event) {
        event.preventDefault();
        drop.classList.add("over");
      });
    });
    ["dragleave", "drop"].forEach(function (name) {
      drop.addEventListener(name, function () {
        drop.classList.remove("over");
      });
    });
    drop.addEventListener("drop", function (event) {
      event.preventDefault();
      if (event.dataTransfer.files.length === 1) {
        file.files = event.dataTransfer.files;
        look();
      } else {
        fault.textContent = "Choose one file; these are several.";
      }
    });
    file.form.addEventListener("submit", function () {
      button.disabled = true;
      checking.textContent = "Checking every row …";
    });
    // Who comes back finds the form as it was left.
    window.addEventListener("pageshow", function () {
      button.disabled = false;
      checking.textContent = "";
    });
  }

  function progress(live) {
    var shown = document.getElementById("progress");
    var begun = Date.now();
    var wait = FIRST_MS;
    var over = false;

    function end(text) {
      over = true;
      live.textContent = text;
    }

    // Only what differs is replaced: nothing else moves, loses the focus or is read out again.
    function take(text) {
      var fresh = new DOMParser().parseFromString(text, "text/html").getElementById("progress");
      if (!fresh) {
        end("You may have been signed out. Load the page again.");
        return;
      }
      if (fresh.getAttribute("data-state") === "stopped") {
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
      if (fresh.getAttribute("data-state") === "sent") {
        end("");
      }
    }

    function ask() {
      var stop = new AbortController();
      var patience = setTimeout(function () {
        stop.abort();
      }, ANSWER_MS);
      fetch(live.getAttribute("data-ask"), { redirect: "manual", credentials: "same-origin", signal: stop.signal })
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
          wait = Math.min(wait * GROWTH, LONGEST_MS);
          plan();
        });
    }

    function plan() {
      if (over) {
        return;
      }
      if (Date.now() - begun > ALL_MS) {
        end("This page no longer updates by itself. Load it again.");
        return;
      }
      setTimeout(ask, wait);
    }

    live.textContent = "The progress updates by itself.";
    plan();
  }

  var live = document.getElementById("live");
  if (document.getElementById("file")) {
    form();
  } else if (live && window.fetch && window.AbortController) {
    progress(live);
  }
})();
