/** The entry of browsers and edge runtimes. */
import { createLoader } from "./hands.js";
import { createEngineLoader } from "./load.js";
import { webHost } from "./hosts/web.js";

export * from "./exports.js";
export const loadModel = createLoader(webHost);
export const load = createEngineLoader(loadModel);
