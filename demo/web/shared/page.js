/** What the pages share: loading a model with its progress shown, and errors in words. */
import { load } from "volery";

/** The commands that make the artifacts of the demos. */
const EXPORTS = /** @type {Record<string, string>} */ ({
  minilm: "toolchain export all-MiniLM-L6-v2 -o artifacts/minilm",
  smollm2: "toolchain export SmolLM2-135M-Instruct -q i4 --activations 8 -o artifacts/smollm2",
});

/** @typedef {Awaited<ReturnType<typeof load>>} Model */

/** @param {string} id @returns {any} */
export const at = (id) => document.getElementById(id);

/**
 * Load a model of the demos, with what goes on in `#progress` and `#status`.
 *
 * @param {string} name of its folder in `artifacts/`
 * @param {Parameters<typeof load>[1]} [options]
 * @returns {Promise<Model>}
 */
export async function loadShown(name, options = {}) {
  const bar = at("progress");
  const model = await load(artifactUrl(name), {
    threads: threadsHere(),
    ...options,
    onProgress({ loadedBytes, totalBytes }) {
      bar.max = totalBytes;
      bar.value = loadedBytes;
      const [loaded, total] = [loadedBytes, totalBytes].map(megabytes);
      say(at("status"), `Loading ${name}: ${loaded} of ${total} MB`);
    },
  }).catch(async (error) => {
    throw (await isExported(name)) ? error : new Error(exportHint(name));
  });
  bar.hidden = true;
  return model;
}

/** @param {Model} model what is ready, in a sentence */
export function readiness({ info }) {
  const threads = `${info.threads} thread${info.threads === 1 ? "" : "s"}`;
  const seconds = (info.loadMs / 1000).toFixed(2);
  return [`Loaded in ${seconds} s, on ${threads}.`, ...info.warnings].join(" ");
}

/** @param {string} name */
export const artifactUrl = (name) => new URL(`../../artifacts/${name}/`, import.meta.url).href;

/**
 * One core is left to the page itself. `?threads=2` in the address asks for another number.
 */
export function threadsHere() {
  const asked = Number(new URLSearchParams(location.search).get("threads"));
  const free = Math.min(navigator.hardwareConcurrency - 1, 4);
  return asked > 0 ? asked : Math.max(free, 1);
}

/** @param {string} name */
export async function isExported(name) {
  return (await fetch(`${artifactUrl(name)}manifest.json`, { method: "HEAD" })).ok;
}

/** @param {string} name */
export const exportHint = (name) =>
  `There is no model in artifacts/${name} yet. Make it with “${EXPORTS[name]}”, then reload.`;

/** The passages that are searched. */
export async function readCorpus() {
  const response = await fetch(new URL("../../birds.txt", import.meta.url));
  return (await response.text()).trim().split("\n");
}

/** @param {HTMLElement} status @param {string} text */
export function say(status, text) {
  status.classList.remove("error");
  status.textContent = text;
}

/** @param {HTMLElement} status @param {unknown} error */
export function complain(status, error) {
  at("progress")?.setAttribute("hidden", "");
  status.classList.add("error");
  status.textContent = inWords(error);
}

/** @param {unknown} error */
export function inWords(error) {
  if (!(error instanceof Error)) return String(error);
  const kind = error.constructor.name;
  return kind === "Error" ? error.message : `${kind}: ${error.message}`;
}

/**
 * The value below which `share` of the samples lie.
 *
 * @param {number[]} samples
 * @param {number} share 0 to 1
 */
export function percentile(samples, share) {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? NaN;
}

/** @param {number} bytes */
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
