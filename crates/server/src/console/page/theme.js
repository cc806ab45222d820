// Light or dark, before anything is painted: what was chosen here, else what the system says.
"use strict";

(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("plinth-theme");
  } catch {
    // A browser may keep nothing; then the choice lasts as long as the page.
  }
  const isDark = () => (chosen ? chosen === "dark" : system.matches);
  const apply = () => {
    if (chosen) root.dataset.theme = chosen;
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    }
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("plinth-theme", chosen);
      } catch {
        // As above.
      }
      apply();
    });
  });
})();
