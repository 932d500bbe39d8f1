/** Options of `load`, checked before anything is fetched or started. */
import { checkInt, checkNames, checkSignal, kindOf } from "./checks.js";
import { InvalidInput, InvalidType } from "./errors.js";
import { MAX_THREADS } from "./executor.js";

const MAX_SHARE = 1000;
const WASM_OPTIONS = ["variant", "url", "bytes", "module"];
const OPTIONS = [
  ...["signal", "onProgress", "threads", "pool", "wasm", "worker", "cache", "maxTokens", "maxSeqs"],
  ...["kvBlocks", "kvFormat", "maxWanted", "scheduler", "recorder", "device", "share", "tokenizer"],
];

/**
 * What `load` itself and the parts that it calls take on trust. Sizes, the pool and the
 * scheduler's knobs are checked where they are used, which is early enough.
 *
 * @param {unknown} options
 * @throws {InvalidInput} one is unknown or out of range
 */
export function checkLoadOptions(options) {
  checkNames(options, OPTIONS);
  const { signal, onProgress, threads, share, recorder, tokenizer, cache, wasm, worker } =
    /** @type {Record<string, any>} */ (options);
  checkSignal(signal);
  checkKind("onProgress", onProgress, "a function", (value) => typeof value === "function");
  if (threads !== undefined) checkInt("threads", threads, 1, MAX_THREADS);
  if (share !== undefined) checkInt("share", share, 1, MAX_SHARE);
  checkKind("recorder", recorder, "a TraceRecorder", (value) => has(value, "record"));
  checkKind("tokenizer", tokenizer, "one that encodes", (value) => has(value, "encode"));
  const isStore = (/** @type {any} */ value) => has(value, "read") && has(value, "write");
  if (cache !== false) checkKind("cache", cache, "a store or false", isStore);
  checkKind("worker", worker, "a URL or a function", (value) => {
    return ["string", "function"].includes(typeof value) || value instanceof URL;
  });
  checkWasm(wasm);
}

/** @param {unknown} wasm */
function checkWasm(wasm) {
  const isObject = (/** @type {unknown} */ value) => typeof value === "object" && value !== null;
  checkKind("wasm", wasm, "an object", isObject);
  const unknown = Object.keys(wasm ?? {}).find((name) => !WASM_OPTIONS.includes(name));
  if (unknown === undefined) return;
  throw new InvalidInput(`unknown option wasm.${unknown}, expected ${WASM_OPTIONS.join(", ")}`);
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {string} expected
 * @param {(value: any) => boolean} isRight
 */
function checkKind(name, value, expected, isRight) {
  if (value === undefined || value === null || isRight(value)) return;
  throw new InvalidType(`${name} is ${kindOf(value)}, expected ${expected}`);
}

/**
 * @param {any} value
 * @param {string} method
 */
const has = (value, method) => typeof value?.[method] === "function";
