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
  nextTask,
};

/** Longest row of steps during which the network is not heard. */
const ROW_MS = 20;
let calls = 0;
/** When the present row of steps began, -1 between rows. */
let sinceMs = -1;

/**
 * Immediates that follow each other keep Deno from its network: no request would come in, and
 * no token go out, while the model works. A timer with nothing beside it lets everything in,
 * but takes a millisecond or more.
 */
function nextTask() {
  const call = ++calls;
  const now = performance.now();
  if (sinceMs < 0) sinceMs = now;
  return new Promise((/** @type {(value: void) => void} */ resolve) => {
    const go = () => {
      resolve();
      // Runs after the step. Unless another one was asked for by then, the row is over
      setImmediate(() => {
        if (call === calls) sinceMs = -1;
      });
    };
    if (now - sinceMs < ROW_MS) return void setImmediate(go);
    setTimeout(() => {
      sinceMs = performance.now();
      go();
    }, 0);
  });
}
