/**
 * The batching core: a pure, deterministic state machine (docs/design.md, 3.4).
 *
 * Feed events to `BatchingCore`, carry out the decisions it returns. It does no I/O, reads
 * no clock and starts no thread. `runtime_py/batching/` is the same machine in Python.
 */
export { TimeoutAction, schedulerConfig } from "./config.js";
export { BatchingCore } from "./core.js";
export * from "./events.js";
export { TraceRecorder, replay } from "./trace.js";
export {
  BoundBy,
  DEFAULT_DEVICE,
  DEFAULT_PROFILE,
  FinishReason,
  LaneKind,
  StepOutcome,
  TrafficClass,
  Turn,
  laneSpec,
} from "./types.js";
