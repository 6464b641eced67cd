// Checks a Finishline proof from its bytes alone, in a browser or in Node 20:
//   const { ok, checks } = await verify(bytesOfTheZip, answerOfApiV1Keys);
// The checks are those of the same names in `finishline proof`; scores, seeds and the verdict
// are derived again by that command alone.

const [PROOF_BYTES, FILE_BYTES, BUNDLE_BYTES] = [32, 64, 512].map((mib) => mib * 1024 * 1024); // unpacked
const [MOST_FILES, DEEPEST] = [110, 100];
const ENVELOPE_NAME = "proof.dsse.json";
const FILE_NAME = /^(proof\.dsse\.json|logs\/[0-9a-f]{64})$/;
const PAYLOAD_TYPE = "application/vnd.in-toto+json";
const [STATEMENT_TYPE, PREDICATE_TYPE] = ["https://in-toto.io/Statement/v1", "urn:finishline:proof:2"];
const PARTS = "verification benchmark calibration submission draw plan attempts report verdict code".split(" ");
const NO_SUBTLE = "browsers keep their cryptography from pages without HTTPS: open this one over HTTPS or on localhost";
const NO_ED25519 = "this browser lacks Ed25519 signatures; Chrome and Edge 137, Firefox 129 and Safari 17 have them";

// Each check reads what those before it found, and returns its detail or throws.
const CHECKS = {
  bundle: readBundle, envelope: readEnvelope, signature: checkSignature, signer: checkSigner,
  statement: readStatement, subjects: checkSubjects, format: checkFormat, parts: checkParts,
  definition: checkDefinition, logs: checkLogs, seal: openSeal,
};
const NOTHING_FOLLOWS = ["bundle", "envelope", "statement", "format", "definition"];

export async function verify(bytes, keys) {
  const found = { bytes: bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes), keys };
  const checks = [];
  for (const [name, make] of Object.entries(CHECKS)) {
    const check = { name, ok: true, detail: "" };
    try {
      check.detail = await make(found);
    } catch (error) {
      check.ok = false;
      check.detail = String(error.message || error);
    }
    checks.push(check);
    if (!check.ok && NOTHING_FOLLOWS.includes(name)) break;
  }
  return { ok: checks.every((check) => check.ok), checks };
}

function demand(condition, message) {
  if (!condition) throw new Error(message);
}

const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isSame = (some, others) => JSON.stringify([...some].sort()) === JSON.stringify([...others].sort());
const utf8 = (text) => new TextEncoder().encode(text);
const textOf = (bytes) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
const hex = (buffer) => Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
const sha256 = async (bytes) => hex(await crypto.subtle.digest("SHA-256", bytes));

async function readBundle(found) {
  demand(globalThis.crypto?.subtle, NO_SUBTLE);
  found.files = await readZip(found.bytes);
  demand(found.files.has(ENVELOPE_NAME), `contains no ${ENVELOPE_NAME}`);
  const text = textOf(found.files.get(ENVELOPE_NAME));
  found.files.delete(ENVELOPE_NAME);
  found.envelope = JSON.parse(text);
  // JSON.parse keeps the last of two equal names silently.
  const bare = (json) => json.replace(/\s+/g, "");
  demand(bare(JSON.stringify(found.envelope)) === bare(text), "a name given twice, or needless escapes, in its proof");
  return `a proof and ${found.files.size} files`;
}

// Takes only zips that every program reads alike: entries one after the other, with equal headers.
async function readZip(zip) {
  const view = new DataView(zip.buffer, zip.byteOffset, zip.byteLength);
  const [u16, u32] = [(at) => view.getUint16(at, true), (at) => view.getUint32(at, true)];
  const isEqual = (at, other, size) => zip.subarray(at, at + size).every((byte, i) => byte === zip[other + i]);
  const end = zip.length - 22;
  demand(end >= 0 && zip.length <= BUNDLE_BYTES && u32(end) === 0x06054b50, "not a zip, or data follow its end");
  const [count, directory] = [u16(end + 10), u32(end + 16)];
  demand(!u32(end + 4) && u16(end + 8) === count && !u16(end + 20), "a zip in several pieces, or with a comment");
  demand(directory + u32(end + 12) === end && count <= MOST_FILES, "too many files, or data between them");
  const files = new Map();
  let [start, place, left] = [0, directory, BUNDLE_BYTES];
  for (let index = 0; index < count; index++) {
    demand(place + 46 <= end && u32(place) === 0x02014b50, "its directory is cut off");
    const [flags, method, length] = [u16(place + 8), u16(place + 10), u16(place + 28)];
    const [packed, size] = [u32(place + 20), u32(place + 24)];
    demand(place + 46 + length <= end && start + 30 + length + packed <= directory, "entries overlap");
    const name = String.fromCharCode(...zip.subarray(place + 46, place + 46 + length));
    demand(FILE_NAME.test(name), `unexpected file name ${name.slice(0, 100)}`);
    demand(!files.has(name), `${name} appears twice`);
    demand(!(flags & ~0x0806) && [0, 8].includes(method), `${name} is encrypted, or packed in another way`);
    demand(!u32(place + 30) && !u16(place + 34) && u32(place + 42) === start, `${name} is not where it should be`);
    const isTwice = isEqual(start + 4, place + 6, 24) && isEqual(start + 30, place + 46, length);
    demand(u32(start) === 0x04034b50 && !u16(start + 28) && isTwice, `${name}: its two headers differ`);
    const limit = Math.min(left, name.startsWith("logs/") ? FILE_BYTES : PROOF_BYTES);
    demand(size <= limit, `${name} is too large unpacked: more than ${limit} bytes`);
    start += 30 + length + packed;
    const content = await unpack(zip.subarray(start - packed, start), method, size);
    demand(content?.length === size, `${name} is not as long as its header says`);
    files.set(name, content);
    left -= size;
    place += 46 + length;
  }
  demand(start === directory && place === end, "bytes that belong to no entry");
  return files;
}

async function unpack(packed, method, size) {
  if (method === 0) return packed;
  const content = await inflate(packed, size);
  // Some engines ignore data behind the end: without its last byte a stream must be incomplete.
  return content && (await inflate(packed.subarray(0, -1), size)) === null ? content : null;
}

// The unpacked bytes, null where they are not exactly so many.
async function inflate(packed, size) {
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const content = new Uint8Array(size);
  let length = 0;
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      content.set(next.value, length); // Throws beyond the size.
      length += next.value.length;
    }
  } catch {
    await reader.cancel().catch(() => {});
    return null;
  }
  return length === size ? content : null;
}

function readEnvelope(found) {
  const { payload, payloadType, signatures } = found.envelope;
  demand(payloadType === PAYLOAD_TYPE, `payloadType is not ${PAYLOAD_TYPE}`);
  demand(Array.isArray(signatures) && signatures.length, "no signatures");
  found.payload = fromBase64(payload);
  found.signatures = signatures.map(({ keyid, sig }) => ({ keyid, sig: fromBase64(sig) }));
  demand(signatures.every(({ keyid }) => typeof keyid === "string"), "a signature without a keyid");
  return `a payload of ${found.payload.length} bytes`;
}

function fromBase64(text) {
  const binary = atob(text);
  demand(btoa(binary) === text, "not standard base64");
  return Uint8Array.from(binary, (unit) => unit.charCodeAt(0));
}

async function checkSignature(found) {
  const trusted = new Map(); // by id: the first 16 hex digits of the SHA-256 of a key's 32 bytes
  for (const { public_key: digits } of found.keys?.keys ?? []) {
    if (!/^[0-9a-f]{64}$/i.test(digits)) continue;
    const key = Uint8Array.from(digits.match(/../g), (pair) => parseInt(pair, 16));
    trusted.set((await sha256(key)).slice(0, 16), key);
  }
  found.named = found.signatures.filter(({ keyid }) => trusted.has(keyid));
  demand(found.named.length, "no trusted key to check it with");
  // DSSE signs its pre-authentication encoding: version, type and payload with their lengths.
  const head = utf8(`DSSEv1 ${PAYLOAD_TYPE.length} ${PAYLOAD_TYPE} ${found.payload.length} `);
  const signed = await new Blob([head, found.payload]).arrayBuffer();
  for (const { keyid, sig } of found.named) {
    const reading = crypto.subtle.importKey("raw", trusted.get(keyid), "Ed25519", false, ["verify"]);
    const key = await reading.catch(({ name, message }) => {
      throw new Error(name === "NotSupportedError" ? NO_ED25519 : message);
    });
    demand(await crypto.subtle.verify("Ed25519", key, sig, signed), "the document was changed after it was signed");
  }
  return "Ed25519, over the payload and its type";
}

function checkSigner({ named }) {
  demand(named.length, "not signed by any trusted key");
  return `key ${named.map(({ keyid }) => keyid)}`;
}

// RFC 8785: names sorted by UTF-16 units, numbers and strings as ECMAScript writes them.
function canonical(value, depth = DEEPEST) {
  demand(depth > 0, `nested deeper than ${DEEPEST} levels`);
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, depth - 1)).join()}]`;
  if (isTable(value)) {
    const pair = (name) => `${canonical(name)}:${canonical(value[name], depth - 1)}`;
    return `{${Object.keys(value).sort().map(pair).join()}}`;
  }
  demand(typeof value !== "string" || !/[\ud800-\udfff]/u.test(value), "half a character");
  return JSON.stringify(value);
}

// Equal to its canonical form, the payload has no name twice and no number that is read in two ways.
function readStatement(found) {
  const text = textOf(found.payload);
  const statement = JSON.parse(text);
  demand(canonical(statement) === text, "the payload is not canonical: not its RFC 8785 form");
  demand(isTable(statement) && statement._type === STATEMENT_TYPE, `_type is not ${STATEMENT_TYPE}`);
  demand(statement.predicateType === PREDICATE_TYPE, `predicateType is not ${PREDICATE_TYPE}`);
  demand(isSame(Object.keys(statement), ["_type", "predicate", "predicateType", "subject"]), "unknown fields");
  demand(isTable(statement.predicate) && statement.predicate.format === 2, "the predicate's format is not 2");
  const subject = ({ digest }) => ({ name: `logs/${digest.sha256}`, digest: { sha256: digest.sha256 } });
  demand(canonical(statement.subject.map(subject)) === canonical(statement.subject), "subjects of another form");
  found.subjects = statement.subject.map(({ digest }) => digest.sha256);
  demand(found.subjects.every((hash) => /^[0-9a-f]{64}$/.test(hash)), "a subject without a SHA-256");
  found.proof = statement.predicate;
  return "an in-toto statement in RFC 8785 form";
}

async function checkSubjects({ subjects, files }) {
  demand(new Set(subjects).size === subjects.length, "a file is named twice");
  demand(isSame(subjects.map((hash) => `logs/${hash}`), files.keys()), "a file is missing, or no subject names it");
  for (const hash of subjects) {
    demand((await sha256(files.get(`logs/${hash}`))) === hash, `logs/${hash}: its bytes were changed`);
  }
  return `${subjects.length} files`;
}

function checkFormat({ proof }) {
  demand(isSame(Object.keys(proof), [...PARTS, "format", "parts"]), `its parts are not ${PARTS.join(", ")}`);
  const { verification, submission, benchmark, verdict } = proof;
  return `verification ${verification.id} of submission ${submission.id}, ${benchmark.id}: ${verdict.outcome}`;
}

async function checkParts({ proof }) {
  demand(isSame(Object.keys(proof.parts), PARTS), "a part without a hash, or a hash without a part");
  for (const name of PARTS) {
    demand((await sha256(utf8(canonical(proof[name])))) === proof.parts[name], `changed since it was hashed: ${name}`);
  }
  return `${PARTS.length} parts`;
}

async function checkDefinition({ proof }) {
  const { definition, sha256: expected } = proof.benchmark;
  demand((await sha256(utf8(definition))) === expected, "the benchmark's text has another hash");
  return `SHA-256 ${expected}`;
}

async function checkLogs({ proof, files }) {
  const { claim_sha256, logs, against } = proof.submission;
  const hashes = [claim_sha256, ...(against ? [against.claim_sha256] : []), ...logs.map((log) => log.sha256)];
  const wanted = new Set(hashes.map((hash) => `logs/${hash}`));
  demand(isSame(wanted, files.keys()), "the files are not those of the claim");
  for (const name of wanted) demand(`logs/${await sha256(files.get(name))}` === name, `${name} was changed`);
  const isLong = ({ sha256: hash, size_bytes: size }) => files.get(`logs/${hash}`).length === size;
  for (const log of logs) demand(isLong(log), `${log.file} is not ${log.size_bytes} bytes long`);
  return `${logs.length} run logs and the claim`;
}

// The seal is of the RFC 8785 form of everything drawn.
async function openSeal({ proof: { draw: drawn, benchmark, submission } }) {
  const { seal, nonce, runs, seeds, own_runs, beside } = drawn;
  demand(runs === seeds.length, `${seeds.length} seeds for ${runs} runs`);
  const inputs = { benchmark_sha256: benchmark.sha256, nonce, runs, seeds, submission: submission.id, draw: 3 };
  const sealed = { ...beside, ...inputs, ...(own_runs && { own_runs }) };
  const found = await sha256(utf8(canonical(sealed)));
  demand(found === seal, "benchmark, submission, seeds and nonce do not hash to the seal");
  return `${seeds.length} seeds, drawn before the first run`;
}
