/** The host Deno: Web Workers, and files read through its Node modules. */
import { setImmediate } from "node:timers";
import { nativeHash, pathOrUrl, readUrl } from "./files.js";
import { webHost } from "./web.js";

/** @type {import("./web.js").Host} */
export const denoHost = {
  ...webHost,
  cache: undefined, // nothing is written to disk unasked
  source: pathOrUrl,
  readFile: (url) => (url.protocol === "file:" ? readUrl(url) : webHost.readFile(url)),
  createHash: nativeHash,
  nextTask: () => new Promise((resolve) => setImmediate(resolve)),
};
