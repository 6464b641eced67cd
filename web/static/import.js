// Packs the results of a chosen or dropped folder into the zip that the form sends, and lets an
// import that has begun go on. Without this the form takes a zip, and a button goes on.
"use strict";
(() => {
  const going = document.querySelector("form[data-goes-on]");
  if (going) going.requestSubmit();
  const form = document.querySelector("form[data-archive]");
  if (!form) return;
  const zone = form.querySelector(".drop");
  const [folder, archive] = [form.querySelector("#f-folder"), form.elements.archive];
  const button = form.querySelector("button.main");
  const RESULT = /\.(json|tsv|txt|log|out)(\.gz)?$/i;
  const COMMIT = /^[0-9a-f]{40}$/;
  const MOST = 20000;
  for (const part of form.querySelectorAll("[data-scripted]")) part.hidden = false;

  const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
    for (let k = 0; k < 8; k += 1) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n;
  });
  function crc32(bytes) {
    let crc = ~0;
    for (let i = 0; i < bytes.length; i += 1) crc = TABLE[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
    return ~crc >>> 0;
  }

  // Fields of 2 or 4 bytes, little-endian, as pairs of size and value.
  function packed(...fields) {
    const view = new DataView(new ArrayBuffer(fields.reduce((sum, [size]) => sum + size, 0)));
    let at = 0;
    for (const [size, value] of fields) {
      if (size === 4) view.setUint32(at, value, true);
      else view.setUint16(at, value, true);
      at += size;
    }
    return view;
  }
  const two = (value) => [2, value];
  const four = (value) => [4, value];

  async function deflated(content) {
    const stream = new Blob([content]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    return new Response(stream).blob();
  }

  async function zip(files, comment) {
    const parts = [];
    const directory = [];
    let at = 0;
    for (const [path, file] of files) {
      const content = new Uint8Array(await file.arrayBuffer());
      const [name, body] = [new TextEncoder().encode(path), await deflated(content)];
      // Version, names in UTF-8, deflate, 1 January 1980, CRC, sizes, lengths of name and extra.
      const told = [
        two(20), two(0x800), two(8), two(0), two(33), four(crc32(content)),
        four(body.size), four(content.length), two(name.length), two(0),
      ];
      const head = packed(four(0x04034b50), ...told);
      directory.push(
        packed(four(0x02014b50), two(20), ...told, two(0), two(0), two(0), four(0), four(at)), name);
      parts.push(head, name, body);
      at += head.byteLength + name.length + body.size;
    }
    const size = directory.reduce((sum, part) => sum + part.byteLength, 0);
    const [count, words] = [files.length, new TextEncoder().encode(comment)];
    const end = packed(four(0x06054b50), two(0), two(0), two(count), two(count), four(size),
      four(at), two(words.length));
    return new Blob([...parts, ...directory, end, words]);
  }

  const isHidden = (path) => path.split("/").slice(0, -1).some((part) => part.startsWith("."));

  // The commit that a checkout is at, of the files of its .git folder; empty if it is none.
  async function commitOf(files) {
    const git = new Map(files.map(([path, file]) => [/^[^/]+\/\.git\/(.*)$/.exec(path)?.[1], file]));
    const read = async (name) => ((await git.get(name)?.text()) ?? "").trim();
    const head = await read("HEAD");
    if (COMMIT.test(head)) return head;
    const ref = head.replace(/^ref: /, "");
    const commit = await read(ref);
    if (COMMIT.test(commit)) return commit;
    const lines = (await read("packed-refs")).split("\n").map((line) => line.split(" "));
    return lines.find(([sha, name]) => name === ref && COMMIT.test(sha))?.[0] ?? "";
  }

  async function take(files) {
    const results = files.filter(([path]) => RESULT.test(path) && !isHidden(path));
    if (!results.length || results.length > MOST) {
      zone.textContent = `${results.length} files of results; expected 1 to ${MOST}.`;
      return;
    }
    zone.textContent = `Packing ${results.length} files …`;
    button.disabled = true;
    try {
      const commit = await commitOf(files);
      const kept = new DataTransfer();
      kept.items.add(new File([await zip(results, commit)], "archive.zip"));
      archive.files = kept.files;
      const kib = Math.ceil(archive.files[0].size / 1024).toLocaleString("en");
      const at = commit ? `, commit ${commit.slice(0, 7)}` : "";
      zone.textContent = `${results.length} files, ${kib} KiB packed${at}.`;
    } catch (error) {
      zone.textContent = `The folder cannot be read (${error.message}). Choose a zip of it.`;
    } finally {
      button.disabled = false;
    }
  }

  // Of .git only what names the commit is looked at.
  const GIT = /\.git(\/(HEAD|packed-refs|refs(\/.*)?))?$/;
  const wanted = (path, isFolder) =>
    isFolder ? !isHidden(`${path}/`) || GIT.test(path) : RESULT.test(path) || GIT.test(path);
  dropped.watch(form, zone, async (items) =>
    take(await dropped.files(items, { most: 10 * MOST, wanted })));
  folder.addEventListener("change", () =>
    take([...folder.files].map((file) => [file.webkitRelativePath, file])));
  form.addEventListener("submit", () => {
    zone.textContent = "Sending, then reading every log …";
  });
})();
