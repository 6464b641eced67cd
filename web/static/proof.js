// Checks the proof that is chosen on /proof, or dropped there, in the browser.
import { verify } from "./verify.mjs";

const COMPARED = {
  bundle: "The zip has one proof, each file once and nothing beside them",
  envelope: "The DSSE envelope: type of the payload, base64, signatures",
  signature: "The Ed25519 signature over the payload and its type",
  signer: "The key that signed, and the trusted keys",
  statement: "The payload: RFC 8785 form, types and fields of an in-toto statement",
  subjects: "SHA-256 of every file, and the subjects that name them",
  format: "The parts of a proof",
  parts: "SHA-256 of each part",
  definition: "SHA-256 of the benchmark's text",
  logs: "The files of the claim: their hashes and sizes",
  seal: "Seeds and nonce, and the seal that was public before the first run",
};
const form = document.querySelector("form[data-drop]");
const zone = form.querySelector(".drop");
const input = form.querySelector("#proof");
const outcome = document.querySelector("#outcome");
let chosen = null;
let latest = 0;

function row({ name, ok, detail }) {
  const made = document.createElement("tr");
  for (const text of [name, ok ? "holds" : "fails", COMPARED[name]]) {
    const cell = document.createElement("td");
    cell.textContent = text;
    made.append(cell);
  }
  const found = document.createElement("small");
  found.textContent = detail;
  made.lastChild.className = "subject";
  made.lastChild.append(document.createElement("br"), found);
  return made;
}

function show(name, { ok, checks }) {
  const failed = checks.filter((check) => !check.ok).map((check) => check.name);
  const notice = outcome.querySelector(".notice");
  outcome.dataset.outcome = ok ? "holds" : "fails";
  outcome.querySelector("h2").textContent = ok ? "The proof holds" : "The proof fails";
  notice.textContent = ok
    ? `${name}: ${checks.find((check) => check.name === "format").detail}. All ${checks.length} checks hold.`
    : `Do not rely on ${name}: ${failed.join(", ")} failed.`;
  notice.className = ok ? "notice is-done" : "notice is-rejected errors";
  outcome.querySelector("tbody").replaceChildren(...checks.map(row));
  outcome.hidden = false;
}

function readKeys() {
  try {
    return JSON.parse(form.querySelector("#keys").value);
  } catch {
    return null;
  }
}

async function check() {
  const mine = ++latest;
  delete outcome.dataset.outcome;
  outcome.hidden = true;
  const { name, bytes } = chosen;
  const answer = await verify(bytes, readKeys());
  if (mine === latest) show(name, answer);
}

async function choose(file) {
  if (!file) return;
  zone.textContent = `Checking ${file.name} …`;
  chosen = { name: file.name, bytes: await file.arrayBuffer() };
  await check();
  zone.textContent = "Drop another one here.";
}

input.addEventListener("click", () => (input.value = "")); // The same file may be chosen again.
input.addEventListener("change", () => choose(input.files[0]));
form.querySelector("#keys").addEventListener("change", () => chosen && check());
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("dragover", (event) => {
  event.preventDefault();
  zone.classList.add("is-over");
});
form.addEventListener("dragleave", () => zone.classList.remove("is-over"));
form.addEventListener("drop", (event) => {
  event.preventDefault();
  zone.classList.remove("is-over");
  choose(event.dataTransfer.files[0]);
});
choose(input.files[0]);
