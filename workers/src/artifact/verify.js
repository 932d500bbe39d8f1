/** Checks a file against the manifest while it is being read. */
import { ArtifactCorrupt } from "../errors.js";

/**
 * @typedef {object} Hash
 * @property {(data: Uint8Array) => void} update
 * @property {() => string} hex
 */

/**
 * Pass the chunks of a file on; throw at the end if they were not the file.
 *
 * @param {string} name
 * @param {AsyncIterable<Uint8Array>} chunks
 * @param {import("./manifest.js").FileEntry} entry
 * @param {Hash} hash
 * @returns {AsyncGenerator<Uint8Array, void, void>}
 */
export async function* verified(name, chunks, entry, hash) {
  const remedy = "export or upload it again";
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > entry.bytes) {
      throw new ArtifactCorrupt(
        `${name} has more than the ${entry.bytes} bytes of manifest.json; ${remedy}`,
      );
    }
    hash.update(chunk);
    yield chunk;
  }
  if (bytes !== entry.bytes) {
    throw new ArtifactCorrupt(
      `${name} ends after ${bytes} bytes, manifest.json says ${entry.bytes}; ${remedy}`,
    );
  }
  const found = hash.hex();
  if (found !== entry.sha256) {
    throw new ArtifactCorrupt(
      `${name} has sha256 ${found}, manifest.json says ${entry.sha256}; ${remedy}`,
    );
  }
}
