// How is a secret copied with one touch? Where the browser cannot do it, the button stays away.
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
          told.textContent = "Copied.";
        },
        function () {
          told.textContent = "The browser did not let us copy it: select it and copy it yourself.";
        }
      );
    });
  });
})();
