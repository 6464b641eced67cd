// Checks every proof of a folder with the server's own verifier: node verify_all.mjs MODULE FOLDER KEYS
import { readdir, readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [module, folder, keys] = process.argv.slice(2);
const { verify } = await import(pathToFileURL(module));
const listed = JSON.parse(await readFile(keys, "utf8"));
const began = performance.now();
const answers = {};
for (const name of (await readdir(folder)).sort()) {
  answers[name] = await verify(await readFile(`${folder}/${name}`), listed);
}
console.log(JSON.stringify({ answers, milliseconds: performance.now() - began }));
