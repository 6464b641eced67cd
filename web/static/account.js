// Key / leads to the search, a button copies a secret. Says who is signed in: see server/people/callers.py.
"use strict";
(() => {
  const MARK = "finishline_signed_in=";
  const mark = document.cookie.split("; ").find((cookie) => cookie.startsWith(MARK));
  const link = document.querySelector("a.sign-in:not([aria-current])");
  document.addEventListener("keydown", (event) => {
    const field = document.querySelector(".search input");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !field?.offsetParent) return;
    if (event.target.closest("input, select, textarea, [contenteditable]")) return;
    event.preventDefault();
    field.focus();
  });
  // A secret is copied by a button where the browser allows it.
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  }
  if (!mark) return;
  try {
    const [role, ...name] = decodeURIComponent(mark.slice(MARK.length)).split(" ");
    if (["organiser", "admin"].includes(role)) {
      for (const part of document.querySelectorAll("[data-role=organiser]")) part.hidden = false;
    }
    if (link) {
      const who = document.createElement("span");
      who.className = "who";
      who.textContent = ` (${name.join(" ")})`;
      link.replaceChildren("Account", who);
    }
  } catch {
    // A mark that is not ours is no name.
  }
})();
