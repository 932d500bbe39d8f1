/** What every host's entry exports besides its `loadModel`. */
export * from "./errors.js";
export { mapSource, urlSource } from "./artifact/source.js";
export { Model } from "./hands.js";
export { Rows } from "./program/ops.js";
export { packSequences, SeqStatus } from "./step.js";
