// The colours of the pages: the system's, or those chosen here, set before the first paint.
"use strict";
(() => {
  const KEY = "finishline-theme";
  const root = document.documentElement;
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark.matches);
  // A browser that keeps nothing for the page refuses even to be asked: the choice ends with it.
  const kept = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const keep = (theme) => {
    try {
      if (theme) localStorage.setItem(KEY, theme);
      else localStorage.removeItem(KEY);
    } catch {
      // Nothing is kept.
    }
  };
  const choose = (theme) => {
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  choose(kept());
  addEventListener("storage", (event) => {
    if (event.key === KEY) choose(event.newValue);
  });
  addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("button.theme");
    const say = () => button.setAttribute("aria-pressed", String(isDark()));
    button.hidden = false;
    say();
    systemIsDark.addEventListener("change", say);
    button.addEventListener("click", () => {
      const theme = isDark() ? "light" : "dark";
      // The system's own colours are no choice: the page follows when they change.
      const chosen = (theme === "dark") === systemIsDark.matches ? null : theme;
      keep(chosen);
      choose(chosen);
      say();
    });
  });
})();
