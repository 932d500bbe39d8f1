/** An instance of the wasm module with its memory: the loader's and single thread's side. */
import { ArtifactUnsupported, OutOfMemory } from "../errors.js";
import { ABI_VERSION, errorOf, WorkspacePart } from "./abi.js";
import { featuresOf } from "./variants.js";

/** @typedef {import("./abi.js").Exports} Exports */

const PAGE_BYTES = 65536;
// The builds stop a page short of 4 GiB, so that no end of a buffer wraps to 0.
const MAX_PAGES = 65535;
const FIRST_MAX_PAGES = 1024;

/** `v_cache_format`, by its number. */
export const KV_FORMATS = Object.freeze(/** @type {const} */ (["f32", "f16"]));

/**
 * @typedef {object} RuntimeOptions
 * @property {WebAssembly.Module} module
 * @property {import("./variants.js").Variant} variant
 * @property {Uint8Array} program
 * @property {number} maxTokens
 * @property {number} maxSeqs
 * @property {number} threads pool threads
 * @property {number} workspaces steps in flight
 * @property {CacheOptions | null} cache of a decoder
 * @property {number} stagingBytes buffer for rows on their way to `v_write_rows`
 * @property {number} expectedBytes what the artifact says it needs, 0 = unknown
 */

/**
 * @typedef {object} CacheOptions the arguments of `v_cache`
 * @property {number} kvBlocks blocks of 32 tokens
 * @property {"f32" | "f16"} kvFormat
 * @property {number} maxWanted
 * @property {number} dataWords room for the lists and masks of a step's sampling rows
 */

/**
 * @typedef {object} Part where a part of a workspace lies, in bytes
 * @property {number} at
 * @property {number} bytes 0 where the program has no such part
 */

export class Runtime {
  /**
   * @param {RuntimeOptions} options
   * @param {WebAssembly.Memory} memory
   * @param {Exports} exports
   */
  constructor(options, memory, exports) {
    this.module = options.module;
    this.variant = options.variant;
    this.memory = memory;
    this.exports = exports;
    this.staging = this.#alloc(options.stagingBytes);
    this.stagingBytes = options.stagingBytes;
    const { program, maxTokens, maxSeqs, threads, workspaces, cache } = options;
    this.threads = threads;
    const at = this.#alloc(program.length);
    this.u8(at, program.length).set(program);
    this.check(
      exports.v_create(at, program.length, maxTokens, maxSeqs, workspaces, threads),
      "creating the model",
    );
    if (cache !== null) {
      const { kvBlocks, kvFormat, maxWanted, dataWords } = cache;
      this.check(
        exports.v_cache(kvBlocks, KV_FORMATS.indexOf(kvFormat), maxWanted, dataWords),
        "allocating the key-value cache",
      );
    }
    const top = exports.__stack_pointer && exports.v_stack_top(threads) >>> 0;
    if (exports.__stack_pointer && top) exports.__stack_pointer.value = top;
    /** @type {Part[][]} of each workspace, by `WorkspacePart` */
    this.workspaces = Array.from({ length: workspaces }, (_, ws) =>
      Object.values(WorkspacePart).map((part) => ({
        at: exports.v_workspace(ws, part) >>> 0,
        bytes: exports.v_part_bytes(part) >>> 0,
      })),
    );
  }

  /**
   * Instantiate, validate the program and allocate everything the model will ever need:
   * memory does not grow after this.
   *
   * The memory's maximum starts near what the model needs and doubles while that is too
   * small: a shared memory reserves its maximum, and phones refuse a large one.
   *
   * @param {RuntimeOptions} options
   * @returns {Promise<Runtime>}
   * @throws {OutOfMemory} the host refuses the memory
   */
  static async create(options) {
    const expected = Math.ceil((options.expectedBytes * 1.25) / PAGE_BYTES) + 64;
    let pages = Math.min(Math.max(FIRST_MAX_PAGES, expected), MAX_PAGES);
    for (;;) {
      const { memory, exports } = await instantiate(options, pages);
      try {
        return new Runtime(options, memory, exports);
      } catch (error) {
        if (!(error instanceof OutOfMemory) || pages === MAX_PAGES) throw error;
        pages = Math.min(2 * pages, MAX_PAGES);
      }
    }
  }

  /**
   * Throw the typed error of a negative return code.
   *
   * @param {number} code
   * @param {string} what
   */
  check(code, what) {
    if (code < 0) {
      const { v_detail } = this.exports;
      throw errorOf(code, v_detail(0) >>> 0, v_detail(1) >>> 0, what);
    }
  }

  // Views are made anew for every use: growing detaches the old ones.

  /**
   * @param {number} at
   * @param {number} length
   */
  u8(at, length) {
    return new Uint8Array(this.memory.buffer, at, length);
  }

  /**
   * @param {number} at
   * @param {number} length
   */
  u32(at, length) {
    return new Uint32Array(this.memory.buffer, at, length);
  }

  /**
   * @param {number} at
   * @param {number} length
   */
  i32(at, length) {
    return new Int32Array(this.memory.buffer, at, length);
  }

  /**
   * @param {number} at
   * @param {number} length
   */
  f32(at, length) {
    return new Float32Array(this.memory.buffer, at, length);
  }

  /** @returns {{weights: number, workspaces: number, cache: number, total: number}} bytes */
  memoryBytes() {
    const of = (/** @type {number} */ which) => Number(this.exports.v_memory_bytes(which));
    return { weights: of(0), workspaces: of(1), cache: of(3), total: of(2) };
  }

  /** @param {number} bytes */
  #alloc(bytes) {
    const at = this.exports.v_alloc(bytes) >>> 0;
    if (at === 0) {
      throw new OutOfMemory(
        `WebAssembly memory cannot grow by ${bytes} bytes; close other models or tabs`,
        { bytesRequested: bytes },
      );
    }
    return at;
  }
}

/**
 * An instance with a memory of its own.
 *
 * @param {Pick<RuntimeOptions, "module" | "variant">} build
 * @param {number} maximum pages
 * @returns {Promise<{memory: WebAssembly.Memory, exports: Exports}>}
 */
export async function instantiate({ module, variant }, maximum) {
  const shared = variant.endsWith("-threads");
  // Enough for the data and stacks of any build; the module refuses to link with less than
  // it was linked for, and its own number cannot be read from a compiled module.
  for (let initial = 32; ; initial *= 2) {
    let memory;
    try {
      memory = new WebAssembly.Memory({ initial, maximum, shared });
    } catch (cause) {
      const bytesRequested = maximum * PAGE_BYTES;
      throw new OutOfMemory(
        `the host refused a ${shared ? "shared " : ""}WebAssembly memory of at most ` +
          `${bytesRequested} bytes (${cause}); close other models or tabs`,
        { bytesRequested, cause },
      );
    }
    try {
      const instance = await WebAssembly.instantiate(module, { env: { memory } });
      const exports = /** @type {Exports} */ (/** @type {unknown} */ (instance.exports));
      checkModule(exports, variant);
      return { memory, exports };
    } catch (error) {
      if (!(error instanceof WebAssembly.LinkError) || initial >= 512) throw error;
    }
  }
}

/**
 * @param {Exports} exports
 * @param {import("./variants.js").Variant} variant
 */
function checkModule(exports, variant) {
  const abi = exports.v_abi_version?.();
  if (abi !== ABI_VERSION) {
    throw new ArtifactUnsupported(
      `the wasm file has ABI version ${abi}, this package needs ${ABI_VERSION}; ` +
        "use the wasm files that came with it",
    );
  }
  const features = exports.v_features();
  if (features !== featuresOf(variant)) {
    throw new ArtifactUnsupported(
      `the wasm file has features ${features}, the ${variant} build has ${featuresOf(variant)}; ` +
        "pass the matching wasm.variant",
    );
  }
}
