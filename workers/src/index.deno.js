/** The entry of Deno. */
import { createLoader } from "./hands.js";
import { createEngineLoader } from "./load.js";
import { denoHost } from "./hosts/deno.js";

export * from "./exports.js";
export { fileCache } from "./cache/files.js";
export { fileSource } from "./hosts/files.js";
export const loadModel = createLoader(denoHost);
export const load = createEngineLoader(loadModel);
