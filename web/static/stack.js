// Where a table is wider than a small window each row is a card: a cell gets the head of its column,
// and its role stays. A tight one is narrow enough, and its columns are read downwards.
"use strict";
(() => {
  function label(table) {
    const heads = [...table.querySelectorAll("thead th")];
    table.setAttribute("role", "table");
    for (const group of table.querySelectorAll("thead, tbody")) group.setAttribute("role", "rowgroup");
    for (const row of table.rows) {
      row.setAttribute("role", "row");
      const isHead = row.parentElement.tagName === "THEAD";
      let column = 0;
      for (const cell of row.cells) {
        cell.setAttribute("role", isHead ? "columnheader" : cell.tagName === "TH" ? "rowheader" : "cell");
        const head = heads[column];
        const isOfAll = cell.getAttribute("scope") === "rowgroup";
        if (!isHead && !isOfAll && head && !head.querySelector(".sr")) cell.dataset.head = head.textContent;
        column += cell.colSpan;
      }
    }
  }

  function stack() {
    for (const table of document.querySelectorAll(".scroll > table:not(.decision, .board, .tight)")) {
      if (!table.hasAttribute("role")) label(table);
      table.classList.remove("stacked");
      if (innerWidth < 900 && table.scrollWidth > table.parentElement.clientWidth) table.classList.add("stacked");
    }
  }

  stack();
  addEventListener("resize", stack);
  // A table of a closed part has no width, and a fresh one no cards.
  document.addEventListener("toggle", stack, true);
  document.addEventListener("partsreplaced", stack);
})();
