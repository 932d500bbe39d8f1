/** Takes the data of one shard and writes its rows into the module as they become complete. */
import { ArtifactCorrupt, InvalidInput } from "../errors.js";
import { partsOf } from "../program/parts.js";

/** @typedef {import("../program/format.js").Tensor} Tensor */
/** @typedef {import("../program/parts.js").Part} Part */
/** @typedef {import("./instance.js").Runtime} Runtime */

/** Rows are written in multiples of this, but for a tensor's last. */
export const ROW_MULTIPLE = 8;
const STAGING_BYTES = 256 << 10;
const ALIGNMENT = 64;

/**
 * @typedef {object} Target a tensor and how far it has been loaded
 * @property {number} index
 * @property {Tensor} tensor
 * @property {Part[]} parts
 * @property {number} rowsDone rows in the shards so far
 * @property {number} pieces shards that held rows of it
 */

/**
 * @typedef {object} Group the parts of one tensor in one shard
 * @property {Target} target
 * @property {number} row0
 * @property {number} rows
 * @property {(Uint8Array | null)[]} held bytes of the parts that came before the last one
 * @property {number} last the part whose bytes come last in the shard: it is not held
 */

/** @typedef {{group: Group, part: number, bytes: number}} Planned an entry and its place */

/** @param {number} n */
const aligned = (n) => Math.ceil(n / ALIGNMENT) * ALIGNMENT;

/**
 * @param {Tensor[]} tensors
 * @returns {number} bytes of staging that hold at least 8 rows of any tensor
 */
export function stagingBytes(tensors) {
  const widest = tensors.map((t) =>
    partsOf(t).reduce((sum, p) => sum + aligned(ROW_MULTIPLE * p.rowBytes), 0),
  );
  return Math.max(STAGING_BYTES, ...widest);
}

export class ShardSink {
  #runtime;
  #file;
  #planned;
  /** Rows that are incomplete yet: other shards use the staging buffer meanwhile. */
  #rows = new Uint8Array(0);
  #at = 0; // entry being filled
  #filled = 0; // bytes of it that came, or of its current piece when it is staged
  #row = 0; // rows of the current group already written

  /**
   * @param {Runtime} runtime
   * @param {string} file for messages
   * @param {Planned[]} planned
   */
  constructor(runtime, file, planned) {
    this.#runtime = runtime;
    this.#file = file;
    this.#planned = planned;
  }

  /** @param {Uint8Array} chunk */
  push(chunk) {
    for (let used = 0; used < chunk.length; ) {
      // The shard's entries tile it, and the reader lets no byte more than its size through.
      const { group, part, bytes } = this.#planned[this.#at];
      used += part === group.last ? this.#stage(chunk, used) : this.#hold(chunk, used, bytes);
    }
  }

  /**
   * @param {Uint8Array} chunk
   * @param {number} from
   * @param {number} bytes
   */
  #hold(chunk, from, bytes) {
    const { group, part } = this.#planned[this.#at];
    const buffer = (group.held[part] ??= new Uint8Array(bytes));
    const take = Math.min(chunk.length - from, bytes - this.#filled);
    buffer.set(chunk.subarray(from, from + take), this.#filled);
    this.#filled += take;
    if (this.#filled === bytes) this.#next();
    return take;
  }

  /**
   * @param {Uint8Array} chunk
   * @param {number} from
   */
  #stage(chunk, from) {
    const { group, part } = this.#planned[this.#at];
    const { parts } = group.target;
    const { staging, stagingBytes: room } = this.#runtime;
    const perRow = parts.reduce((sum, p) => sum + p.rowBytes, 0);
    const fit = Math.floor((room - parts.length * ALIGNMENT) / perRow / ROW_MULTIPLE);
    const rows = Math.min(group.rows - this.#row, Math.max(1, fit) * ROW_MULTIPLE);
    /** @type {number[]} */
    const at = [];
    let end = staging;
    for (const p of parts) {
      at.push(end);
      end += aligned(rows * p.rowBytes);
    }
    const bytes = rows * parts[part].rowBytes;
    const take = Math.min(chunk.length - from, bytes - this.#filled);
    const taken = chunk.subarray(from, from + take);
    if (take < bytes) {
      if (this.#rows.length < bytes) this.#rows = new Uint8Array(bytes);
      this.#rows.set(taken, this.#filled);
    }
    this.#filled += take;
    if (this.#filled === bytes) {
      const whole = take === bytes ? taken : this.#rows.subarray(0, bytes);
      this.#runtime.u8(at[part], bytes).set(whole);
      this.#write(group, rows, at);
      this.#filled = 0;
      this.#row += rows;
      if (this.#row === group.rows) this.#next();
    }
    return take;
  }

  /**
   * @param {Group} group
   * @param {number} rows
   * @param {number[]} at where the parts lie in the staging buffer
   */
  #write({ target, row0, held }, rows, at) {
    target.parts.forEach(({ rowBytes }, i) => {
      const source = held[i];
      if (source === null) return;
      const begin = this.#row * rowBytes;
      this.#runtime
        .u8(at[i], rows * rowBytes)
        .set(source.subarray(begin, begin + rows * rowBytes));
    });
    const [data, scale = 0, min = 0] = at;
    const what = `writing rows of tensor '${target.tensor.name}'`;
    const { exports } = this.#runtime;
    try {
      this.#runtime.check(
        exports.v_write_rows(target.index, row0 + this.#row, rows, data, scale, min),
        what,
      );
    } catch (cause) {
      if (!(cause instanceof InvalidInput)) throw cause;
      throw new ArtifactCorrupt(
        `${this.#file}: ${what} met codes outside their format; export or upload it again`,
        { cause },
      );
    }
  }

  #next() {
    const { group, part } = this.#planned[this.#at];
    if (part === group.last) group.held.fill(null);
    this.#at += 1;
    this.#filled = 0;
    this.#row = 0;
  }
}
