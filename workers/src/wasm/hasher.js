/**
 * SHA-256 in WebAssembly: several times as fast as the same in JavaScript, and incremental,
 * unlike WebCrypto's. It borrows the build that will run the model, in a small memory of its
 * own.
 */
import { Sha256 } from "../artifact/sha256.js";
import { instantiate } from "./instance.js";

const BLOCK_BYTES = 64;
const STATE_WORDS = 8;
const BUFFER_BYTES = 256 << 10;
const MAX_PAGES = 64;

/**
 * @param {WebAssembly.Module} module
 * @param {import("./variants.js").Variant} variant
 * @returns {Promise<() => Sha256>} makes hashes; they may be used by turns
 */
export async function wasmHash(module, variant) {
  const { memory, exports } = await instantiate({ module, variant }, MAX_PAGES);
  const state = exports.v_alloc(4 * STATE_WORDS) >>> 0;
  const buffer = exports.v_alloc(BUFFER_BYTES) >>> 0;
  const words = new Int32Array(memory.buffer, state, STATE_WORDS);
  const bytes = new Uint8Array(memory.buffer, buffer, BUFFER_BYTES);
  /** @type {import("../artifact/sha256.js").Compress} */
  const compress = (current, data, at, end) => {
    words.set(current);
    for (; at < end; at += BUFFER_BYTES) {
      const part = data.subarray(at, Math.min(at + BUFFER_BYTES, end));
      bytes.set(part);
      exports.v_sha256(state, buffer, part.length / BLOCK_BYTES);
    }
    current.set(words);
  };
  return () => new Sha256(compress);
}
