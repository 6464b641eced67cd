// Starts Swagger UI on the API's description, in the colours of the page.
"use strict";
(() => {
  const root = document.documentElement;
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark.matches;
    root.classList.toggle("dark-mode", isDark); // The class that its style sheet knows.
  };
  new MutationObserver(follow).observe(root, { attributeFilter: ["data-theme"] });
  systemIsDark.addEventListener("change", follow);
  follow();
  const place = document.getElementById("swagger-ui");
  // The bar of an operation is a button: a link within it would be a second target in the first. Its
  // groups are headings of the level below the page's own.
  const mend = () => {
    for (const link of place.querySelectorAll("button a[href]")) link.removeAttribute("href");
    for (const group of place.querySelectorAll("h3.opblock-tag, .models > h4")) group.ariaLevel = "2";
  };
  new MutationObserver(mend).observe(place, { childList: true, subtree: true });
  window.SwaggerUIBundle({
    url: place.dataset.openapi,
    dom_id: "#swagger-ui",
    deepLinking: true,
    showExtensions: true,
    showCommonExtensions: true,
    presets: [window.SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
  });
})();
