/** The header of a safetensors shard, fully checked before any of its data is used. */
import { ArtifactCorrupt } from "../errors.js";
import { isRecord, parseJson } from "./manifest.js";

const MAX_HEADER_BYTES = 16 << 20;
const LENGTH_BYTES = 8;
const DTYPE_BYTES = new Map([
  ["F32", 4],
  ["F16", 2],
  ["I8", 1],
  ["U8", 1],
]);

/**
 * @typedef {object} ShardEntry
 * @property {string} name
 * @property {string} dtype
 * @property {number[]} shape
 * @property {number} begin offset in the data section
 * @property {number} end
 */

/**
 * Collects a shard's header from the stream of its bytes.
 */
export class HeaderReader {
  #file;
  #shardBytes;
  #buffer = new Uint8Array(LENGTH_BYTES);
  #filled = 0;
  #lengthKnown = false;

  /**
   * @param {string} file for messages
   * @param {number} shardBytes size of the whole shard
   */
  constructor(file, shardBytes) {
    this.#file = file;
    this.#shardBytes = shardBytes;
  }

  /**
   * Take bytes from the front of `chunk`.
   *
   * @param {Uint8Array} chunk
   * @returns {{used: number, entries: ShardEntry[] | null}} entries, in the order of their
   *   data, once the header is complete
   */
  push(chunk) {
    let used = 0;
    for (;;) {
      const take = Math.min(chunk.length - used, this.#buffer.length - this.#filled);
      this.#buffer.set(chunk.subarray(used, used + take), this.#filled);
      this.#filled += take;
      used += take;
      if (this.#filled < this.#buffer.length) return { used, entries: null };
      if (this.#lengthKnown) {
        const dataBytes = this.#shardBytes - LENGTH_BYTES - this.#buffer.length;
        return { used, entries: parseEntries(this.#buffer, dataBytes, this.#file) };
      }
      const length = Number(new DataView(this.#buffer.buffer).getBigUint64(0, true));
      if (length < 2 || length > MAX_HEADER_BYTES || length > this.#shardBytes - LENGTH_BYTES) {
        throw new ArtifactCorrupt(
          `${this.#file} announces a header of ${length} bytes in a file of ${this.#shardBytes}`,
        );
      }
      this.#lengthKnown = true;
      this.#buffer = new Uint8Array(length);
      this.#filled = 0;
    }
  }
}

/**
 * @param {Uint8Array} header
 * @param {number} dataBytes size of the data section
 * @param {string} file
 * @returns {ShardEntry[]} sorted by offset; together they tile the data section
 */
function parseEntries(header, dataBytes, file) {
  const raw = parseJson(header, `the header of ${file}`);
  if (!isRecord(raw)) throw new ArtifactCorrupt(`the header of ${file} is not an object`);
  const entries = Object.entries(raw)
    .filter(([name]) => name !== "__metadata__")
    .map(([name, value]) => parseEntry(name, value, file))
    .sort((a, b) => a.begin - b.begin || a.end - b.end);
  let at = 0;
  for (const entry of entries) {
    if (entry.begin !== at) {
      throw new ArtifactCorrupt(
        `${file}: tensor '${entry.name}' starts at byte ${entry.begin}, expected ${at}`,
      );
    }
    at = entry.end;
  }
  if (at !== dataBytes) {
    throw new ArtifactCorrupt(`${file}: tensors cover ${at} of its ${dataBytes} data bytes`);
  }
  return entries;
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {string} file
 * @returns {ShardEntry}
 */
function parseEntry(name, value, file) {
  const bad = (/** @type {string} */ what) =>
    new ArtifactCorrupt(`${file}: tensor '${name.slice(0, 80)}' ${what}`);
  if (!isRecord(value)) throw bad("is not an object");
  const { dtype, shape, data_offsets: offsets } = value;
  const itemBytes = DTYPE_BYTES.get(dtype);
  if (itemBytes === undefined) {
    throw bad(`has dtype ${String(dtype).slice(0, 20)}, expected ${[...DTYPE_BYTES.keys()]}`);
  }
  const natural = (/** @type {unknown} */ n) => Number.isSafeInteger(n) && Number(n) >= 0;
  if (!Array.isArray(shape) || shape.length > 4 || !shape.every(natural)) throw bad("has no shape");
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(natural)) {
    throw bad("has no data offsets");
  }
  const [begin, end] = offsets;
  const bytes = shape.reduce((a, b) => a * b, itemBytes);
  if (end - begin !== bytes) {
    throw bad(`has ${end - begin} bytes, its shape [${shape}] of ${dtype} needs ${bytes}`);
  }
  return { name, dtype, shape, begin, end };
}
