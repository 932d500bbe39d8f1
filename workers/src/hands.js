/**
 * The hands: load an artifact, own its memory, run steps. No tokenizer and no batching
 * here: those belong to the engine above.
 */
import { BackendStarter } from "./backend.js";
import { ArtifactReader } from "./artifact/reader.js";
import { toSource } from "./artifact/source.js";
import { defaultKvBlocks } from "./cache-size.js";
import { checkInt } from "./checks.js";
import { ArtifactCorrupt, throwIfAborted } from "./errors.js";
import { MAX_THREADS, WasmExecutor } from "./executor.js";
import { checkGoldens, parseGoldens } from "./goldens.js";
import { KV_BLOCK } from "./program/ops.js";

/** @typedef {import("./cache/session.js").Cache} Cache */
/** @typedef {import("./hosts/web.js").Host} Host */
/** @typedef {import("./wasm/load.js").Shard} Shard */
/** @typedef {import("./step.js").Step} Step */
/** @typedef {import("./step.js").StepResult} StepResult */

/**
 * @typedef {object} LoadOptions
 * @property {AbortSignal} [signal] cancels the load with `Aborted`
 * @property {(progress: import("./artifact/reader.js").Progress) => void} [onProgress]
 * @property {number} [threads] threads in the pool, 1 by default. Where the host cannot share
 *   memory, copies of the model in as many workers; `model.info.warnings` then says so
 * @property {import("./backend.js").PoolKind} [pool] by default "threads" for several; for one,
 *   a worker in a page and the calling thread elsewhere
 * @property {import("./wasm/variants.js").WasmOptions} [wasm]
 * @property {import("./hosts/web.js").WorkerOption} [worker] a worker of your own
 * @property {Cache | null | false} [cache] where downloaded files are kept; by default the
 *   Cache API in browsers, and nowhere else
 * @property {number} [maxTokens] most tokens in a step; by default 512 or an encoder's limit
 * @property {number} [maxSeqs] most sequences in a step; by default 64
 * @property {number} [kvBlocks] of a decoder: blocks of 32 tokens in the key-value cache that
 *   all sequences share; by default about 256 MiB
 * @property {"f32" | "f16"} [kvFormat] of a decoder: how the cache stores keys and values;
 *   by default f32
 * @property {number} [maxWanted] of a decoder: most wanted rows in a step; by default
 *   `maxSeqs`
 * @property {(manifest: Record<string, any>) => readonly string[]} [files] names of further
 *   files of the artifact to read; `model.files` then has their checked bytes
 * @property {(files: ReadonlyMap<string, Uint8Array>, manifest: Record<string, any>) => void}
 *   [prepare] called with those files while the goldens are computed, which other threads may
 *   do: what the caller makes of them then takes no time of its own. Its error is the load's
 */

/**
 * @typedef {object} ModelInfo
 * @property {import("./wasm/variants.js").Variant} variant the wasm build in use
 * @property {import("./backend.js").PoolKind} pool what runs the steps
 * @property {number} threads most in a step
 * @property {number} concurrency steps in flight at once
 * @property {import("./step.js").StepLimits} limits of a step
 * @property {number} outputWidth columns of the program's output; of a decoder its vocabulary
 * @property {number} vocabSize token ids are below it
 * @property {{weights: number, workspaces: number, cache: number, total: number}} memoryBytes
 * @property {number} loadMs
 * @property {readonly string[]} warnings what the host could not give
 * @property {import("./goldens.js").GoldenReport} goldens
 * @property {Record<string, any>} manifest
 */

const DEFAULT_MAX_TOKENS = 512;
const DEFAULT_MAX_SEQS = 64;

/**
 * A host's `loadModel`.
 *
 * @param {Host} host
 */
export function createLoader(host) {
  /**
   * Load an artifact and check it against its goldens.
   *
   * @param {unknown} from a URL or path of the artifact's folder, its files' bytes by name
   *   (an object or a Map), or any `Source`
   * @param {LoadOptions} [options]
   * @returns {Promise<Model>}
   * @throws {ArtifactError} missing, corrupt or unsupported artifact, or goldens missed
   * @throws {OutOfMemory} the host cannot hold the model
   * @throws {Aborted} `options.signal` fired
   */
  return async function loadModel(from, options = {}) {
    const start = performance.now();
    const { signal, onProgress, threads = 1 } = options;
    checkInt("threads", threads, 1, MAX_THREADS);
    const source = toSource(from, host.source);
    // What the host can do, its wasm build and its workers are found while the manifest is on
    // its way.
    const starter = new BackendStarter(host, { ...options, threads });
    const cache = cacheFor(source, host, options.cache);
    // A native hash that takes any chunk as it comes is as fast.
    const digest = host.createHash ? undefined : host.digest;
    const hashes = { digest, createHash: () => starter.createHash() };
    const reader = new ArtifactReader(source, { signal, onProgress, cache, ...hashes });
    try {
      await reader.open();
      const names = options.files?.(reader.manifest.raw) ?? [];
      reader.begin(names);
      const { executor, files } = await read(reader, names, (program, shards) =>
        WasmExecutor.create(host, program, shards, {
          ...sizesOf(reader.manifest.raw, options),
          threads,
          starter,
          recover: source.rereadable,
        }),
      );
      try {
        const goldens = parseGoldens(await reader.goldens(), executor.program.output.width);
        const [report] = await Promise.all([
          checkGoldens(goldens, executor.limits, (step) => executor.run(step)),
          (async () => options.prepare?.(files, reader.manifest.raw))(),
        ]);
        throwIfAborted(signal, "loading");
        const info = {
          variant: executor.variant,
          pool: executor.pool,
          threads: executor.threads,
          concurrency: executor.concurrency,
          limits: executor.limits,
          outputWidth: executor.program.output.width,
          vocabSize: executor.program.vocabSize,
          memoryBytes: executor.memoryBytes,
          loadMs: performance.now() - start,
          warnings: [...reader.warnings, ...executor.warnings],
          goldens: report,
          manifest: reader.manifest.raw,
        };
        return new Model(executor, goldens, info, files);
      } catch (error) {
        await executor.close();
        throw error;
      }
    } finally {
      reader.close();
      starter.release();
    }
  };
}

/**
 * Read the program, the shards and the files that the caller wants.
 *
 * @param {ArtifactReader} reader
 * @param {readonly string[]} names
 * @param {(program: Uint8Array, shards: readonly Shard[]) => Promise<WasmExecutor>} create
 * @returns {Promise<{executor: WasmExecutor, files: Map<string, Uint8Array>}>}
 */
async function read(reader, names, create) {
  const { shards, files } = reader.manifest;
  const program = await reader.program();
  const toRead = shards.map((name) => {
    return { name, bytes: files[name].bytes, open: () => reader.stream(name) };
  });
  const executor = await create(program, toRead).catch((error) => {
    // A corrupt shard is fetched once more, past every cache.
    if (!(error instanceof ArtifactCorrupt) || !reader.retry()) throw error;
    return create(program, toRead);
  });
  try {
    const contents = await Promise.all(names.map((name) => reader.file(name)));
    return { executor, files: new Map(names.map((name, i) => [name, contents[i]])) };
  } catch (error) {
    await executor.close();
    throw error;
  }
}

/**
 * The sizes of the executor's memory.
 *
 * @param {Record<string, any>} manifest
 * @param {LoadOptions} options
 */
function sizesOf({ generation, limits, memory }, { kvFormat, maxWanted, ...options }) {
  // A decoder's long prompts run in chunks.
  const longest = generation ? 0 : Number(limits?.max_tokens) || 0;
  const maxTokens = options.maxTokens ?? Math.max(DEFAULT_MAX_TOKENS, longest);
  const maxSeqs = options.maxSeqs ?? DEFAULT_MAX_SEQS;
  const kvBlocks =
    options.kvBlocks ?? (generation ? defaultKvBlocks(generation, maxSeqs) : undefined);
  const expectedBytes = (/** @type {{workspaces: number}} */ { workspaces }) => {
    const of = (/** @type {string} */ name) => Number(memory?.[name]) || 0;
    const arena = maxTokens * of("bytes_per_token") + maxSeqs * of("bytes_per_seq");
    const perToken = (Number(generation?.kv_bytes_per_token) || 0) * (kvFormat === "f16" ? 0.5 : 1);
    return of("weights_bytes") + workspaces * arena + (kvBlocks ?? 0) * KV_BLOCK * perToken;
  };
  return { maxTokens, maxSeqs, kvBlocks, kvFormat, maxWanted, expectedBytes };
}

/**
 * @param {import("./artifact/source.js").Source} source
 * @param {Host} host
 * @param {Cache | null | false} [asked]
 * @returns {Cache | null}
 */
function cacheFor(source, host, asked) {
  if (asked !== undefined) return asked || null;
  return source.remote && host.cache ? host.cache() : null;
}

/** A loaded model. Made by `loadModel`. */
export class Model {
  #executor;
  #goldens;

  /**
   * @param {WasmExecutor} executor
   * @param {import("./goldens.js").Goldens} goldens
   * @param {ModelInfo} info
   * @param {ReadonlyMap<string, Uint8Array>} files that the caller asked for
   */
  constructor(executor, goldens, info, files) {
    this.#executor = executor;
    this.#goldens = goldens;
    this.files = files;
    this.info = Object.freeze(info);
  }

  /**
   * Execute one step; see `WasmExecutor.run`.
   *
   * @param {Step} step
   * @param {{threads?: number}} [options]
   * @returns {Promise<StepResult>}
   */
  run(step, options) {
    return this.#executor.run(step, options);
  }

  /**
   * Check the model against the artifact's golden outputs; loading did it once already.
   * A decoder's prompts overwrite its cache: run them when no sequence is in it.
   *
   * @returns {Promise<import("./goldens.js").GoldenReport>}
   */
  runGoldens() {
    return checkGoldens(this.#goldens, this.#executor.limits, (step) => this.run(step));
  }

  /** Let steps in flight end, refuse the others, free everything. Idempotent. */
  close() {
    return this.#executor.close();
  }
}
