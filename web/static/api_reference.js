// Starts Swagger UI on the API's description.
"use strict";
(() => {
  const place = document.getElementById("swagger-ui");
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
