/**
 * Chooses and starts what runs a program's steps: threads over one shared memory, independent
 * instances in workers, or the calling thread.
 */
import { PARALLEL_READS } from "./artifact/reader.js";
import { Sha256 } from "./artifact/sha256.js";
import { DeviceLost, InvalidInput, OutOfMemory } from "./errors.js";
import { InlinePool } from "./pool/inline.js";
import { InstancePool } from "./pool/instances.js";
import { WorkerReserve } from "./pool/reserve.js";
import { ThreadPool } from "./pool/threads.js";
import { Workspace } from "./step/workspace.js";
import { Runtime } from "./wasm/instance.js";
import { wasmHash } from "./wasm/hasher.js";
import { stagingBytes, WeightLoader } from "./wasm/load.js";
import { canPostSharedMemory } from "./wasm/probes.js";
import { chooseVariant, loadModule } from "./wasm/variants.js";

/** @typedef {import("./hosts/web.js").Host} Host */
/** @typedef {import("./pool/runner.js").MemoryBytes} MemoryBytes */
/** @typedef {import("./pool/runner.js").SpawnWorker} SpawnWorker */
/** @typedef {import("./pool/runner.js").StepRunner} StepRunner */
/** @typedef {import("./program/format.js").ProgramInfo} ProgramInfo */
/** @typedef {import("./wasm/instance.js").CacheOptions} CacheOptions */
/** @typedef {import("./wasm/load.js").Shard} Shard */
/** @typedef {import("./wasm/variants.js").Variant} Variant */
/** @typedef {import("./wasm/variants.js").WasmOptions} WasmOptions */

/**
 * `threads`: one memory, one copy of the weights, all threads in one step or one in each.
 * `instances`: for hosts without shared memory, and to keep a page's main thread free: a
 * worker with a copy of its own for every thread asked for. `inline`: the calling thread.
 *
 * @typedef {"threads" | "instances" | "inline"} PoolKind
 */

/**
 * @typedef {object} PoolOptions
 * @property {number} threads asked for
 * @property {PoolKind} [pool] by default the best that the host has
 * @property {WasmOptions} [wasm]
 * @property {import("./hosts/web.js").WorkerOption} [worker] the pool's workers, where those of
 *   this package cannot be loaded
 */

/**
 * @typedef {object} Plan
 * @property {PoolKind} kind
 * @property {number} count threads or instances
 */

/**
 * @typedef {object} Model the program, and the sizes it is to be run with
 * @property {ProgramInfo} program
 * @property {Uint8Array} bytes of the program
 * @property {number} maxTokens
 * @property {number} maxSeqs
 * @property {CacheOptions | null} cache of a decoder
 * @property {(limits: {workspaces: number}) => number} expectedBytes
 */

/**
 * @typedef {object} Backend
 * @property {StepRunner} runner
 * @property {PoolKind} kind
 * @property {Variant} variant
 * @property {MemoryBytes} memoryBytes of all its memories together
 */

const KINDS = ["threads", "instances", "inline"];

/** Starts backends of one host, and remembers what was found out about it. */
export class BackendStarter {
  /** What the host could not give. @type {string[]} */
  warnings = [];
  #host;
  #options;
  #reserve = new WorkerReserve((events) => this.#spawn(events));
  /** @type {() => import("./artifact/verify.js").Hash} */
  #hash;
  /** @type {Promise<Plan>} */
  #plan;
  /** When the build is there and hashes with it can be made. @type {Promise<void>} */
  #prepared;
  /** By build. @type {Map<Variant, Promise<WebAssembly.Module>>} */
  #modules = new Map();

  /**
   * Find out what the host can do, get the wasm build that it needs and start workers; all of
   * it begins now. To be started, or released.
   *
   * @param {Host} host
   * @param {PoolOptions} options
   */
  constructor(host, options) {
    this.#host = host;
    this.#options = options;
    this.#hash = host.createHash ?? (() => new Sha256());
    this.#plan = this.#choose();
    // Whoever starts a backend sees what goes wrong here.
    this.#prepared = this.#plan.then((plan) => this.#prepare(plan)).catch(() => {});
  }

  /** @returns {import("./artifact/verify.js").Hash} the fastest there is by now */
  createHash() {
    return this.#hash();
  }

  /** Stop what was begun and is not used: the load failed before its backend was started. */
  release() {
    this.#reserve.release();
  }

  /** @param {Plan} plan */
  async #prepare({ kind, count }) {
    // Of several instances a decoder uses one, and what the model is nobody knows yet.
    if (kind !== "inline") this.#reserve.fill(kind === "threads" ? count : 1);
    const { module, variant } = await this.#build(kind === "threads");
    if (!this.#host.createHash) this.#hash = await wasmHash(module, variant);
  }

  /**
   * Make the memory, stream the weights in, start the workers.
   *
   * @param {Model} model
   * @param {readonly Shard[]} shards in order
   * @returns {Promise<Backend>}
   */
  async start(model, shards) {
    try {
      return await this.#start(model, shards);
    } finally {
      this.release();
    }
  }

  /**
   * @param {Model} model
   * @param {readonly Shard[]} shards
   * @returns {Promise<Backend>}
   */
  async #start(model, shards) {
    let { kind, count } = await this.#plan;
    await this.#prepared;
    for (;;) {
      try {
        if (kind === "threads") return await this.#startThreads(model, shards, count);
        // The cache of a decoder's sequences is in one place.
        if (model.cache !== null) count = 1;
        if (kind === "instances") return await this.#startInstances(model, shards, count);
        return await this.#startInline(model, shards);
      } catch (error) {
        if (!(error instanceof StartFailure)) throw error;
        this.#warn(`${count} threads were asked for, but ${error.message}; running on 1`);
        kind = kind === "threads" && this.#host.hasInterface ? "instances" : "inline";
        count = 1;
      }
    }
  }

  /** @returns {Promise<Plan>} */
  async #choose() {
    const { threads, pool } = this.#options;
    const { spawn, hasInterface } = this.#host;
    if (pool !== undefined && !KINDS.includes(pool)) {
      throw new InvalidInput(`pool is ${String(pool)}, expected one of ${KINDS.join(", ")}`);
    }
    const asked = `${threads} threads were asked for, but`;
    if (pool === "inline" || spawn === null) {
      if (threads > 1) this.#warn(`${asked} there are no workers here; running on 1`);
      return { kind: "inline", count: 1 };
    }
    if (threads === 1) {
      const kind = pool === "instances" || (!pool && hasInterface) ? "instances" : "inline";
      return { kind, count: 1 };
    }
    if (pool === "instances" || (await canPostSharedMemory())) {
      return { kind: pool ?? "threads", count: threads };
    }
    this.#warn(
      `${asked} this host cannot share memory between threads (a web page needs the COOP and ` +
        "COEP headers); running copies of the model side by side, each step on 1 thread",
    );
    return { kind: "instances", count: threads };
  }

  /**
   * @param {Model} model
   * @param {readonly Shard[]} shards
   * @param {number} threads
   * @returns {Promise<Backend>}
   */
  async #startThreads(model, shards, threads) {
    const workspaces = model.cache === null ? threads : 1;
    const options = await this.#runtimeOptions(model, { threads, workspaces });
    const runtime = await Runtime.create(options).catch((error) => {
      throw error instanceof OutOfMemory ? new StartFailure(error.message) : error;
    });
    const all = runtime.workspaces.map((_, ws) => new Workspace(runtime, ws, model.program));
    // Workers start while the weights arrive; failing to start is not failing to load.
    const starting = ThreadPool.start(runtime, all, this.#reserve.take).catch((cause) => {
      this.#warn(`worker threads could not be started (${cause}); running on 1 thread`);
      return new InlinePool(runtime, all[0], this.#host.nextTask);
    });
    try {
      await loadInto(runtime, model, shards);
    } catch (error) {
      await (await starting).close();
      throw error;
    }
    const memoryBytes = runtime.memoryBytes();
    return { runner: await starting, kind: "threads", variant: options.variant, memoryBytes };
  }

  /**
   * @param {Model} model
   * @param {readonly Shard[]} shards
   * @param {number} count
   * @returns {Promise<Backend>}
   */
  async #startInstances(model, shards, count) {
    const options = await this.#runtimeOptions(model, { threads: 1, workspaces: 1 });
    const runner = await InstancePool.start(options, count, this.#reserve.take).catch((cause) => {
      const message = `workers could not be started (${cause instanceof Error ? cause.message : cause})`;
      throw new StartFailure(message);
    });
    try {
      const memoryBytes = await runner.loadShards(shards, PARALLEL_READS);
      return { runner, kind: "instances", variant: options.variant, memoryBytes };
    } catch (error) {
      await runner.close();
      throw error;
    }
  }

  /**
   * @param {Model} model
   * @param {readonly Shard[]} shards
   * @returns {Promise<Backend>}
   */
  async #startInline(model, shards) {
    const options = await this.#runtimeOptions(model, { threads: 1, workspaces: 1 });
    const runtime = await Runtime.create(options);
    await loadInto(runtime, model, shards);
    const workspace = new Workspace(runtime, 0, model.program);
    const runner = new InlinePool(runtime, workspace, this.#host.nextTask);
    const memoryBytes = runtime.memoryBytes();
    return { runner, kind: "inline", variant: options.variant, memoryBytes };
  }

  /**
   * @param {Model} model
   * @param {{threads: number, workspaces: number}} sizes
   * @returns {Promise<import("./wasm/instance.js").RuntimeOptions>}
   */
  async #runtimeOptions(model, sizes) {
    const { program, bytes, maxTokens, maxSeqs, cache, expectedBytes } = model;
    const { variant, module } = await this.#build(sizes.threads > 1);
    return {
      module,
      variant,
      program: bytes,
      maxTokens,
      maxSeqs,
      cache,
      stagingBytes: stagingBytes(program.tensors),
      expectedBytes: expectedBytes(sizes),
      ...sizes,
    };
  }

  /**
   * @param {boolean} shared whether its memory is
   * @returns {Promise<{variant: Variant, module: WebAssembly.Module}>}
   */
  async #build(shared) {
    const wasm = this.#options.wasm ?? this.#host.wasm ?? {};
    const variant = chooseVariant(shared, wasm);
    let module = this.#modules.get(variant);
    if (module === undefined) {
      module = loadModule(variant, wasm, this.#host.readFile);
      this.#modules.set(variant, module);
    }
    return { variant, module: await module };
  }

  /** @type {SpawnWorker} */
  #spawn(events) {
    const { spawn } = this.#host;
    if (spawn === null) throw new DeviceLost("this host has no workers");
    return spawn(events, this.#options.worker);
  }

  /** @param {string} text */
  #warn(text) {
    if (!this.warnings.includes(text)) this.warnings.push(text);
  }
}

/** A kind of backend that the host cannot start; another kind may do. */
class StartFailure extends Error {}

/**
 * @param {Runtime} runtime
 * @param {Model} model
 * @param {readonly Shard[]} shards
 */
async function loadInto(runtime, { program }, shards) {
  const loader = new WeightLoader(runtime, program.tensors);
  await loader.loadShards(shards, PARALLEL_READS);
  loader.seal();
}
