/** The host Node. */
import { Worker } from "node:worker_threads";
import { nativeHash, pathOrUrl, readUrl } from "./files.js";
import { webHost } from "./web.js";

/** @type {import("./web.js").Host} */
export const nodeHost = {
  source: pathOrUrl,
  readFile: (url) => (url.protocol === "file:" ? readUrl(url) : webHost.readFile(url)),
  createHash: nativeHash,
  nextTask: () => new Promise((resolve) => setImmediate(resolve)),
  spawn({ onMessage, onError }, asked) {
    const script = asked ?? new URL("../pool/worker.node.js", import.meta.url);
    /** @type {Worker} */
    const worker = typeof script === "function" ? script() : new Worker(script);
    let ending = false;
    worker.on("message", onMessage);
    worker.on("messageerror", onError);
    worker.on("error", onError);
    worker.on("exit", (code) => {
      if (!ending) onError(`it ended with code ${code}`);
    });
    return {
      post: (message, transfer) => worker.postMessage(message, transfer),
      async terminate() {
        ending = true;
        worker.ref();
        await worker.terminate();
      },
      hold(busy) {
        // Someone awaits the end: an answer that comes meanwhile must not let the process go.
        if (ending) return;
        if (busy) worker.ref();
        else worker.unref();
      },
    };
  },
};
