/** The host of browsers, Deno and edge runtimes: web standards only. */
import { urlSource } from "../artifact/http.js";
import { cacheApi } from "../cache/cache-api.js";
import { ArtifactMissing } from "../errors.js";

/** @typedef {import("../pool/runner.js").PoolWorker} PoolWorker */
/** @typedef {import("../pool/runner.js").WorkerEvents} WorkerEvents */

/**
 * A worker script of the caller's own that imports `volery/worker`: where it is, or what
 * makes such a worker.
 *
 * @typedef {string | URL | (() => any)} WorkerOption
 */

/**
 * What the rest of the package needs from where it runs.
 *
 * @typedef {object} Host
 * @property {(location: string) => import("../artifact/source.js").Source} source
 * @property {(url: URL) => Promise<{bytes: Uint8Array, type: string}>} readFile
 * @property {((events: WorkerEvents, worker?: WorkerOption) => PoolWorker) | null} spawn
 *   null: no workers here
 * @property {import("../wasm/variants.js").WasmOptions} [wasm] the build of hosts that cannot
 *   compile one
 * @property {(() => Promise<void>) | null} nextTask when events that have arrived were handled
 * @property {boolean} [hasInterface] the thread that loads also has a page to keep alive
 * @property {import("../artifact/verify.js").Digest} [digest] where there is no
 *   `createHash`
 * @property {() => import("../artifact/verify.js").Hash} [createHash]
 * @property {() => import("../cache/session.js").Cache | null} [cache] where downloads are
 *   kept if the caller does not say
 */

/** @type {Host} */
export const webHost = {
  cache: () => cacheApi(),
  source: (location) => urlSource(new URL(location, globalThis.location?.href)),
  async readFile(url) {
    let response;
    try {
      response = await fetch(url.href);
    } catch (cause) {
      throw new ArtifactMissing(`${url.href} could not be fetched (${cause}); check the URL`, {
        cause,
      });
    }
    const type = response.headers.get("content-type") ?? "no content type";
    if (!response.ok) {
      throw new ArtifactMissing(
        `${url.href} answered HTTP ${response.status} (${type}), expected the wasm file; ` +
          "serve the package's wasm folder or pass wasm: {url}",
      );
    }
    return { bytes: new Uint8Array(await response.arrayBuffer()), type };
  },
  // Native and on threads of its own, but in secure contexts only.
  digest: globalThis.crypto?.subtle && ((data) => crypto.subtle.digest("SHA-256", data)),
  nextTask,
  spawn: typeof Worker === "undefined" ? null : spawnWebWorker,
  hasInterface: typeof document !== "undefined",
};

function nextTask() {
  return new Promise((/** @type {(value: void) => void} */ resolve) => {
    // Browsers let a timer wait 4 ms when one follows another; edge runtimes have no ports.
    if (typeof MessageChannel === "undefined") return void setTimeout(resolve, 0);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

/**
 * @param {WorkerEvents} events
 * @param {WorkerOption} [asked]
 * @returns {PoolWorker}
 */
function spawnWebWorker(events, asked) {
  if (typeof asked === "function") return adoptWorker(asked(), events);
  if (asked !== undefined) return adoptWorker(new Worker(asked, { type: "module" }), events);
  // Spelt out in one expression, by which bundlers find the script.
  const worker = new Worker(new URL("../pool/worker.js", import.meta.url), { type: "module" });
  return adoptWorker(worker, events);
}

/**
 * Wire up a Web Worker that runs `pool/worker.js`.
 *
 * @param {Worker} worker
 * @param {WorkerEvents} events
 * @returns {PoolWorker}
 */
export function adoptWorker(worker, { onMessage, onError }) {
  worker.onmessage = (event) => onMessage(event.data);
  worker.onerror = (event) => {
    // Handled here: otherwise Deno ends the process.
    event.preventDefault();
    onError(event.message || "its script could not be loaded");
  };
  return {
    post: (message, transfer = []) => worker.postMessage(message, transfer),
    terminate: async () => worker.terminate(),
    hold: () => {},
  };
}
