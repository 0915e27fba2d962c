// Runs before the first paint, so that the page does not flash in the other theme.
"use strict";

(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("recall-theme");
  } catch {
    // Storage may be forbidden: the choice then lasts as long as the page.
  }

  function apply() {
    const isDark = chosen ? chosen === "dark" : dark.matches;
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    document.getElementById("theme")?.setAttribute("aria-pressed", String(isDark));
    document.dispatchEvent(new Event("recall-theme"));
  }

  apply();
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("recall-theme", chosen);
      } catch {
        // See above.
      }
      apply();
    });
  });
})();
