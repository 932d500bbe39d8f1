/**
 * The executor: a program with its weights in wasm memory, and the threads that run it.
 * Every host makes it from bytes, so the table of op cases runs without artifacts.
 */
import { Aborted, InvalidInput, OutOfMemory } from "./errors.js";
import { InlinePool } from "./pool/inline.js";
import { ThreadPool } from "./pool/pool.js";
import { decodeProgram } from "./program/format.js";
import { encodeStep, readResult, writeStep } from "./step.js";
import { Runtime } from "./wasm/instance.js";
import { stagingBytes, WeightLoader } from "./wasm/load.js";
import { canPostSharedMemory } from "./wasm/probes.js";
import { chooseVariant, loadModule } from "./wasm/variants.js";

/** @typedef {import("./hosts/web.js").Host} Host */
/** @typedef {import("./pool/inline.js").StepRunner} StepRunner */
/** @typedef {import("./program/format.js").ProgramInfo} ProgramInfo */
/** @typedef {import("./step.js").Step} Step */
/** @typedef {import("./step.js").StepResult} StepResult */

export const MAX_THREADS = 64;

/**
 * @typedef {object} Shard
 * @property {string} name
 * @property {number} bytes
 * @property {() => AsyncIterable<Uint8Array>} open
 */

/**
 * @typedef {object} ExecutorOptions
 * @property {number} threads asked for; `WasmExecutor.threads` says what there is
 * @property {number} maxTokens most tokens in a step
 * @property {number} maxSeqs most sequences in a step
 * @property {import("./wasm/variants.js").WasmOptions} [wasm]
 * @property {(limits: {workspaces: number}) => number} [expectedBytes] what memory the
 *   artifact says it needs
 */

export class WasmExecutor {
  /** @type {{runtime: Runtime, pool: StepRunner} | null} null once closed */
  #loaded;
  /** @type {Promise<void> | null} */
  #closing = null;

  /**
   * Use `WasmExecutor.create`.
   *
   * @param {Runtime} runtime
   * @param {StepRunner} pool
   * @param {ProgramInfo} program
   * @param {{maxTokens: number, maxSeqs: number}} limits
   * @param {string[]} warnings
   */
  constructor(runtime, pool, program, limits, warnings) {
    this.#loaded = { runtime, pool };
    this.program = program;
    this.limits = limits;
    /** The wasm build in use. */
    this.variant = runtime.variant;
    /** Threads in the pool. */
    this.threads = pool.threads;
    /** Bytes of weights, workspaces, and all together. */
    this.memoryBytes = runtime.memoryBytes();
    /** What the host could not give. */
    this.warnings = warnings;
  }

  /**
   * Validate the program, allocate, stream the shards in, start the threads.
   *
   * @param {Host} host
   * @param {Uint8Array} programBytes
   * @param {readonly Shard[]} shards in order
   * @param {ExecutorOptions} options
   * @returns {Promise<WasmExecutor>}
   */
  static async create(host, programBytes, shards, options) {
    const program = decodeProgram(programBytes);
    const limits = {
      maxTokens: integer(options.maxTokens, 1, 1 << 24, "maxTokens"),
      maxSeqs: integer(options.maxSeqs, 1, 1 << 20, "maxSeqs"),
    };
    integer(options.threads, 1, MAX_THREADS, "threads");
    /** @type {string[]} */
    const warnings = [];
    const runtime = await createRuntime(host, options, warnings, {
      program: programBytes,
      ...limits,
      stagingBytes: stagingBytes(program.tensors),
    });
    // Workers start while the weights arrive; failing to start is not failing to load.
    const starting = startPool(host, runtime, warnings);
    try {
      const loader = new WeightLoader(runtime, program.tensors);
      for (const shard of shards) await loader.loadShard(shard.open(), shard.name, shard.bytes);
      loader.seal();
    } catch (error) {
      await (await starting).close();
      throw error;
    }
    return new WasmExecutor(runtime, await starting, program, limits, warnings);
  }

  /**
   * Execute one step. Steps may be submitted while others run: they start in order, as
   * threads become idle, and each result is what it would be alone.
   *
   * @param {Step} step
   * @param {{threads?: number}} [options] `threads`: how many of the pool's threads run it,
   *   by default all; the result does not depend on it
   * @returns {Promise<StepResult>}
   * @throws {InvalidInput} the step breaks a limit, names a token outside the vocabulary or
   *   a position past the model's; nothing was computed
   * @throws {DeviceLost} the backend died
   * @throws {Aborted} the executor is closed
   */
  async run(step, { threads = this.threads } = {}) {
    integer(threads, 1, MAX_THREADS, "threads");
    const encoded = encodeStep(step, this.limits);
    if (this.#loaded === null) throw new Aborted("the model is closed; load it again");
    const { runtime, pool } = this.#loaded;
    return pool.run(
      threads,
      (ws) => writeStep(runtime, ws, encoded),
      (ws, deviceNs) => readResult(runtime, ws, this.program.output, deviceNs),
    );
  }

  /**
   * Let steps in flight end, refuse the others, free everything. Idempotent. The memory can
   * be collected afterwards even if the executor is kept.
   *
   * @returns {Promise<void>}
   */
  close() {
    this.#closing ??= this.#loaded?.pool.close() ?? Promise.resolve();
    this.#loaded = null;
    return this.#closing;
  }
}

/**
 * @param {Host} host
 * @param {ExecutorOptions} options
 * @param {string[]} warnings
 * @param {{program: Uint8Array, maxTokens: number, maxSeqs: number, stagingBytes: number}} rest
 */
async function createRuntime(host, options, warnings, rest) {
  const { threads, wasm = {}, expectedBytes = () => 0 } = options;
  const create = async (/** @type {number} */ count) => {
    const variant = chooseVariant(count > 1, wasm);
    const module = await loadModule(variant, wasm, host.readFile);
    const expected = expectedBytes({ workspaces: count });
    return Runtime.create({ module, variant, threads: count, expectedBytes: expected, ...rest });
  };
  if (threads === 1) return create(1);
  if (host.spawn === null || !(await canPostSharedMemory())) {
    warnings.push(
      `${threads} threads were asked for, but this host cannot share memory between threads; ` +
        "running on 1 (a web page needs the COOP and COEP headers)",
    );
    return create(1);
  }
  try {
    return await create(threads);
  } catch (error) {
    if (!(error instanceof OutOfMemory)) throw error;
    warnings.push(`${threads} threads were asked for, but ${error.message}; running on 1`);
    return create(1);
  }
}

/**
 * @param {Host} host
 * @param {Runtime} runtime
 * @param {string[]} warnings
 * @returns {Promise<StepRunner>}
 */
async function startPool(host, runtime, warnings) {
  if (runtime.workspaces.length === 1 || host.spawn === null) return new InlinePool(runtime);
  try {
    return await ThreadPool.start(runtime, host.spawn);
  } catch (cause) {
    warnings.push(`worker threads could not be started (${cause}); running on 1 thread`);
    return new InlinePool(runtime);
  }
}

/**
 * @param {unknown} value
 * @param {number} low
 * @param {number} high
 * @param {string} name
 * @returns {number}
 */
function integer(value, low, high, name) {
  if (typeof value !== "number" || !Number.isInteger(value) || value < low || value > high) {
    throw new InvalidInput(`${name} is ${String(value)}, expected an integer ${low} to ${high}`);
  }
  return value;
}
