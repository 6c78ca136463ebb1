// Shows new messages without a reload: fetches the page again and replaces its handsets.
"use strict";

const PAUSE_MS = 1000;
const live = document.getElementById("live");
let shown = "";

async function refresh() {
  const answer = await fetch(location.pathname, { cache: "no-cache" });
  if (!answer.ok) {
    throw new Error(`status ${answer.status}`);
  }
  const tag = answer.headers.get("ETag") || "";
  if (tag === shown && tag !== "") {
    return;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const here = document.getElementById("handsets");
  const fresh = page.getElementById("handsets");
  if (here.innerHTML !== fresh.innerHTML) {
    const typed = new Map();
    for (const form of here.querySelectorAll("form")) {
      typed.set(form.elements.from.value, [form.elements.text, form.contains(document.activeElement)]);
    }
    // Where a link inside has the focus, it keeps it.
    const focused = here.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    here.replaceWith(document.adoptNode(fresh));
    if (focused !== null) {
      const again = [...fresh.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
      again?.focus({ preventScroll: true });
    }
    // So does a reply that is being written, with its text.
    for (const form of fresh.querySelectorAll("form")) {
      const [before, hadFocus] = typed.get(form.elements.from.value) || [];
      if (before !== undefined) {
        form.elements.text.replaceWith(before);
        if (hadFocus) {
          before.focus({ preventScroll: true });
        }
      }
    }
  }
  shown = tag;
}

async function keepFresh() {
  if (!document.hidden) {
    try {
      await refresh();
      live.textContent = live.dataset.fresh;
    } catch {
      live.textContent = live.dataset.lost;
    }
  }
  setTimeout(keepFresh, PAUSE_MS);
}

keepFresh();
