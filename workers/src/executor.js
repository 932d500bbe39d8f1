/**
 * The executor: a program with its weights in wasm memory, and the threads that run it.
 * Every host makes it from bytes, so the table of op cases runs without artifacts.
 */
import { BackendStarter } from "./backend.js";
import { Aborted, InvalidInput } from "./errors.js";
import { RecoveringPool } from "./pool/recovery.js";
import { decodeProgram } from "./program/format.js";
import { StepChecker } from "./step/check.js";
import { samplingWords } from "./step/check-sampling.js";
import { KV_FORMATS } from "./wasm/instance.js";

/** @typedef {import("./hosts/web.js").Host} Host */
/** @typedef {import("./backend.js").Backend} Backend */
/** @typedef {import("./pool/runner.js").StepRunner} StepRunner */
/** @typedef {import("./program/format.js").ProgramInfo} ProgramInfo */
/** @typedef {import("./step.js").Step} Step */
/** @typedef {import("./step.js").StepLimits} StepLimits */
/** @typedef {import("./step.js").StepResult} StepResult */
/** @typedef {import("./wasm/instance.js").CacheOptions} CacheOptions */

export const MAX_THREADS = 64;

/** @typedef {import("./wasm/load.js").Shard} Shard */

/**
 * @typedef {object} ExecutorOptions
 * @property {number} threads asked for; `WasmExecutor.threads` says what there is
 * @property {number} maxTokens most tokens in a step
 * @property {number} maxSeqs most sequences in a step
 * @property {number} [kvBlocks] of a decoder, which needs it: blocks of its key-value cache,
 *   32 tokens each
 * @property {"f32" | "f16"} [kvFormat] of a decoder: how the cache stores keys and values,
 *   f32 by default
 * @property {number} [maxWanted] of a decoder: most wanted rows in a step; by default
 *   `maxSeqs`
 * @property {import("./wasm/variants.js").WasmOptions} [wasm]
 * @property {import("./backend.js").PoolKind} [pool]
 * @property {BackendStarter} [starter] one that has begun already, with the same options
 * @property {boolean} [recover] whether the shards can be read again after the backend died
 * @property {(limits: {workspaces: number}) => number} [expectedBytes] what memory the
 *   artifact says it needs, the cache included
 */

export class WasmExecutor {
  /** @type {{pool: StepRunner, checker: StepChecker} | null} null once closed */
  #loaded;
  /** @type {Promise<void> | null} */
  #closing = null;

  /**
   * Use `WasmExecutor.create`.
   *
   * @param {Backend} backend
   * @param {StepRunner} pool what runs its steps
   * @param {ProgramInfo} program
   * @param {StepLimits} limits
   * @param {readonly string[]} warnings
   */
  constructor(backend, pool, program, limits, warnings) {
    this.#loaded = { pool, checker: new StepChecker(program, limits) };
    this.program = program;
    this.limits = limits;
    /** What runs the steps. */
    this.pool = backend.kind;
    /** The wasm build in use. */
    this.variant = backend.variant;
    /** Most threads in a step. */
    this.threads = pool.threads;
    /** Steps in flight at once. */
    this.concurrency = pool.concurrency;
    /** Bytes of weights, workspaces, the key-value cache, and all together. */
    this.memoryBytes = backend.memoryBytes;
    /** What the host could not give. */
    this.warnings = warnings;
  }

  /**
   * Validate the program, allocate, stream the shards in, start the workers.
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
    const starter = options.starter ?? new BackendStarter(host, options);
    const model = {
      program,
      bytes: programBytes,
      maxTokens: limits.maxTokens,
      maxSeqs: limits.maxSeqs,
      cache: program.isDecoder ? cacheOf(program, limits, options.kvFormat) : null,
      expectedBytes: options.expectedBytes ?? (() => 0),
    };
    const backend = await starter.start(model, shards);
    const again = async () => (await starter.start(model, shards)).runner;
    const recover = options.recover ? again : null;
    const pool = new RecoveringPool(backend.runner, recover, program.isDecoder);
    return new WasmExecutor(backend, pool, program, limits, starter.warnings);
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
   * @throws {DeviceLost} the backend died with this step; a later one starts it again
   * @throws {Aborted} the executor is closed
   */
  async run(step, { threads = this.threads } = {}) {
    integer(threads, 1, MAX_THREADS, "threads");
    if (this.#loaded === null) throw new Aborted("the model is closed; load it again");
    const { pool, checker } = this.#loaded;
    checker.check(step);
    return pool.run(step, threads);
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
