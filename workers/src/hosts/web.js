/** The host of browsers, Deno and edge runtimes: web standards only. */
import { urlSource } from "../artifact/http.js";
import { cacheApi } from "../cache/cache-api.js";
import { ArtifactMissing } from "../errors.js";

/**
 * What the rest of the package needs from where it runs.
 *
 * @typedef {object} Host
 * @property {(location: string) => import("../artifact/source.js").Source} source
 * @property {(url: URL) => Promise<{bytes: Uint8Array, type: string}>} readFile
 * @property {import("../pool/pool.js").SpawnWorker | null} spawn null: no workers here
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
  spawn:
    typeof Worker === "undefined"
      ? null
      : (events) =>
          adoptWorker(
            new Worker(new URL("../pool/worker.js", import.meta.url), { type: "module" }),
            events,
          ),
};

/**
 * Wire up a Web Worker that runs `pool/worker.js`.
 *
 * @param {Worker} worker
 * @param {import("../pool/pool.js").WorkerEvents} events
 * @returns {import("../pool/pool.js").PoolWorker}
 */
export function adoptWorker(worker, { onMessage, onError }) {
  worker.onmessage = (event) => onMessage(event.data);
  worker.onerror = (event) => {
    // Handled here: otherwise Deno ends the process.
    event.preventDefault();
    onError(event.message || "its script could not be loaded");
  };
  return {
    post: (message) => worker.postMessage(message),
    terminate: async () => worker.terminate(),
    hold: () => {},
  };
}
