/**
 * The executor: a program with its weights in wasm memory, and the threads that run it.
 * Every host makes it from bytes, so the table of op cases runs without artifacts.
 */
import { Aborted, InvalidInput, OutOfMemory } from "./errors.js";
import { PARALLEL_READS } from "./artifact/reader.js";
import { InlinePool } from "./pool/inline.js";
import { ThreadPool } from "./pool/pool.js";
import { decodeProgram } from "./program/format.js";
import { StepChecker } from "./step/check.js";
import { samplingWords } from "./step/check-sampling.js";
import { Workspace } from "./step/workspace.js";
import { KV_FORMATS, Runtime } from "./wasm/instance.js";
import { stagingBytes, WeightLoader } from "./wasm/load.js";
import { canPostSharedMemory } from "./wasm/probes.js";
import { chooseVariant, loadModule } from "./wasm/variants.js";

/** @typedef {import("./hosts/web.js").Host} Host */
/** @typedef {import("./pool/inline.js").StepRunner} StepRunner */
/** @typedef {import("./program/format.js").ProgramInfo} ProgramInfo */
/** @typedef {import("./step.js").Step} Step */
/** @typedef {import("./step.js").StepLimits} StepLimits */
/** @typedef {import("./step.js").StepResult} StepResult */
/** @typedef {import("./wasm/instance.js").CacheOptions} CacheOptions */

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
 * @property {number} [kvBlocks] of a decoder, which needs it: blocks of its key-value cache,
 *   32 tokens each
 * @property {"f32" | "f16"} [kvFormat] of a decoder: how the cache stores keys and values,
 *   f32 by default
 * @property {number} [maxWanted] of a decoder: most wanted rows in a step; by default, and
 *   `maxSeqs`
 * @property {import("./wasm/variants.js").WasmOptions} [wasm]
 * @property {(limits: {workspaces: number}) => number} [expectedBytes] what memory the
 *   artifact says it needs, the cache included
 */

export class WasmExecutor {
  /** @type {{pool: StepRunner, checker: StepChecker, workspaces: Workspace[]} | null} null
   *    once closed */
  #loaded;
  /** @type {Promise<void> | null} */
  #closing = null;

  /**
   * Use `WasmExecutor.create`.
   *
   * @param {Runtime} runtime
   * @param {StepRunner} pool
   * @param {ProgramInfo} program
   * @param {StepLimits} limits
   * @param {string[]} warnings
   */
  constructor(runtime, pool, program, limits, warnings) {
    const workspaces = runtime.workspaces.map((_, ws) => new Workspace(runtime, ws, program));
    this.#loaded = { pool, checker: new StepChecker(program, limits), workspaces };
    this.program = program;
    this.limits = limits;
    /** The wasm build in use. */
    this.variant = runtime.variant;
    /** Threads in the pool. */
    this.threads = pool.threads;
    /** Bytes of weights, workspaces, the key-value cache, and all together. */
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
    const limits = limitsOf(program, options);
    integer(options.threads, 1, MAX_THREADS, "threads");
    const cache = program.isDecoder ? cacheOf(program, limits, options.kvFormat) : null;
    /** @type {string[]} */
    const warnings = [];
    const runtime = await createRuntime(host, options, warnings, {
      program: programBytes,
      maxTokens: limits.maxTokens,
      maxSeqs: limits.maxSeqs,
      cache,
      stagingBytes: stagingBytes(program.tensors),
    });
    // Workers start while the weights arrive; failing to start is not failing to load.
    const starting = startPool(host, runtime, warnings);
    try {
      const loader = new WeightLoader(runtime, program.tensors);
      await loader.loadShards(shards, PARALLEL_READS);
      loader.seal();
    } catch (error) {
      await (await starting).close();
      throw error;
    }
    return new WasmExecutor(runtime, await starting, program, limits, warnings);
  }

  /**
   * Execute one step. Steps may be submitted while others run: they start in order, as
   * threads become idle, and each result is what it would be alone. A decoder's run one
   * after another, for they share its cache.
   *
   * @param {Step} step
   * @param {{threads?: number}} [options] `threads`: how many of the pool's threads run it,
   *   by default all; the result does not depend on it
   * @returns {Promise<StepResult>}
   * @throws {InvalidInput} the step breaks a limit, names a token, position or block that
   *   does not exist, or samples in a way that is out of range; nothing was computed
   * @throws {DeviceLost} the backend died
   * @throws {Aborted} the executor is closed
   */
  async run(step, { threads = this.threads } = {}) {
    integer(threads, 1, MAX_THREADS, "threads");
    if (this.#loaded === null) throw new Aborted("the model is closed; load it again");
    const { pool, checker, workspaces } = this.#loaded;
    checker.check(step);
    return pool.run(
      threads,
      (ws) => workspaces[ws].write(step),
      (ws, deviceNs) => workspaces[ws].read(deviceNs),
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
 * @param {ProgramInfo} program
 * @param {ExecutorOptions} options
 * @returns {StepLimits}
 */
function limitsOf({ isDecoder }, options) {
  const maxTokens = integer(options.maxTokens, 1, 1 << 24, "maxTokens");
  const maxSeqs = integer(options.maxSeqs, 1, 1 << 20, "maxSeqs");
  const { kvBlocks, maxWanted } = options;
  if (!isDecoder) {
    if (kvBlocks !== undefined || maxWanted !== undefined) {
      throw new InvalidInput("kvBlocks or maxWanted is given, expected neither for an encoder");
    }
    return { maxTokens, maxSeqs, kvBlocks: 0, maxWanted: 0 };
  }
  const wanted = integer(maxWanted ?? maxSeqs, 1, 1 << 24, "maxWanted");
  return {
    maxTokens,
    maxSeqs,
    kvBlocks: integer(kvBlocks, 1, 1 << 24, "kvBlocks"),
    maxWanted: Math.min(wanted, maxTokens),
  };
}

/**
 * @param {ProgramInfo} program a decoder
 * @param {StepLimits} limits
 * @param {CacheOptions["kvFormat"]} [kvFormat]
 * @returns {CacheOptions}
 */
function cacheOf({ vocabSize }, { kvBlocks, maxWanted }, kvFormat = "f32") {
  if (!KV_FORMATS.includes(kvFormat)) {
    throw new InvalidInput(`kvFormat is ${String(kvFormat)}, expected 'f32' or 'f16'`);
  }
  return { kvBlocks, kvFormat, maxWanted, dataWords: samplingWords(vocabSize, maxWanted) };
}

/**
 * @param {Host} host
 * @param {ExecutorOptions} options
 * @param {string[]} warnings
 * @param {{program: Uint8Array, maxTokens: number, maxSeqs: number, stagingBytes: number,
 *   cache: CacheOptions | null}} rest
 */
async function createRuntime(host, options, warnings, rest) {
  const { threads, wasm = {}, expectedBytes = () => 0 } = options;
  const create = async (/** @type {number} */ count) => {
    const variant = chooseVariant(count > 1, wasm);
    const module = await loadModule(variant, wasm, host.readFile);
    const workspaces = rest.cache === null ? count : 1;
    const expected = expectedBytes({ workspaces });
    const sizes = { threads: count, workspaces, expectedBytes: expected };
    return Runtime.create({ module, variant, ...sizes, ...rest });
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
  if (runtime.threads === 1 || host.spawn === null) return new InlinePool(runtime);
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
