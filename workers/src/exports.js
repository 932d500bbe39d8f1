/** What every host's entry exports besides its `loadModel`. */
export * from "./errors.js";
export { urlSource } from "./artifact/http.js";
export { mapSource } from "./artifact/source.js";
export { cacheApi } from "./cache/cache-api.js";
export { memoryCache } from "./cache/memory.js";
export { opfsCache } from "./cache/opfs.js";
export { Device } from "./engine/device.js";
export { replay as replayTrace, TraceRecorder } from "./batching/trace.js";
export { Model as StepModel } from "./hands.js";
export { Model } from "./model.js";
export { Rows } from "./program/ops.js";
export { packSequences, SeqStatus } from "./step.js";
