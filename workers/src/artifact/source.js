/**
 * Where an artifact's files come from. A source hands out the bytes of one file as a
 * stream of chunks; the reader checks sizes and hashes, so a source need not.
 */
import { ArtifactMissing, InvalidInput } from "../errors.js";

/**
 * @typedef {object} OpenOptions
 * @property {AbortSignal} [signal]
 * @property {number} [bytes] the file's size, where the manifest tells it
 * @property {boolean} [reload] what was read before was corrupt: go past every cache
 */

/**
 * @typedef {object} Source
 * @property {string} location where the files lie, for messages
 * @property {boolean} [rereadable] files may be opened again long after the load, to start
 *   anew when a backend died
 * @property {boolean} [remote] reading is slow enough to keep copies in the host's cache
 * @property {(name: string, options: OpenOptions) => AsyncIterable<Uint8Array>} open
 *   the bytes of file `name`, front to back. A chunk is valid until the next is asked for.
 *   Several files are read at once. Throws `ArtifactMissing` when there is no such file.
 */

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
