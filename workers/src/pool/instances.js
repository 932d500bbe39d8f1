/**
 * A pool without shared memory: P workers, each with an instance, a memory and the weights
 * of its own. A step runs on one of them, P steps side by side.
 */
import { Aborted, DeviceLost, fromPlain } from "../errors.js";
import { eachShard } from "../wasm/load.js";
import { Window } from "./window.js";

/** @typedef {import("../wasm/instance.js").RuntimeOptions} RuntimeOptions */
/** @typedef {import("../wasm/load.js").Shard} Shard */
/** @typedef {import("./runner.js").MemoryBytes} MemoryBytes */
/** @typedef {import("./runner.js").PoolWorker} PoolWorker */
/** @typedef {import("./runner.js").SpawnWorker} SpawnWorker */
/** @typedef {import("./runner.js").Step} Step */
/** @typedef {import("./runner.js").StepResult} StepResult */
/** @typedef {import("./runner.js").StepRunner} StepRunner */

/**
 * @typedef {object} Job
 * @property {Step} step
 * @property {(result: StepResult) => void} resolve
 * @property {(error: unknown) => void} reject
 */

/** @implements {StepRunner} */
export class InstancePool {
  threads = 1;
  /** @type {DeviceLost | null} */
  lost = null;
  /** @type {RemoteInstance[]} */
  #instances = [];
  /** @type {RemoteInstance[]} */
  #idle = [];
  /** @type {Job[]} */
  #queue = [];
  #closed = false;
  #running = 0;
  /** @type {(() => void) | null} */
  #onDrained = null;

  /**
   * Start `count` workers with an empty instance each.
   *
   * @param {RuntimeOptions} options of every instance
   * @param {number} count
   * @param {SpawnWorker} spawn
   * @returns {Promise<InstancePool>}
   * @throws {OutOfMemory} the host refuses the memory
   */
  static async start(options, count, spawn) {
    const pool = new InstancePool();
    try {
      const starting = Array.from({ length: count }, async () => {
        const instance = new RemoteInstance(spawn, (cause) => pool.#lose(cause));
        pool.#instances.push(instance);
        await instance.loaded;
        await instance.call("create", options);
      });
      await Promise.all(starting);
    } catch (error) {
      await pool.#terminate();
      throw error;
    }
    pool.#idle = [...pool.#instances];
    return pool;
  }

  get concurrency() {
    return this.#instances.length;
  }

  /**
   * Give every instance the weights; they are read once.
   *
   * @param {readonly Shard[]} shards in order
   * @param {number} parallel how many are read at once
   * @returns {Promise<MemoryBytes>} of all instances together
   */
  async loadShards(shards, parallel) {
    await eachShard(shards, parallel, async ({ name, bytes, open }) => {
      const sent = new Window();
      await sent.add(this.#all("beginShard", name, bytes), 0);
      for await (const chunk of open()) await sent.add(this.#write(name, chunk), chunk.length);
      await sent.settle();
      await this.#all("endShard", name);
    });
    const sizes = /** @type {MemoryBytes[]} */ (await this.#all("seal"));
    const sum = (/** @type {keyof MemoryBytes} */ what) => sizes.reduce((n, m) => n + m[what], 0);
    return {
      weights: sum("weights"),
      workspaces: sum("workspaces"),
      cache: sum("cache"),
      total: sum("total"),
    };
  }

  /**
   * @param {Step} step
   * @returns {Promise<StepResult>}
   */
  run(step) {
    if (this.#closed) return Promise.reject(new Aborted("the model is closed; load it again"));
    if (this.lost) return Promise.reject(this.lost);
    return new Promise((resolve, reject) => {
      this.#queue.push({ step, resolve, reject });
      this.#dispatch();
    });
  }

  async close() {
    if (!this.#closed) {
      this.#closed = true;
      this.#refuse(new Aborted("the model is closed; load it again"));
    }
    if (this.#running > 0) {
      await new Promise((resolve) => (this.#onDrained = () => resolve(undefined)));
    }
    await this.#terminate();
  }

  #dispatch() {
    while (this.#queue.length > 0 && this.#idle.length > 0 && !this.lost) {
      const job = /** @type {Job} */ (this.#queue.shift());
      const instance = /** @type {RemoteInstance} */ (this.#idle.pop());
      void this.#runOn(instance, job);
    }
  }

  /**
   * @param {RemoteInstance} instance
   * @param {Job} job
   */
  async #runOn(instance, { step, resolve, reject }) {
    this.#running += 1;
    try {
      resolve(await instance.call("run", step));
    } catch (error) {
      if (error instanceof DeviceLost) this.#lose(error);
      reject(error);
    }
    this.#running -= 1;
    this.#idle.push(instance);
    this.#dispatch();
    if (this.#running === 0) this.#onDrained?.();
  }

  /**
   * One died: its step fails, those of the others end.
   *
   * @param {DeviceLost} error
   */
  #lose(error) {
    this.lost ??= error;
    this.#refuse(this.lost);
  }

  /** @param {Error} error */
  #refuse(error) {
    for (const job of this.#queue.splice(0)) job.reject(error);
  }

  /**
   * @param {string} method
   * @param {...unknown} args
   * @returns {Promise<unknown[]>}
   */
  #all(method, ...args) {
    return Promise.all(this.#instances.map((instance) => instance.call(method, ...args)));
  }

  /**
   * @param {string} name of a shard
   * @param {Uint8Array} chunk
   */
  #write(name, chunk) {
    return Promise.all(
      this.#instances.map((instance) => {
        // Not `slice`: that of Node's buffers copies nothing.
        const copy = new Uint8Array(chunk);
        return instance.send([copy.buffer], "writeShard", name, copy);
      }),
    );
  }

  async #terminate() {
    await Promise.all(this.#instances.map((instance) => instance.terminate()));
  }
}

/** An instance in a worker, as this side sees it. */
class RemoteInstance {
  /** @type {PoolWorker} */
  #worker;
  #calls = 0;
  /** @type {Map<number, {resolve: (result: any) => void, reject: (error: unknown) => void}>} */
  #pending = new Map();
  /** @type {DeviceLost | null} */
  #dead = null;
  #onLost;

  /**
   * @param {SpawnWorker} spawn
   * @param {(error: DeviceLost) => void} onLost
   */
  constructor(spawn, onLost) {
    this.#onLost = onLost;
    /** When the worker's script runs. @type {Promise<void>} */
    this.loaded = new Promise((resolve, reject) => this.#pending.set(0, { resolve, reject }));
    this.loaded.catch(() => {});
    this.#worker = spawn({
      onError: (cause) => this.#die(cause),
      onMessage: (message) => {
        if (message.type === "failed") this.#die(message.message);
        else if (message.type === "loaded") this.#settle(0, message);
        else this.#settle(message.call, message);
      },
    });
  }

  /**
   * @param {string} method of `Instance`
   * @param {...unknown} args
   * @returns {Promise<any>}
   */
  call(method, ...args) {
    return this.send([], method, ...args);
  }

  /**
   * `call`, and give buffers away with it.
   *
   * @param {ArrayBuffer[]} transfer
   * @param {string} method of `Instance`
   * @param {...unknown} args
   * @returns {Promise<any>}
   */
  send(transfer, method, ...args) {
    if (this.#dead) return Promise.reject(this.#dead);
    const call = ++this.#calls;
    return new Promise((resolve, reject) => {
      this.#pending.set(call, { resolve, reject });
      this.#worker.hold(true);
      this.#worker.post({ type: "instance", call, method, args }, transfer);
    });
  }

  async terminate() {
    await this.#worker.terminate();
    this.#fail(new DeviceLost("the worker was stopped"));
  }

  /**
   * @param {number} call
   * @param {{result?: any, error?: any}} message
   */
  #settle(call, { result, error }) {
    const waiting = this.#pending.get(call);
    this.#pending.delete(call);
    if (this.#pending.size === 0) this.#worker.hold(false);
    if (error) waiting?.reject(fromPlain(error));
    else waiting?.resolve(result);
  }

  /** @param {unknown} cause */
  #die(cause) {
    this.#fail(new DeviceLost(`a worker died (${cause})`, { cause }));
    if (this.#dead) this.#onLost(this.#dead);
  }

  /** @param {DeviceLost} error */
  #fail(error) {
    this.#dead ??= error;
    for (const { reject } of this.#pending.values()) reject(this.#dead);
    this.#pending.clear();
  }
}
