/**
 * An independent instance's side: a runtime with a memory and weights of its own, in a
 * worker. The pool calls its methods by messages.
 */
import { chunksOf } from "../artifact/streams.js";
import { DeviceLost, toPlain } from "../errors.js";
import { decodeProgram } from "../program/format.js";
import { Workspace } from "../step/workspace.js";
import { Runtime } from "../wasm/instance.js";
import { WeightLoader } from "../wasm/load.js";
import { InlinePool } from "./inline.js";

/** @typedef {import("../wasm/instance.js").RuntimeOptions} RuntimeOptions */

/**
 * @typedef {object} ShardInput a shard on its way in
 * @property {WritableStreamDefaultWriter<Uint8Array>} writer
 * @property {Promise<void>} loaded
 */

export class Instance {
  #runtime;
  #loader;
  #pool;
  /** @type {Map<string, ShardInput>} */
  #shards = new Map();

  /** @param {Runtime} runtime @param {Uint8Array} programBytes */
  constructor(runtime, programBytes) {
    const program = decodeProgram(programBytes);
    this.#runtime = runtime;
    this.#loader = new WeightLoader(runtime, program.tensors);
    this.#pool = new InlinePool(runtime, new Workspace(runtime, 0, program), null);
  }

  /** @param {RuntimeOptions} options */
  static async create(options) {
    return new Instance(await Runtime.create(options), options.program);
  }

  /** Begin a shard; calls come in the order of the shards. @param {string} name @param {number} bytes */
  beginShard(name, bytes) {
    const { readable, writable } = new TransformStream();
    const loaded = this.#loader.loadShard(chunksOf(readable), name, bytes);
    loaded.catch(() => {}); // seen by whoever writes or ends it
    this.#shards.set(name, { writer: writable.getWriter(), loaded });
  }

  /**
   * @param {string} name
   * @param {Uint8Array} chunk
   * @returns {Promise<void>} when there is room for another
   */
  async writeShard(name, chunk) {
    const { writer, loaded } = this.#shard(name);
    // A loader that fails cancels its stream, which says less than the loader's own error.
    await writer.write(chunk).catch(() => loaded);
  }

  /** @param {string} name */
  async endShard(name) {
    const { writer, loaded } = this.#shard(name);
    await writer.close().catch(() => loaded);
    await loaded;
    this.#shards.delete(name);
  }

  /** @returns {import("./runner.js").MemoryBytes} */
  seal() {
    this.#loader.seal();
    return this.#runtime.memoryBytes();
  }

  /** @param {import("./runner.js").Step} step */
  run(step) {
    return this.#pool.run(step);
  }

  /** @param {string} name */
  #shard(name) {
    const shard = this.#shards.get(name);
    if (shard === undefined) throw new DeviceLost(`the shard ${name} was not begun`);
    return shard;
  }
}

/**
 * Answer the pool's calls: `{call, method, args}` with `{call, result}` or `{call, error}`.
 *
 * @param {(message: unknown, transfer?: Transferable[]) => void} post
 * @returns {(message: {call: number, method: string, args: any[]}) => Promise<void>}
 */
export function serveInstance(post) {
  /** @type {any} */
  let instance = null;
  return async ({ call, method, args }) => {
    try {
      if (method === "create") {
        instance = await Instance.create(args[0]);
        post({ call, result: null });
        return;
      }
      const result = await instance[method](...args);
      post({ call, result }, result?.output ? [result.output.buffer] : []);
    } catch (error) {
      post({ call, error: toPlain(error) });
    }
  };
}
