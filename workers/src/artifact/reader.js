/** Reads an artifact's files: checked, copies kept, progress told, abortable. */
import { CacheSession } from "../cache/session.js";
import { Aborted, ArtifactCorrupt, throwIfAborted, VoleryError } from "../errors.js";
import { MAX_MANIFEST_BYTES, parseManifest } from "./manifest.js";
import { LoadProgress } from "./progress.js";
import { Sha256 } from "./sha256.js";
import { Begun, concat } from "./streams.js";
import { piecesOf, verified, verifiedPieces } from "./verify.js";

/** @typedef {import("./source.js").Source} Source */
/** @typedef {import("./manifest.js").Manifest} Manifest */
/** @typedef {import("./progress.js").Progress} Progress */
/** @typedef {import("../cache/session.js").CopyWriter} CopyWriter */

/**
 * @typedef {object} ReadOptions
 * @property {AbortSignal} [signal]
 * @property {(progress: Progress) => void} [onProgress]
 * @property {import("./verify.js").Digest} [digest] SHA-256 of whole buffers, where it is the
 *   host's fastest
 * @property {() => import("./verify.js").Hash} [createHash] an incremental one, for files of
 *   which only the whole has a hash
 * @property {import("../cache/session.js").Cache | null} [cache] where copies are kept
 */

/**
 * @typedef {object} Opened a read that has begun
 * @property {Begun} chunks
 * @property {boolean} isCopy they come from the cache; known once the first is there
 */

const MANIFEST = "manifest.json";
const PROGRAM = "program.bin";
const GOLDENS = "goldens.json";

/** Files read at once: browsers have six connections to a host, and workers need some. */
export const PARALLEL_READS = 4;

export class ArtifactReader {
  /** What went wrong and was survived. @type {string[]} */
  warnings = [];
  #source;
  #options;
  #progress;
  /** @type {CacheSession | null} */
  #cache;
  /** Ends every read: the caller's signal fired, or the load is over. */
  #abort = new AbortController();
  /** Reads begun ahead of their use. @type {Map<string, Opened>} */
  #opened = new Map();
  /** Files whose content was right. @type {Set<string>} */
  #verified = new Set();
  /** Files to be read past every cache. @type {Set<string>} */
  #distrusted = new Set();
  #onAbort = () => this.#abort.abort(this.#options.signal?.reason);

  /**
   * To be opened, and closed.
   *
   * @param {Source} source
   * @param {ReadOptions} options
   */
  constructor(source, options) {
    this.#source = source;
    this.#options = options;
    this.#progress = new LoadProgress(options.onProgress);
    const { cache, signal } = options;
    this.#cache = cache ? new CacheSession(cache, (text) => this.warnings.push(text)) : null;
    signal?.addEventListener("abort", this.#onAbort, { once: true });
    if (signal?.aborted) this.#onAbort();
    /** @type {Manifest} */
    this.manifest = { files: {}, shards: [], raw: {} };
  }

  /** Read and check the manifest; nothing else is fetched yet. */
  async open() {
    const chunks = this.#read(() => this.#source.open(MANIFEST, this.#request()));
    const bytes = await collect(chunks, MAX_MANIFEST_BYTES, MANIFEST);
    this.manifest = parseManifest(bytes, this.#source.location);
  }

  /**
   * Begin to fetch what loading needs, several files at once: nothing waits for a round trip
   * later. Their streams wait to be used. Progress counts these files.
   *
   * @param {readonly string[]} [files] what the caller wants besides the program, the goldens
   *   and the shards
   */
  begin(files = []) {
    const needed = [PROGRAM, ...this.manifest.shards, ...files, GOLDENS];
    for (const name of needed) this.#progress.expect(name, this.#entry(name).bytes);
    for (const name of needed.slice(0, PARALLEL_READS)) this.#opened.set(name, this.#open(name));
  }

  /** @returns {Promise<Uint8Array>} the checked bytes of `program.bin` */
  program() {
    return this.file(PROGRAM);
  }

  /** @returns {Promise<Uint8Array>} the checked bytes of `goldens.json` */
  goldens() {
    return this.file(GOLDENS);
  }

  /**
   * @param {string} name
   * @returns {Promise<Uint8Array>} the checked bytes of a file
   */
  async file(name) {
    const { bytes } = this.#entry(name);
    try {
      return await collect(this.stream(name), bytes, name);
    } catch (error) {
      if (!(error instanceof ArtifactCorrupt) || this.#distrusted.has(name)) throw error;
      this.#distrusted.add(name);
      return collect(this.stream(name), bytes, name);
    }
  }

  /**
   * The bytes of a file, chunk by chunk. Its hash may be known only at the end: the caller
   * must not act on what it read before the iteration ends without an error.
   *
   * @param {string} name
   * @returns {AsyncGenerator<Uint8Array, void, void>}
   */
  async *stream(name) {
    const entry = this.#entry(name);
    const opened = this.#opened.get(name) ?? this.#open(name);
    this.#opened.delete(name);
    /** @type {CopyWriter | null} */
    let copy = null;
    let bytes = 0;
    try {
      for await (const chunk of this.#checked(name, opened.chunks)) {
        yield chunk;
        if (this.#cache && !opened.isCopy) {
          copy ??= await this.#cache.writer(entry.sha256, entry.bytes);
          await copy.write(chunk);
        }
        this.#progress.update(name, (bytes += chunk.length));
      }
      await copy?.commit();
      copy = null;
      this.#verified.add(name);
    } catch (error) {
      if (opened.isCopy && error instanceof ArtifactCorrupt) {
        await this.#cache?.remove(entry.sha256);
      }
      throw error;
    } finally {
      await copy?.abort();
    }
  }

  /**
   * @param {string} name
   * @param {AsyncIterable<Uint8Array>} chunks
   */
  #checked(name, chunks) {
    const { createHash, digest } = this.#options;
    const entry = this.#entry(name);
    const pieces = piecesOf(entry);
    return digest && pieces
      ? verifiedPieces(name, chunks, entry, pieces, digest)
      : verified(name, chunks, entry, createHash?.() ?? new Sha256());
  }

  /**
   * Prepare to load once more after a file turned out to be corrupt: what was not found
   * right is then read past every cache, ours and the browser's.
   *
   * @returns {boolean} false when that has been done already
   */
  retry() {
    const suspects = this.manifest.shards.filter((name) => !this.#verified.has(name));
    if (suspects.some((name) => this.#distrusted.has(name))) return false;
    this.#stop();
    if (this.#options.signal?.aborted) this.#onAbort();
    for (const name of suspects) this.#distrusted.add(name);
    return true;
  }

  /** Stop whatever is being read. Files may be read later all the same, without the signal. */
  close() {
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    this.#stop();
  }

  #stop() {
    this.#abort.abort();
    for (const { chunks } of this.#opened.values()) chunks.return().catch(() => {});
    this.#opened.clear();
    this.#abort = new AbortController();
  }

  /**
   * @param {string} name
   * @returns {Opened}
   */
  #open(name) {
    const { sha256 } = this.#entry(name);
    const request = this.#request(name);
    const opened = /** @type {Opened} */ ({ isCopy: false });
    const open = async () => {
      const copy = request.reload ? null : await this.#cache?.read(sha256);
      opened.isCopy = Boolean(copy);
      return copy ?? this.#source.open(name, request);
    };
    opened.chunks = new Begun(this.#read(open));
    return opened;
  }

  /**
   * @param {string} [name] none for the manifest, of which nothing is known yet
   * @returns {import("./source.js").OpenOptions}
   */
  #request(name) {
    const { signal } = this.#abort;
    if (name === undefined) return { signal };
    return { signal, bytes: this.#entry(name).bytes, reload: this.#distrusted.has(name) };
  }

  /**
   * The chunks of a source or a copy, with the signal honoured between them even if they
   * do not.
   *
   * @param {() => AsyncIterable<Uint8Array> | Promise<AsyncIterable<Uint8Array>>} open
   * @returns {AsyncGenerator<Uint8Array, void, void>}
   */
  async *#read(open) {
    const { signal } = this.#abort;
    throwIfAborted(signal, "loading");
    try {
      for await (const chunk of await open()) {
        throwIfAborted(signal, "loading");
        yield chunk;
        throwIfAborted(signal, "loading");
      }
    } catch (cause) {
      if (cause instanceof VoleryError) throw cause;
      if (signal.aborted) throw new Aborted("loading was aborted", { cause: signal.reason });
      throw cause;
    }
  }

  /** @param {string} name */
  #entry(name) {
    const { files } = this.manifest;
    if (!Object.hasOwn(files, name)) {
      throw new ArtifactCorrupt(`manifest.json does not list ${name}; export the model again`);
    }
    return files[name];
  }
}

/**
 * @param {AsyncIterable<Uint8Array>} chunks
 * @param {number} limit most bytes allowed
 * @param {string} name
 * @returns {Promise<Uint8Array>}
 */
async function collect(chunks, limit, name) {
  /** @type {Uint8Array[]} */
  const parts = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > limit) {
      throw new ArtifactCorrupt(`${name} has more than ${limit} bytes, the most it may have`);
    }
    parts.push(chunk.slice());
  }
  return concat(parts);
}
