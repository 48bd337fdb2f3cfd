"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const stored = (value) => {
    try {
      if (value) localStorage.setItem("pairgrad-theme", value);
      return localStorage.getItem("pairgrad-theme");
    } catch {
      return null; // a page from a file may not be allowed to store anything
    }
  };

  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  if (stored()) root.dataset.theme = stored();
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    stored(root.dataset.theme);
  });

  for (const group of all(".chosen")) {
    const buttons = all("button", group), choices = all(".choice", group);
    const choose = (chosen) => {
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
      choices.forEach((choice, i) => choice.classList.toggle("away", i !== chosen));
    };
    buttons.forEach((button, i) => button.addEventListener("click", () => choose(i)));
    choose(0);
  }

  const download = document.getElementById("download");
  download.addEventListener("click", () => {
    const text = JSON.stringify(JSON.parse(document.getElementById("data").textContent), null, 2);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text + "\n"], { type: "application/json" }));
    link.download = download.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
  });
})();
