/**
 * The entry of Cloudflare Workers, which compile nothing at run time: the wasm build is part
 * of the deployment. There are no threads there, and one model serves all requests.
 */
import relaxed from "../wasm/volery-relaxed.wasm";
import { createLoader } from "./hands.js";
import { attended, gateClock, gated, workerdHost } from "./hosts/workerd.js";
import { createEngineLoader } from "./load.js";

const loadHands = createLoader(workerdHost(relaxed));
const loadEngine = createEngineLoader(
  async (from, options) => gated(await loadHands(from, options)),
  gateClock,
);

export * from "./exports.js";
export { kvSource, r2Source } from "./artifact/bindings.js";
export { once } from "./hosts/workerd.js";

/** @type {typeof loadHands} */
export const loadModel = async (from, options) => attended(await loadHands(from, options));

/** @type {typeof loadEngine} */
export const load = async (from, options) => attended(await loadEngine(from, options));
