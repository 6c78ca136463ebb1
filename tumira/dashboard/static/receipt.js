// How is a receipt put on paper with one touch? Where the browser cannot do it, the button stays away.
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
