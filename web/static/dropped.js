// Files and folders that were dropped onto a form, with their paths.
"use strict";
const dropped = (() => {
  const read = (entry) => new Promise((done, fail) => entry.file(done, fail));
  const list = (reader) => new Promise((done, fail) => reader.readEntries(done, fail));

  async function walk(entry, found, limits) {
    if (found.length > limits.most) return;
    if (entry instanceof File) {
      found.push([entry.name, entry]);
      return;
    }
    const path = entry.fullPath.replace(/^\//, "");
    if (limits.wanted && !limits.wanted(path, entry.isDirectory)) return;
    if (entry.isFile) {
      found.push([path, await read(entry)]);
      return;
    }
    const reader = entry.createReader();
    for (let some = await list(reader); some.length; some = await list(reader)) {
      for (const one of some) await walk(one, found, limits);
    }
  }

  return {
    // Pairs of path and file. Files that are on no disk, as of a mail, have no entry.
    async files(items, limits) {
      const entries = [...items].map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
      const found = [];
      for (const entry of entries) if (entry) await walk(entry, found, limits);
      return found;
    },
    // Calls `take` with the items that are dropped onto a form; its zone shows where.
    watch(form, zone, take) {
      form.addEventListener("dragover", (event) => {
        event.preventDefault();
        zone.classList.add("is-over");
      });
      form.addEventListener("dragleave", () => zone.classList.remove("is-over"));
      form.addEventListener("drop", (event) => {
        event.preventDefault();
        zone.classList.remove("is-over");
        take(event.dataTransfer.items);
      });
    },
  };
})();
