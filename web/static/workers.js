// Keeps the page of the workers as it is now: its parts are fetched again while somebody looks.
"use strict";
(() => {
  const SECONDS = 5;

  const refresh = async () => {
    if (document.hidden) return;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.querySelector(`[data-live="${part.dataset.live}"]`);
      // What somebody is at with the keyboard stays where it is.
      const inUse = part !== document.activeElement && part.contains(document.activeElement);
      if (!fresh || inUse || fresh.innerHTML === part.innerHTML) continue;
      part.replaceChildren(...fresh.childNodes);
    }
  };

  setInterval(() => refresh().catch(() => {}), 1000 * SECONDS);
})();
