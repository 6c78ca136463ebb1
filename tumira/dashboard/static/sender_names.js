// Shows a sender name on the handset while it is typed, and what the server says of it after a rest in typing.
// No syntax newer than ES2019.
(function () {
  "use strict";

  const REST_MS = 250;
  const form = document.querySelector("form[data-check]");
  const name = document.getElementById("name");
  const shown = document.getElementById("shown");
  let resting = 0;

  function take(asked, text) {
    const now = new DOMParser().parseFromString(text, "text/html").querySelector("[data-live]");
    const then = form.querySelector("[data-live]");
    // The answer about a name that has changed is not shown.
    if (now && name.value === asked && then.innerHTML !== now.innerHTML) {
      then.replaceChildren(...now.childNodes);
    }
  }

  function ask() {
    const asked = name.value;
    fetch(form.dataset.check, {
      method: "POST",
      body: new URLSearchParams({ name: asked }),
      redirect: "manual",
    })
      .then((response) => (response.ok ? response.text() : ""))
      .catch(() => "")
      .then((text) => take(asked, text));
  }

  name.addEventListener("input", () => {
    shown.textContent = name.value || form.dataset.empty;
    clearTimeout(resting);
    resting = setTimeout(ask, REST_MS);
  });
})();
