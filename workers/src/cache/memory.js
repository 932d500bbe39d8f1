/** Copies in memory, for models that are loaded again and again in one process. */
import { concat } from "../artifact/streams.js";

/**
 * @param {{maxBytes?: number}} [options] `maxBytes`: a copy that would pass it is refused
 * @returns {import("./session.js").Cache}
 */
export function memoryCache({ maxBytes = Infinity } = {}) {
  /** @type {Map<string, Uint8Array<ArrayBuffer>>} */
  const copies = new Map();
  const used = () => [...copies.values()].reduce((sum, copy) => sum + copy.length, 0);
  return {
    name: "the memory cache",
    async read(key) {
      const copy = copies.get(key);
      return copy ? new Blob([copy]).stream() : null;
    },
    async write(key, bytes) {
      if (used() + bytes > maxBytes) {
        throw new RangeError(`${bytes} more bytes would pass its limit of ${maxBytes}`);
      }
      /** @type {Uint8Array[]} */
      const parts = [];
      return new WritableStream({
        write: (chunk) => void parts.push(chunk.slice()),
        close: () => void copies.set(key, concat(parts)),
      });
    },
    async remove(key) {
      copies.delete(key);
    },
  };
}
