/** Copies in a folder, for hosts with Node's file system interface (Node, Deno). */
import { mkdir, open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileStream } from "../hosts/files.js";

let writers = 0;

/**
 * @param {string} folder made when it is first written to
 * @returns {import("./session.js").Cache}
 */
export function fileCache(folder) {
  return {
    name: `the cache in ${folder}`,
    async read(key) {
      const file = await open(join(folder, key)).catch((error) => {
        if (error.code === "ENOENT") return null;
        throw error;
      });
      return file && fileStream(file);
    },
    async write(key) {
      await mkdir(folder, { recursive: true });
      // Processes that load the same model at once each write a file of their own.
      const partial = join(folder, `${key}.${process.pid}-${++writers}.partial`);
      const file = await open(partial, "wx");
      return new WritableStream({
        async write(chunk) {
          for (let at = 0; at < chunk.length;) {
            at += (await file.write(chunk, at)).bytesWritten;
          }
        },
        async close() {
          await file.close();
          await rename(partial, join(folder, key));
        },
        async abort() {
          await file.close();
          await rm(partial, { force: true });
        },
      });
    },
    async remove(key) {
      await rm(join(folder, key), { force: true });
    },
  };
}
