// Shows what an amount buys and which fields a choice needs, while somebody fills in a form. Texts come from the page.
(function () {
  "use strict";

  // Amounts are whole numbers of hundredths of a cent; a part of a cent is left out when one is shown.
  var UNIT = 10000;

  function read(text) {
    var parts = /^([0-9]{1,10})(?:\.([0-9]{1,4}))?$/.exec(text.trim());
    return parts ? Number(parts[1]) * UNIT + Number(((parts[2] || "") + "0000").slice(0, 4)) : null;
  }

  function grouped(number) {
    return String(number).replace(/\B(?=([0-9]{3})+$)/g, ",");
  }

  function write(amount) {
    return grouped(Math.floor(amount / UNIT)) + "." + String(amount % UNIT + UNIT).slice(1, 3);
  }

  function strong(text) {
    var element = document.createElement("strong");
    element.textContent = text;
    return element;
  }

  function buys(shown) {
    var field = document.getElementById(shown.getAttribute("data-buys"));
    var smallest = read(shown.getAttribute("data-smallest"));
    var largest = read(shown.getAttribute("data-largest"));
    var cells = Array.from(shown.querySelectorAll("[data-price]"));

    function show() {
      var amount = read(field.value);
      var isGood = amount !== null && amount >= smallest && amount <= largest && amount % 100 === 0;
      cells.forEach(function (cell) {
        var price = read(cell.getAttribute("data-price"));
        cell.textContent = isGood ? grouped(price ? Math.floor(amount / price) : 0) : "–";
      });
    }

    field.addEventListener("input", show);
    document.querySelectorAll("[data-fills] a").forEach(function (chip) {
      chip.addEventListener("click", function (event) {
        event.preventDefault();
        field.value = chip.getAttribute("data-value");
        show();
      });
    });
    show();
  }

  // What a voucher in rand comes to; the server rounds down in the same way.
  function worth(shown) {
    var field = document.getElementById(shown.getAttribute("data-worth"));
    var rate = shown.getAttribute("data-rate").split(".");
    var millionths = Number(rate[0]) * 1000000 + Number(((rate[1] || "") + "000000").slice(0, 6));
    var plain = Array.from(shown.childNodes);
    var words = shown.getAttribute("data-text").split("{amount}");

    function show() {
      var rand = read(field.value);
      if (rand === null) {
        shown.replaceChildren.apply(shown, plain);
        return;
      }
      var amount = Number((BigInt(rand) * BigInt(1000000)) / BigInt(millionths));
      shown.replaceChildren(words[0], strong("US$" + write(amount)), words[1]);
    }

    field.addEventListener("input", show);
    show();
  }

  // A choice says which fields it needs and which it can do without; those are put away.
  function choices() {
    var all = Array.from(document.querySelectorAll("input[type=radio]"));
    var names = {};
    all.forEach(function (one) {
      (one.getAttribute("data-without") || "").split(" ").filter(Boolean).forEach(function (name) {
        names[name] = true;
      });
    });

    function show() {
      var chosen = all.find(function (one) {
        return one.checked;
      });
      var without = chosen ? (chosen.getAttribute("data-without") || "").split(" ") : [];
      Object.keys(names).forEach(function (name) {
        var field = document.getElementById(name);
        // A field that no choice needs is not on the page.
        if (field) {
          (field.closest("[data-part]") || field.closest(".field")).hidden = without.indexOf(name) >= 0;
        }
      });
    }

    all.forEach(function (one) {
      one.addEventListener("change", show);
    });
    show();
    // Who comes back finds the choice as it was left.
    window.addEventListener("pageshow", show);
  }

  function once(form) {
    var button = form.querySelector("button");
    form.addEventListener("submit", function () {
      button.disabled = true;
    });
    window.addEventListener("pageshow", function () {
      button.disabled = false;
    });
  }

  document.querySelectorAll("[data-buys]").forEach(buys);
  if (window.BigInt) {
    document.querySelectorAll("[data-worth]").forEach(worth);
  }
  choices();
  document.querySelectorAll("[data-once]").forEach(once);
})();
