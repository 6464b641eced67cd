// Keeps the page of the workers as it is now: its parts are fetched again while somebody looks.
"use strict";
(() => {
  const SECONDS = 5;
  // As the server sent them: stack.js changes what stands on the page.
  const shown = new Map();
  for (const part of document.querySelectorAll("[data-live]")) shown.set(part.dataset.live, part.innerHTML);

  const refresh = async () => {
    if (document.hidden) return;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.querySelector(`[data-live="${part.dataset.live}"]`);
      // What somebody is at with the keyboard stays where it is.
      const inUse = part !== document.activeElement && part.contains(document.activeElement);
      if (!fresh || inUse || fresh.innerHTML === shown.get(part.dataset.live)) continue;
      shown.set(part.dataset.live, fresh.innerHTML);
      part.replaceChildren(...fresh.childNodes);
    }
    dispatchEvent(new Event("resize"));  // A fresh table may be too wide.
  };

  setInterval(() => refresh().catch(() => {}), 1000 * SECONDS);
})();
