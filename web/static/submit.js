// Drop files or a folder onto the form of /submit, and check them while they stay chosen. Without
// this the two fields take the files, and they are chosen again after a check.
"use strict";
(() => {
  const form = document.querySelector("form[data-drop]");
  if (!form) return;
  const MOST = 1000;
  const [files, folder, paths] = ["files", "folder", "paths"].map((name) => form.elements[name]);
  const zone = form.querySelector(".drop");
  zone.hidden = false;

  const say = (names) => {
    const shown = names.slice(0, 8).join(", ");
    zone.textContent = names.length > 8 ? `${shown} and ${names.length - 8} more` : shown;
  };

  const read = (entry) => new Promise((done, fail) => entry.file(done, fail));
  const list = (reader) => new Promise((done, fail) => reader.readEntries(done, fail));

  // Adds pairs of path and file to `found`. Files that are on no disk, as of a mail, have no entry.
  async function walk(entry, found) {
    if (found.length > MOST) return;
    if (entry instanceof File) {
      found.push([entry.name, entry]);
      return;
    }
    if (entry.isFile) {
      found.push([entry.fullPath.replace(/^\//, ""), await read(entry)]);
      return;
    }
    const reader = entry.createReader();
    for (let some = await list(reader); some.length; some = await list(reader)) {
      for (const one of some) await walk(one, found);
    }
  }

  async function take(items) {
    const entries = [...items].map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
    const found = [];
    for (const entry of entries) if (entry) await walk(entry, found);
    const kept = new DataTransfer();
    for (const [, file] of found) kept.items.add(file);
    folder.value = "";
    files.files = kept.files;
    paths.value = found.map(([name]) => name).join("\n");
    say(found.map(([name]) => name));
  }

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
  // Shows the answer to a check above the form, which keeps its files.
  async function check() {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!page.querySelector("form[data-drop]")) return form.submit();
    for (const id of ["errors", "answer"]) {
      document.getElementById(id)?.remove();
      const part = page.getElementById(id);
      if (part) form.closest(".columns").before(part);
    }
    (document.getElementById("errors") ?? document.getElementById("answer"))?.focus();
  }

  form.addEventListener("submit", (event) => {
    if (event.submitter?.name === "send") return;
    event.preventDefault();
    check().catch(() => form.submit());
  });
  for (const field of [files, folder]) {
    field.addEventListener("change", () => {
      paths.value = "";
      say([...files.files, ...folder.files].map((file) => file.webkitRelativePath || file.name));
    });
  }
})();
