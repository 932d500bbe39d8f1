/** The entry of Node. */
import { createLoader } from "./hands.js";
import { createEngineLoader } from "./load.js";
import { nodeHost } from "./hosts/node.js";

export * from "./exports.js";
export { fileCache } from "./cache/files.js";
export { fileSource } from "./hosts/files.js";
export const loadModel = createLoader(nodeHost);
export const load = createEngineLoader(loadModel);
