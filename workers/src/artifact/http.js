/** Files below a URL. A connection that drops is taken up again where it broke off. */
import { ArtifactCorrupt, ArtifactError, ArtifactMissing } from "../errors.js";
import { chunksOf } from "./streams.js";

/** @typedef {import("./source.js").Source} Source */
/** @typedef {import("./source.js").OpenOptions} OpenOptions */

/** Answers that a moment later may be different. */
const TRANSIENT = [408, 429, 500, 502, 503, 504];
const GONE = [404, 410];

/** Waits before asking again when the last try brought nothing, in milliseconds. */
const PAUSES_MS = [100, 400, 1600];

// Some edge runtimes throw on it.
const CAN_RELOAD = (() => {
  try {
    return new Request("data:,", { cache: "reload" }).cache === "reload";
  } catch {
    return false;
  }
})();

/**
 * @typedef {object} HttpOptions
 * @property {(url: string, init: RequestInit) => Promise<Response>} [fetch] a replacement,
 *   such as one that adds credentials or asks an assets binding
 * @property {(ms: number) => Promise<void>} [pause] waits; for tests
 */

/**
 * Files below a URL, by `fetch`.
 *
 * @param {string | URL} base the artifact's folder, with or without a trailing slash
 * @param {HttpOptions} [options]
 * @returns {Source}
 */
export function urlSource(base, options = {}) {
  const folder = new URL(base);
  if (!folder.pathname.endsWith("/")) folder.pathname += "/";
  return {
    location: folder.href,
    rereadable: true,
    remote: true,
    open(name, request) {
      const url = new URL(name, folder);
      url.search = folder.search;
      return new Download(url.href, request, options).chunks();
    },
  };
}

/** One file, over as many requests as it takes. */
class Download {
  #url;
  #request;
  #fetch;
  #pause;
  #received = 0;
  /** Tries since the last byte came. */
  #tries = 0;
  /** What tells the server which version we have the front of. @type {string | null} */
  #validator = null;

  /**
   * @param {string} url
   * @param {OpenOptions} request
   * @param {HttpOptions} options
   */
  constructor(url, request, { fetch, pause = timeout }) {
    this.#url = url;
    this.#request = request;
    // Looked up now: a page may replace its fetch, and it must be called as a global.
    this.#fetch = fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.#pause = pause;
  }

  /** @returns {AsyncGenerator<Uint8Array, void, void>} */
  async *chunks() {
    for (;;) {
      try {
        const body = await this.#respond();
        // A server that does not know ranges starts again at the front.
        let skip = body.at === 0 ? this.#received : 0;
        for await (let chunk of chunksOf(body.stream)) {
          const skipped = Math.min(skip, chunk.length);
          skip -= skipped;
          chunk = chunk.subarray(skipped);
          if (chunk.length === 0) continue;
          this.#received += chunk.length;
          this.#tries = 0;
          yield chunk;
        }
        return;
      } catch (cause) {
        if (this.#received === this.#request.bytes) return;
        if (this.#request.signal?.aborted) throw cause;
        if (cause instanceof ArtifactError && !(cause instanceof Unavailable)) throw cause;
        if (this.#tries === PAUSES_MS.length) throw this.#gaveUp(cause);
        // The first resumption is immediate: a drop says nothing about the server.
        if (this.#received === 0 || this.#tries > 0) await this.#pause(PAUSES_MS[this.#tries]);
        this.#tries += 1;
      }
    }
  }

  /** @returns {Promise<{stream: ReadableStream<Uint8Array>, at: number}>} the rest of the file */
  async #respond() {
    const { signal, reload } = this.#request;
    /** @type {Record<string, string>} */
    const headers = {};
    if (this.#received > 0) {
      headers.range = `bytes=${this.#received}-`;
      if (this.#validator) headers["if-range"] = this.#validator;
    }
    /** @type {RequestInit} */
    const init = { signal, headers };
    if (reload && CAN_RELOAD) init.cache = "reload";
    const response = await this.#fetch(this.#url, init);
    const type = response.headers.get("content-type") ?? "no content type";
    if (!response.ok || response.body === null) {
      await response.body?.cancel();
      const found = `${this.#url} answered HTTP ${response.status} (${type})`;
      if (TRANSIENT.includes(response.status)) throw new Unavailable(found);
      const Kind = GONE.includes(response.status) ? ArtifactMissing : ArtifactError;
      throw new Kind(`${found}, expected the file; check the URL`);
    }
    if (type.startsWith("text/html")) {
      await response.body.cancel();
      throw new ArtifactCorrupt(
        `${this.#url} is an HTML page (${type}), expected an artifact file; ` +
          "the server answers missing files with a page: check the URL",
      );
    }
    if (this.#received === 0) this.#validator = validatorOf(response);
    return { stream: response.body, at: response.status === 206 ? this.#received : 0 };
  }

  /** @param {unknown} cause */
  #gaveUp(cause) {
    if (cause instanceof Unavailable) {
      return new ArtifactError(`${cause.message}, again and again; try later`, { cause });
    }
    const why = cause instanceof Error ? cause.message : String(cause);
    const tries = PAUSES_MS.length + 1;
    return this.#received === 0
      ? new ArtifactMissing(
          `${this.#url} could not be fetched in ${tries} tries (${why}); check the URL, the network and CORS`,
          { cause },
        )
      : new ArtifactError(
          `${this.#url} broke off after ${this.#received} bytes and could not be resumed in ` +
            `${tries} tries (${why}); check the network and load again`,
          { cause },
        );
  }
}

/** The server is there but does not give the file now. */
class Unavailable extends ArtifactError {}

/**
 * What `If-Range` may carry. Of another origin, none: the header would need a preflight that
 * static hosts refuse; the file's hash then tells if it changed in between.
 *
 * @param {Response} response
 * @returns {string | null}
 */
function validatorOf(response) {
  if (response.type === "cors") return null;
  const etag = response.headers.get("etag");
  if (etag !== null) return etag.startsWith("W/") ? null : etag;
  return response.headers.get("last-modified");
}

/** @param {number} ms */
function timeout(ms) {
  return new Promise((/** @type {(value: void) => void} */ resolve) => setTimeout(resolve, ms));
}
