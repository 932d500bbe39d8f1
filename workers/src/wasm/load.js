/** Streams the weight shards into the module, row range by row range. */
import { HeaderReader } from "../artifact/safetensors.js";
import { ArtifactCorrupt, ArtifactMissing } from "../errors.js";
import { partsOf } from "../program/parts.js";
import { ROW_MULTIPLE, ShardSink } from "./sink.js";

export { stagingBytes } from "./sink.js";

/** @typedef {import("../program/format.js").Tensor} Tensor */
/** @typedef {import("../artifact/safetensors.js").ShardEntry} ShardEntry */
/** @typedef {import("./instance.js").Runtime} Runtime */
/** @typedef {import("./sink.js").Group} Group */
/** @typedef {import("./sink.js").Planned} Planned */
/** @typedef {import("./sink.js").Target} Target */

/**
 * @typedef {object} Shard
 * @property {string} name
 * @property {number} bytes
 * @property {() => AsyncIterable<Uint8Array>} open
 */

export class WeightLoader {
  #runtime;
  /** @type {Target[]} */
  #targets;
  /** @type {Map<string, {target: Target, part: number}>} */
  #byName = new Map();
  /** When the shards so far have been planned. @type {Promise<unknown>} */
  #planned = Promise.resolve();

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
   * Read shards, some at a time: each streams into its place as soon as the headers of those
   * before it have told where that is.
   *
   * @param {readonly Shard[]} shards in order
   * @param {number} parallel how many are read at once
   */
  loadShards(shards, parallel) {
    return eachShard(shards, parallel, ({ open, name, bytes }) =>
      this.loadShard(open(), name, bytes),
    );
  }

  /**
   * Read one shard. Calls are made in the order of the shards, for rows continue from one to
   * the next, but need not wait for each other.
   *
   * A tensor's last part (its codes, when the shard keeps scales and mins before them) goes
   * straight through the staging buffer, so that only the small parts are held.
   *
   * @param {AsyncIterable<Uint8Array>} chunks
   * @param {string} file
   * @param {number} bytes size of the shard
   */
  async loadShard(chunks, file, bytes) {
    const before = this.#planned;
    const header = new HeaderReader(file, bytes);
    const { promise, resolve, reject } = deferred();
    this.#planned = promise;
    try {
      /** @type {ShardSink | null} */
      let sink = null;
      for await (let chunk of chunks) {
        if (sink === null) {
          const { used, entries } = header.push(chunk);
          if (entries === null) continue;
          await before;
          sink = new ShardSink(this.#runtime, file, this.#plan(entries, file));
          resolve();
          chunk = chunk.subarray(used);
        }
        sink.push(chunk);
      }
      if (sink === null) throw new ArtifactCorrupt(`${file} ends inside its header`);
    } catch (error) {
      reject(error);
      throw error;
    }
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
   * @returns {Planned[]} in the same order
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

/**
 * Do something with every shard, several at a time, begun in their order. After a failure no
 * more are begun.
 *
 * @param {readonly Shard[]} shards
 * @param {number} parallel
 * @param {(shard: Shard) => Promise<void>} use
 */
export async function eachShard(shards, parallel, use) {
  const rest = shards.values();
  let failed = false;
  const some = async () => {
    for (const shard of rest) {
      if (failed) return;
      await use(shard);
    }
  };
  try {
    await Promise.all(Array.from({ length: parallel }, some));
  } finally {
    failed = true;
  }
}

function deferred() {
  /** @type {() => void} */
  let resolve = () => {};
  /** @type {(error: unknown) => void} */
  let reject = () => {};
  const promise = new Promise((/** @type {(value: void) => void} */ yes, no) => {
    resolve = yes;
    reject = no;
  });
  // Later shards see the error; the one that failed throws it itself.
  promise.catch(() => {});
  return { promise, resolve, reject };
}
