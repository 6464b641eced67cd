// Drop files or a folder onto the form of /submit. Without this the two fields do the same.
"use strict";
(() => {
  const form = document.querySelector("form[data-drop]");
  if (!form) return;
  const [files, folder, paths] = ["files", "folder", "paths"].map((name) => form.elements[name]);
  const zone = form.querySelector(".drop");
  zone.hidden = false;

  const say = (names) => {
    const shown = names.slice(0, 8).join(", ");
    zone.textContent = names.length > 8 ? `${shown} and ${names.length - 8} more` : shown;
  };

  dropped.watch(form, zone, async (items) => {
    const found = await dropped.files(items, { most: 1000 });
    const kept = new DataTransfer();
    for (const [, file] of found) kept.items.add(file);
    folder.value = "";
    files.files = kept.files;
    paths.value = found.map(([name]) => name).join("\n");
    say(found.map(([name]) => name));
  });
  for (const field of [files, folder]) {
    field.addEventListener("change", () => {
      paths.value = "";
      say([...files.files, ...folder.files].map((file) => file.webkitRelativePath || file.name));
    });
  }
})();
