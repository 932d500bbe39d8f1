/** Files on disk, for hosts with Node's file system interface (Node, Deno). */
import { createHash } from "node:crypto";
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { urlSource } from "../artifact/http.js";
import { chunksOf } from "../artifact/streams.js";
import { ArtifactError, ArtifactMissing } from "../errors.js";

const CHUNK_BYTES = 256 << 10;

/**
 * @param {string} folder
 * @returns {import("../artifact/source.js").Source}
 */
export function fileSource(folder) {
  return {
    location: folder,
    rereadable: true,
    async *open(name) {
      const path = join(folder, name);
      const file = await open(path).catch((cause) => {
        throw unreadable(path, cause);
      });
      yield* chunksOf(fileStream(file, (cause) => unreadable(path, cause)));
    },
  };
}

/**
 * The bytes of an open file, which the stream closes.
 *
 * @param {import("node:fs/promises").FileHandle} file
 * @param {(cause: unknown) => unknown} [asError] what to make of a failing read
 * @returns {ReadableStream<Uint8Array>} one buffer for the whole file: a chunk is valid until
 *   the next is asked for
 */
export function fileStream(file, asError = (cause) => cause) {
  const buffer = new Uint8Array(CHUNK_BYTES);
  return new ReadableStream(
    {
      async pull(controller) {
        try {
          const { bytesRead } = await file.read(buffer, 0, buffer.length);
          if (bytesRead > 0) return controller.enqueue(buffer.subarray(0, bytesRead));
        } catch (cause) {
          await file.close();
          throw asError(cause);
        }
        await file.close();
        controller.close();
      },
      cancel: () => file.close(),
    },
    // Nothing is read ahead: it would overwrite the buffer.
    { highWaterMark: 0 },
  );
}

/**
 * A path or URL as the caller wrote it.
 *
 * @param {string} location
 */
export function pathOrUrl(location) {
  if (location.startsWith("file:")) return fileSource(fileURLToPath(location));
  return /^[a-z][a-z0-9+.-]+:\/\//i.test(location) ? urlSource(location) : fileSource(location);
}

/** @param {URL} url */
export async function readUrl(url) {
  const path = fileURLToPath(url);
  const bytes = await readFile(path).catch((cause) => {
    throw unreadable(path, cause);
  });
  return { bytes: new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length), type: "file" };
}

/** @returns {import("../artifact/verify.js").Hash} */
export function nativeHash() {
  const hash = createHash("sha256");
  return { update: (data) => void hash.update(data), hex: () => hash.digest("hex") };
}

/**
 * @param {string} path
 * @param {unknown} cause
 */
function unreadable(path, cause) {
  const code = /** @type {NodeJS.ErrnoException} */ (cause).code;
  if (code === "ENOENT" || code === "ENOTDIR") {
    return new ArtifactMissing(`${path} does not exist; check the path`, { cause });
  }
  return new ArtifactError(`${path} cannot be read (${cause}); check its permissions`, { cause });
}
