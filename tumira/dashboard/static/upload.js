// Takes a file that is dropped, and says at once when it is too large.
(function () {
  "use strict";

  var file = document.getElementById("file");
  var drop = document.getElementById("drop");
  var fault = document.getElementById("file-fault");
  var checking = document.getElementById("checking");
  var button = file.form.querySelector(".actions > button:not([type])");

  function look() {
    var most = Number(file.getAttribute("data-bytes-max"));
    var large = file.files.length > 0 && file.files[0].size > most;
    var words = large ? file.form.getAttribute("data-too-large") : "";
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
      fault.textContent = file.form.getAttribute("data-several");
    }
  });
  file.form.addEventListener("submit", function (event) {
    // A text that is sent for review is not checked.
    if (event.submitter && event.submitter.hasAttribute("formaction")) {
      return;
    }
    button.disabled = true;
    checking.textContent = file.form.getAttribute("data-checking");
  });
  // Who comes back finds the form as it was left.
  window.addEventListener("pageshow", function () {
    button.disabled = false;
    checking.textContent = "";
  });
})();
