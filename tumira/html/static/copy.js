// Copies a text with one press. Where the browser cannot do it, the button stays hidden.
(function () {
  "use strict";

  if (!navigator.clipboard) {
    return;
  }
  document.querySelectorAll("[data-copies]").forEach(function (button) {
    var name = button.getAttribute("data-copies");
    var source = document.getElementById(name);
    var told = document.querySelector('[data-copied="' + name + '"]');
    button.hidden = false;
    button.addEventListener("click", function () {
      navigator.clipboard.writeText(source.textContent).then(
        function () {
          told.textContent = button.getAttribute("data-done") || "Copied";
        },
        function () {
          told.textContent = button.getAttribute("data-failed") || "Select the text and copy it.";
        }
      );
    });
  });
})();
