/**
 * Where an artifact's files come from. A source hands out the bytes of one file as a
 * stream of chunks; the reader checks sizes and hashes, so a source need not.
 */
import { ArtifactCorrupt, ArtifactError, ArtifactMissing, InvalidInput } from "../errors.js";

/**
 * @typedef {object} Source
 * @property {string} location where the files lie, for messages
 * @property {(name: string, options: {signal?: AbortSignal}) => AsyncIterable<Uint8Array>} open
 *   the bytes of file `name`, front to back. A chunk is valid until the next is asked for.
 *   Throws `ArtifactMissing` when there is no such file.
 */

/**
 * Files below a URL, by `fetch`.
 *
 * @param {string | URL} base the artifact's folder, with or without a trailing slash
 * @param {{fetch?: typeof fetch}} [options] `fetch`: a replacement, such as one that caches
 *   or adds credentials
 * @returns {Source}
 */
export function urlSource(base, { fetch: fetcher = globalThis.fetch.bind(globalThis) } = {}) {
  const folder = new URL(base);
  if (!folder.pathname.endsWith("/")) folder.pathname += "/";
  return {
    location: folder.href,
    async *open(name, { signal }) {
      const url = new URL(name, folder);
      url.search = folder.search;
      let response;
      try {
        response = await fetcher(url.href, { signal });
      } catch (cause) {
        if (signal?.aborted) throw cause;
        throw new ArtifactMissing(
          `${url.href} could not be fetched (${message(cause)}); check the URL, the network and CORS`,
          { cause },
        );
      }
      const type = response.headers.get("content-type") ?? "no content type";
      if (!response.ok || response.body === null) {
        await response.body?.cancel();
        const Kind = [404, 410].includes(response.status) ? ArtifactMissing : ArtifactError;
        throw new Kind(
          `${url.href} answered HTTP ${response.status} (${type}), expected the file; check the URL`,
        );
      }
      if (type.startsWith("text/html")) {
        await response.body.cancel();
        throw new ArtifactCorrupt(
          `${url.href} is an HTML page (${type}), expected an artifact file; ` +
            "the server answers missing files with a page: check the URL",
        );
      }
      yield* chunks(response.body);
    },
  };
}

/**
 * Files in memory.
 *
 * @param {Record<string, Uint8Array | ArrayBuffer> | Map<string, Uint8Array | ArrayBuffer>} files
 *   bytes by file name
 * @returns {Source}
 */
export function mapSource(files) {
  const byName = files instanceof Map ? files : new Map(Object.entries(files));
  return {
    location: "memory",
    async *open(name) {
      const data = byName.get(name);
      if (data === undefined) {
        throw new ArtifactMissing(
          `${name} is missing from the files in memory (${[...byName.keys()].join(", ")})`,
        );
      }
      yield data instanceof Uint8Array ? data : new Uint8Array(data);
    },
  };
}

/**
 * Make a source of what a caller passed to `loadModel`.
 *
 * @param {unknown} from
 * @param {(location: string) => Source} ofString what the host makes of a string
 * @returns {Source}
 */
export function toSource(from, ofString) {
  if (typeof from === "string") return ofString(from);
  if (from instanceof URL) return ofString(from.href);
  if (from instanceof Map) return mapSource(from);
  if (typeof from === "object" && from !== null) {
    if (typeof (/** @type {any} */ (from).open) === "function") {
      return /** @type {Source} */ (from);
    }
    const values = Object.values(from);
    if (
      values.length > 0 &&
      values.every((v) => v instanceof Uint8Array || v instanceof ArrayBuffer)
    ) {
      return mapSource(/** @type {Record<string, Uint8Array | ArrayBuffer>} */ (from));
    }
  }
  throw new InvalidInput(
    `an artifact cannot be read from ${from === null ? "null" : typeof from}; ` +
      "pass a URL, a path, the files' bytes by name, or an object with open(name)",
  );
}

/**
 * The chunks of a stream; leaving the loop early cancels it.
 *
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {AsyncGenerator<Uint8Array, void, void>}
 */
async function* chunks(stream) {
  // Not `for await (… of stream)`: Safari's streams are not async iterable.
  const reader = stream.getReader();
  let done = false;
  try {
    for (;;) {
      const part = await reader.read();
      if (part.done) {
        done = true;
        return;
      }
      yield part.value;
    }
  } finally {
    if (!done) await reader.cancel().catch(() => {});
  }
}

/** @param {unknown} error */
function message(error) {
  return error instanceof Error ? error.message : String(error);
}
