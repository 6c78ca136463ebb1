// Prints a paper. Where the browser cannot, the button stays hidden.
(function () {
  "use strict";

  var button = document.querySelector("[data-print]");
  if (!button || !window.print) {
    return;
  }
  button.hidden = false;
  button.addEventListener("click", function () {
    window.print();
  });
})();
