/** Copies in the origin's private file system. */

/**
 * @param {string} [folder]
 * @returns {import("./session.js").Cache | null} null where the host has no such file system,
 *   or one that cannot be written to from everywhere
 */
export function opfsCache(folder = "volery") {
  const storage = globalThis.navigator?.storage;
  const Handle = globalThis.FileSystemFileHandle;
  if (!storage?.getDirectory || !Handle?.prototype.createWritable) return null;
  const open = async () => {
    const root = await storage.getDirectory();
    return root.getDirectoryHandle(folder, { create: true });
  };
  return {
    name: "the origin's private file system",
    async read(key) {
      try {
        const handle = await (await open()).getFileHandle(key);
        const file = await handle.getFile();
        // An empty file is one that is being written, or whose writer died.
        return file.size === 0 ? null : file.stream();
      } catch (error) {
        if (isNotFound(error)) return null;
        throw error;
      }
    },
    async write(key) {
      const directory = await open();
      const handle = await directory.getFileHandle(key, { create: true });
      // What is written shows up in the file when the stream is closed, not before.
      const file = await handle.createWritable();
      return new WritableStream({
        write: (chunk) => file.write(/** @type {Uint8Array<ArrayBuffer>} */ (chunk)),
        close: () => file.close(),
        async abort(reason) {
          await file.abort(reason);
          await directory.removeEntry(key);
        },
      });
    },
    async remove(key) {
      await (await open()).removeEntry(key);
    },
  };
}

/** @param {unknown} error */
function isNotFound(error) {
  return error instanceof DOMException && error.name === "NotFoundError";
}
