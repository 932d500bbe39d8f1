/**
 * Keeps the files of artifacts between loads. Everything is stored under the sha256 of its
 * content: models that share a file share its copy, a new version never meets an old copy,
 * and every copy is checked while it is read, like the file itself.
 */
import { chunksOf } from "../artifact/streams.js";
import { ArtifactCorrupt } from "../errors.js";

/**
 * A store of the caller's own implements this. Any method may fail at any time (a full
 * disk, a private window): loading goes on without the cache and says so once.
 *
 * @typedef {object} Cache
 * @property {string} name for messages
 * @property {(key: string) => Promise<ReadableStream<Uint8Array> | null>} read a copy, or
 *   null; `key` is 64 hexadecimal digits
 * @property {(key: string, bytes: number) => Promise<WritableStream<Uint8Array>>} write
 *   closing the stream keeps what was written, aborting it leaves no trace. A chunk is valid
 *   until its write settles
 * @property {(key: string) => Promise<void>} remove forget a copy, if there is one
 */

/** A cache during one load: nothing it does wrong reaches the load. */
export class CacheSession {
  #cache;
  #warn;
  #readable = true;
  #writable = true;

  /**
   * @param {Cache} cache
   * @param {(warning: string) => void} warn called once at most for each kind of failure
   */
  constructor(cache, warn) {
    this.#cache = cache;
    this.#warn = warn;
  }

  /**
   * @param {string} key
   * @returns {Promise<AsyncIterable<Uint8Array> | null>}
   */
  async read(key) {
    if (!this.#readable) return null;
    try {
      const stream = await this.#cache.read(key);
      return stream && this.#chunksOf(stream);
    } catch (error) {
      // Several files are asked for at once: the first failure speaks for all.
      if (!this.#readable) return null;
      this.#readable = false;
      this.#warn(
        `${this.#cache.name} could not be read (${error}); downloading what it may hold; ` +
          "pass cache: false to do without it",
      );
      return null;
    }
  }

  /**
   * @param {ReadableStream<Uint8Array>} stream
   * @returns {AsyncGenerator<Uint8Array, void, void>}
   */
  async *#chunksOf(stream) {
    try {
      yield* chunksOf(stream);
    } catch (cause) {
      throw new ArtifactCorrupt(`${this.#cache.name} holds an unreadable copy (${cause})`, {
        cause,
      });
    }
  }

  /** @param {string} key a copy that turned out to be corrupt */
  async remove(key) {
    await this.#cache.remove(key).catch(() => {});
  }

  /**
   * Begin a copy. After a failure no more are made.
   *
   * @param {string} key
   * @param {number} bytes
   * @returns {Promise<CopyWriter>}
   */
  async writer(key, bytes) {
    if (!this.#writable) return new CopyWriter(null, () => {});
    try {
      const stream = await this.#cache.write(key, bytes);
      return new CopyWriter(stream.getWriter(), (error) => this.#failed(error));
    } catch (error) {
      await this.#failed(error);
      return new CopyWriter(null, () => {});
    }
  }

  /** @param {unknown} error */
  async #failed(error) {
    if (!this.#writable) return;
    this.#writable = false;
    const { usage, quota } = (await globalThis.navigator?.storage?.estimate?.()) ?? {};
    const room = quota === undefined ? "" : `; ${usage} of ${quota} bytes are in use`;
    this.#warn(
      `${this.#cache.name} did not take a copy (${error}${room}); ` +
        "this load goes on, the next one downloads again",
    );
  }
}

/** Writes one copy; after a failure it does nothing. */
export class CopyWriter {
  #writer;
  #failed;

  /**
   * @param {WritableStreamDefaultWriter<Uint8Array> | null} writer
   * @param {(error: unknown) => unknown} failed
   */
  constructor(writer, failed) {
    this.#writer = writer;
    this.#failed = failed;
    // Every failure also rejects this promise, which nobody else looks at.
    writer?.closed.catch(() => {});
  }

  /** @param {Uint8Array} chunk */
  write(chunk) {
    return this.#do((writer) => writer.write(chunk));
  }

  /** Keep the copy. */
  commit() {
    return this.#do((writer) => writer.close());
  }

  /** Leave no trace. */
  async abort() {
    await this.#writer?.abort().catch(() => {});
    this.#writer = null;
  }

  /** @param {(writer: WritableStreamDefaultWriter<Uint8Array>) => Promise<void>} action */
  async #do(action) {
    if (this.#writer === null) return;
    try {
      await action(this.#writer);
    } catch (error) {
      await this.abort();
      await this.#failed(error);
    }
  }
}
