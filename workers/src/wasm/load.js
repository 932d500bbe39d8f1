/** Streams the weight shards into the module, row range by row range. */
import { HeaderReader } from "../artifact/safetensors.js";
import { ArtifactCorrupt, ArtifactMissing } from "../errors.js";
import { partsOf } from "../program/parts.js";

/** @typedef {import("../program/format.js").Tensor} Tensor */
/** @typedef {import("../program/parts.js").Part} Part */
/** @typedef {import("../artifact/safetensors.js").ShardEntry} ShardEntry */
/** @typedef {import("./instance.js").Runtime} Runtime */

const ROW_MULTIPLE = 8;
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

export class WeightLoader {
  #runtime;
  /** @type {Target[]} */
  #targets;
  /** @type {Map<string, {target: Target, part: number}>} */
  #byName = new Map();

  /**
   * @param {Runtime} runtime its staging buffer has `stagingBytes(tensors)`
   * @param {Tensor[]} tensors
   */
  constructor(runtime, tensors) {
    this.#runtime = runtime;
    this.#targets = tensors.map((tensor, index) => {
      const target = { index, tensor, parts: partsOf(tensor), rowsDone: 0, pieces: 0 };
      target.parts.forEach((p, part) => this.#byName.set(p.name, { target, part }));
      return target;
    });
  }

  /**
   * Read one shard. Shards must be read in order: rows continue from one to the next.
   *
   * A tensor's last part (its codes, when the shard keeps scales and mins before them) goes
   * straight through the staging buffer, so that only the small parts are held.
   *
   * @param {AsyncIterable<Uint8Array>} chunks
   * @param {string} file
   * @param {number} bytes size of the shard
   */
  async loadShard(chunks, file, bytes) {
    const header = new HeaderReader(file, bytes);
    /** @type {ShardSink | null} */
    let sink = null;
    for await (let chunk of chunks) {
      if (sink === null) {
        const { used, entries } = header.push(chunk);
        if (entries === null) continue;
        sink = new ShardSink(this.#runtime, this.#plan(entries, file));
        chunk = chunk.subarray(used);
      }
      sink.push(chunk);
    }
    if (sink === null) throw new ArtifactCorrupt(`${file} ends inside its header`);
  }

  /** Check that every row came, and let the module finish. */
  seal() {
    for (const { tensor, rowsDone } of this.#targets) {
      if (rowsDone !== tensor.shape[0]) {
        throw new ArtifactMissing(
          `the shards hold ${rowsDone} of the ${tensor.shape[0]} rows of tensor '${tensor.name}'; ` +
            "export the model again",
        );
      }
    }
    this.#runtime.check(this.#runtime.exports.v_seal(), "finishing the weights");
  }

  /**
   * Match a shard's entries with the program's tensors.
   *
   * @param {ShardEntry[]} entries in the order of their data
   * @param {string} file
   * @returns {{group: Group, part: number, bytes: number}[]} in the same order
   */
  #plan(entries, file) {
    /** @type {Map<Target, Group>} */
    const groups = new Map();
    const planned = entries.map((entry) => {
      const [, base, piece] = /^(.*?)(?:#([1-9]\d{0,8}))?$/s.exec(entry.name) ?? [];
      const found = this.#byName.get(base);
      const bad = (/** @type {string} */ what) =>
        new ArtifactCorrupt(`${file}: tensor '${entry.name.slice(0, 80)}' ${what}`);
      if (found === undefined) throw bad("does not belong to the program");
      const { target, part } = found;
      if (Number(piece ?? 0) !== target.pieces) throw bad("is out of order among the shards");
      const { dtype, rowShape } = target.parts[part];
      const [rows = 0, ...rest] = entry.shape;
      if (entry.dtype !== dtype || rest.join() !== rowShape.join() || rows === 0) {
        throw bad(
          `is ${entry.dtype} [${entry.shape}], expected ${dtype} [${["rows", ...rowShape]}]`,
        );
      }
      let group = groups.get(target);
      if (group === undefined) {
        const held = target.parts.map(() => null);
        group = { target, row0: target.rowsDone, rows, held, last: part };
        groups.set(target, group);
      }
      if (rows !== group.rows) throw bad(`has ${rows} rows, its other parts have ${group.rows}`);
      group.last = part;
      return { group, part, bytes: entry.end - entry.begin };
    });
    for (const { target, rows } of groups.values()) {
      const { tensor, parts } = target;
      const count = planned.filter((p) => p.group.target === target).length;
      if (count !== parts.length) {
        throw new ArtifactCorrupt(
          `${file} holds ${count} of the ${parts.length} parts of tensor '${tensor.name}'`,
        );
      }
      target.rowsDone += rows;
      target.pieces += 1;
      const over = target.rowsDone - tensor.shape[0];
      if (over > 0 || (over < 0 && rows % ROW_MULTIPLE !== 0)) {
        throw new ArtifactCorrupt(
          `${file}: tensor '${tensor.name}' has ${rows} rows up to row ${target.rowsDone} of ` +
            `${tensor.shape[0]}; all but its last rows come in multiples of ${ROW_MULTIPLE}`,
        );
      }
    }
    return planned;
  }
}

/** Takes a shard's data section, chunk by chunk, and writes rows as they become complete. */
class ShardSink {
  #runtime;
  #planned;
  #at = 0; // entry being filled
  #filled = 0; // bytes of it that came, or of its current piece when it is staged
  #row = 0; // rows of the current group already written

  /**
   * @param {Runtime} runtime
   * @param {{group: Group, part: number, bytes: number}[]} planned
   */
  constructor(runtime, planned) {
    this.#runtime = runtime;
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
    this.#runtime
      .u8(at[part] + this.#filled, take)
      .set(chunk.subarray(from, from + take));
    this.#filled += take;
    if (this.#filled === bytes) {
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
    this.#runtime.check(
      this.#runtime.exports.v_write_rows(target.index, row0 + this.#row, rows, data, scale, min),
      `writing rows of tensor '${target.tensor.name}'`,
    );
  }

  #next() {
    const { group, part } = this.#planned[this.#at];
    if (part === group.last) group.held.fill(null);
    this.#at += 1;
    this.#filled = 0;
    this.#row = 0;
  }
}
