// Says who is signed in on a page that is the same for everybody: see server/people/sessions.py.
"use strict";
(() => {
  const MARK = "finishline_signed_in=";
  const mark = document.cookie.split("; ").find((cookie) => cookie.startsWith(MARK));
  const link = document.querySelector("a.sign-in:not([aria-current])");
  if (!mark || !link) return;
  try {
    link.textContent = `Account (${decodeURIComponent(mark.slice(MARK.length))})`;
  } catch {
    // A mark that is not ours is no name.
  }
})();
