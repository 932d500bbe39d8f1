/**
 * The entry of Cloudflare Workers, which compile nothing at run time: the wasm build is part
 * of the deployment. There are no threads there, and one model serves all requests.
 */
import relaxed from "../wasm/volery-relaxed.wasm";
import { createLoader } from "./hands.js";
import { createEngineLoader } from "./load.js";
import { webHost } from "./hosts/web.js";

/** @type {import("./hosts/web.js").Host} */
const workerdHost = {
  ...webHost,
  cache: undefined, // what is deployed or bound is near enough
  spawn: null,
  wasm: { variant: "relaxed", module: relaxed },
};

export * from "./exports.js";
export { kvSource, r2Source } from "./artifact/bindings.js";
export const loadModel = createLoader(workerdHost);
export const load = createEngineLoader(loadModel);
