/** Reads an artifact's files: sizes and hashes checked, progress reported, abortable. */
import { Aborted, ArtifactCorrupt, throwIfAborted } from "../errors.js";
import { MAX_MANIFEST_BYTES, parseManifest } from "./manifest.js";
import { Sha256 } from "./sha256.js";

/** @typedef {import("./source.js").Source} Source */
/** @typedef {import("./manifest.js").Manifest} Manifest */

/**
 * @typedef {object} Progress
 * @property {number} loadedBytes bytes read so far, of every file together
 * @property {number} totalBytes what loading will read, from the manifest
 * @property {string} file the file being read
 */

/**
 * @typedef {object} Hash
 * @property {(data: Uint8Array) => void} update
 * @property {() => string} hex
 */

/**
 * @typedef {object} ReadOptions
 * @property {AbortSignal} [signal]
 * @property {(progress: Progress) => void} [onProgress]
 * @property {() => Hash} [createHash] the host's own SHA-256, where it has one
 */

const PROGRAM = "program.bin";
const GOLDENS = "goldens.json";

export class ArtifactReader {
  #source;
  #options;
  #loaded = 0;
  #total = 0;

  /**
   * @param {Source} source
   * @param {ReadOptions} options
   * @param {Manifest} manifest
   */
  constructor(source, options, manifest) {
    this.#source = source;
    this.#options = options;
    this.manifest = manifest;
    for (const name of [PROGRAM, GOLDENS, ...manifest.shards]) {
      this.#total += this.#entry(name).bytes;
    }
  }

  /**
   * Read and check the manifest; nothing else is fetched yet.
   *
   * @param {Source} source
   * @param {ReadOptions} options
   * @returns {Promise<ArtifactReader>}
   */
  static async open(source, options) {
    const bytes = await collect(
      read(source, "manifest.json", options.signal),
      MAX_MANIFEST_BYTES,
      "manifest.json",
    );
    return new ArtifactReader(source, options, parseManifest(bytes, source.location));
  }

  /** @returns {Promise<Uint8Array>} the checked bytes of `program.bin` */
  program() {
    return this.#whole(PROGRAM);
  }

  /** @returns {Promise<Uint8Array>} the checked bytes of `goldens.json` */
  goldens() {
    return this.#whole(GOLDENS);
  }

  /**
   * The bytes of a file, chunk by chunk. The hash is known only at the end: the caller must
   * not act on what it read before the iteration ends without an error.
   *
   * @param {string} name
   * @returns {AsyncGenerator<Uint8Array, void, void>}
   */
  async *stream(name) {
    const { signal, onProgress, createHash } = this.#options;
    const entry = this.#entry(name);
    const hash = createHash?.() ?? new Sha256();
    let bytes = 0;
    for await (const chunk of read(this.#source, name, signal)) {
      bytes += chunk.length;
      if (bytes > entry.bytes) {
        throw new ArtifactCorrupt(
          `${name} has more than the ${entry.bytes} bytes of manifest.json; export or upload it again`,
        );
      }
      hash.update(chunk);
      yield chunk;
      this.#loaded += chunk.length;
      onProgress?.({ loadedBytes: this.#loaded, totalBytes: this.#total, file: name });
    }
    if (bytes !== entry.bytes) {
      throw new ArtifactCorrupt(
        `${name} ends after ${bytes} bytes, manifest.json says ${entry.bytes}; export or upload it again`,
      );
    }
    const found = hash.hex();
    if (found !== entry.sha256) {
      throw new ArtifactCorrupt(
        `${name} has sha256 ${found}, manifest.json says ${entry.sha256}; export or upload it again`,
      );
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

  /** @param {string} name */
  #whole(name) {
    return collect(this.stream(name), this.#entry(name).bytes, name);
  }
}

/**
 * The source's chunks, with the signal honoured between them even if the source does not.
 *
 * @param {Source} source
 * @param {string} name
 * @param {AbortSignal | undefined} signal
 */
async function* read(source, name, signal) {
  throwIfAborted(signal, "loading");
  try {
    for await (const chunk of source.open(name, { signal })) {
      throwIfAborted(signal, "loading");
      yield chunk;
      throwIfAborted(signal, "loading");
    }
  } catch (cause) {
    if (signal?.aborted && !(cause instanceof Aborted)) {
      throw new Aborted("loading was aborted", { cause });
    }
    throw cause;
  }
}

/**
 * @param {AsyncIterable<Uint8Array>} chunks
 * @param {number} limit most bytes allowed
 * @param {string} name
 * @returns {Promise<Uint8Array>}
 */
async function collect(chunks, limit, name) {
  const parts = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > limit) {
      throw new ArtifactCorrupt(`${name} has more than ${limit} bytes, the most it may have`);
    }
    parts.push(chunk.slice());
  }
  const all = new Uint8Array(bytes);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
