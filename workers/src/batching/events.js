/** What goes into the core (events) and what comes out of it (decisions). */
import { StepOutcome, TrafficClass } from "./types.js";

/** @typedef {import("./types.js").Traffic} Traffic */
/** @typedef {import("./types.js").Outcome} Outcome */
/** @typedef {import("./types.js").Reason} Reason */
/** @typedef {import("./types.js").Bound} Bound */
/** @typedef {import("./types.js").StepShape} StepShape */
/** @typedef {import("./types.js").Why} Why */
/** @typedef {import("./types.js").SeqSlice} SeqSlice */
/** @typedef {import("./types.js").DecoderSlice} DecoderSlice */

/**
 * A request of one or more sequences (items), all of which must run.
 *
 * @typedef {object} RequestArrived
 * @property {"arrived"} type
 * @property {number} requestId never used before in this core
 * @property {string} lane name of the lane it is for
 * @property {readonly number[]} numTokens tokens of each item, at least 1 each
 * @property {Traffic} traffic its class
 * @property {number} deadlineNs when its result stops being useful, on the clock of
 *   `nowNs`; -1 = never
 * @property {number} latencyTargetNs how long it may take beyond the time it needs alone; -1 =
 *   the lane's `latencyTargetMs`. Only orders: sheds nothing
 * @property {string} tenant whom its device time is charged to; tenants of a class share fairly
 */

/**
 * A request for the continuation of a prompt.
 *
 * @typedef {object} GenerationArrived
 * @property {"generate"} type
 * @property {number} requestId never used before in this core
 * @property {string} lane name of a decoder lane
 * @property {readonly number[]} tokens ids of the prompt, at least 1
 * @property {number} maxTokens most tokens of each sample, at least 1
 * @property {readonly number[]} stopIds ids that end a sample: the union of what the model
 *   and its owner name
 * @property {number} samples how many continuations; they share the prompt's blocks
 * @property {string} salt namespace of its tenant in the prefix cache
 * @property {Traffic} traffic as in `RequestArrived`
 * @property {number} deadlineNs as in `RequestArrived`
 * @property {number} ttftTargetNs how long the first token may take beyond what the prompt
 *   needs alone; -1 = the lane's `ttftTargetMs`
 * @property {number} tpotTargetNs longest time between two tokens while others join; -1 = the
 *   lane's `tpotTargetMs`
 * @property {string} tenant as in `RequestArrived`
 */

/**
 * The driver saw the end of a sample in its text. What has ended is ignored. Send it in the
 * same call as the `StepCompleted` that brought the last token, and after it: the sample
 * then is in no further step.
 *
 * @typedef {object} SampleStopped
 * @property {"stopped"} type
 * @property {number} requestId
 * @property {number} sample
 */

/**
 * Its owner no longer wants it. Unknown and finished ids are ignored.
 *
 * @typedef {object} RequestAborted
 * @property {"aborted"} type
 * @property {number} requestId
 */

/**
 * A step ended. Unknown ids are ignored: the completion came too late to matter.
 *
 * @typedef {object} StepCompleted
 * @property {"completed"} type
 * @property {number} stepId from its `StepScheduled`
 * @property {Outcome} outcome how it ended
 * @property {number} deviceNs time inside the backend; what the cost model learns from
 * @property {readonly number[]} nonFinite ascending rows (sequences) whose result holds NaN
 *   or infinity
 * @property {readonly number[]} sampled decoder: the token of every wanted row, in order; -1
 *   for a row that is not finite
 */

/**
 * Time passed: the wake-up that an `Idle` asked for.
 *
 * @typedef {object} Tick
 * @property {"tick"} type
 */

/**
 * @typedef {RequestArrived | GenerationArrived | SampleStopped | RequestAborted
 *   | StepCompleted | Tick} Event
 */

/**
 * Run this step now.
 *
 * @typedef {object} StepScheduled
 * @property {"step"} type
 * @property {number} stepId ascending from 0
 * @property {string} lane whose model runs
 * @property {readonly SeqSlice[]} seqs its rows in order
 * @property {StepShape} shape what it will cost, threads included
 * @property {number} predictedNs how long the cost model expects it to take
 * @property {Bound} bound what kept the batch from growing
 * @property {Why} why the rest of the explanation
 */

/**
 * Run this step of a decoder now. Fields as in `StepScheduled`.
 *
 * @typedef {object} DecoderStepScheduled
 * @property {"decoder_step"} type
 * @property {number} stepId
 * @property {string} lane
 * @property {readonly DecoderSlice[]} seqs its rows in order
 * @property {readonly (readonly [source: number, target: number])[]} copies blocks to copy,
 *   in this order, before anything else
 * @property {StepShape} shape
 * @property {number} predictedNs
 * @property {Bound} bound
 * @property {Why} why
 */

/**
 * A sample has a token more.
 *
 * @typedef {object} TokenEmitted
 * @property {"token"} type
 * @property {number} requestId whose
 * @property {number} sample whose
 * @property {number} tokenId the token; a stop token too
 * @property {number} position of the token in its sequence, from 0 at the prompt's first
 * @property {number} stepId the step that it comes from
 * @property {number} row the wanted row of that step
 */

/**
 * The end of one sample: STOP or LENGTH. Follows its last token.
 *
 * @typedef {object} SampleFinished
 * @property {"sample"} type
 * @property {number} requestId
 * @property {number} sample
 * @property {Reason} reason
 */

/**
 * Rows `row .. row + numItems - 1` of a step are items `item ..` of a request. Always
 * follows the step's `StepCompleted` and precedes the request's `RequestFinished`, in the
 * same list of decisions.
 *
 * @typedef {object} EmbeddingReady
 * @property {"ready"} type
 * @property {number} requestId
 * @property {number} item
 * @property {number} numItems
 * @property {number} stepId
 * @property {number} row
 */

/**
 * The end of a request: exactly one per request that arrived.
 *
 * @typedef {object} RequestFinished
 * @property {"finished"} type
 * @property {number} requestId which
 * @property {Reason} reason DONE, or why it failed
 * @property {number} item the item to blame, or -1
 * @property {number} stepId the step in which it failed, or -1
 * @property {number} value NEVER_FITS: the limit that item exceeds (of a generation: item 0
 *   the tokens that its prompt may have, item -1 the samples); OVERLOADED: nanoseconds until
 *   the queue should have room; DEADLINE and TIMEOUT: nanoseconds it was in the core;
 *   otherwise 0
 * @property {number} neededNs DEADLINE: the time that it still needed by prediction, margin
 *   included, and no longer had; otherwise 0
 */

/**
 * Nothing more to do until an event comes, or until `wakeAtNs` (-1 = no timer). The last
 * decision of every call.
 *
 * @typedef {object} Idle
 * @property {"idle"} type
 * @property {number} wakeAtNs
 */

/**
 * @typedef {StepScheduled | DecoderStepScheduled | TokenEmitted | SampleFinished
 *   | EmbeddingReady | RequestFinished | Idle} Decision
 */

/**
 * @template {{type: string}} E
 * @template {keyof E} Optional
 * @typedef {Omit<E, "type" | Optional> & Partial<Pick<E, Optional>>} Fields an event's
 *   fields, some of which have defaults
 */

/**
 * @param {Fields<RequestArrived, "traffic" | "deadlineNs" | "latencyTargetNs" | "tenant">}
 *   fields
 * @returns {RequestArrived}
 */
export function requestArrived({
  requestId,
  lane,
  numTokens,
  traffic = TrafficClass.LATENCY,
  deadlineNs = -1,
  latencyTargetNs = -1,
  tenant = "",
}) {
  const type = "arrived";
  return { type, requestId, lane, numTokens, traffic, deadlineNs, latencyTargetNs, tenant };
}

/**
 * @param {Fields<GenerationArrived, "stopIds" | "samples" | "salt" | "traffic" | "deadlineNs"
 *   | "ttftTargetNs" | "tpotTargetNs" | "tenant">} fields
 * @returns {GenerationArrived}
 */
export function generationArrived(fields) {
  return {
    type: "generate",
    stopIds: [],
    samples: 1,
    salt: "",
    traffic: TrafficClass.LATENCY,
    deadlineNs: -1,
    ttftTargetNs: -1,
    tpotTargetNs: -1,
    tenant: "",
    ...fields,
  };
}

/**
 * @param {number} requestId
 * @param {number} sample
 * @returns {SampleStopped}
 */
export const sampleStopped = (requestId, sample) => ({ type: "stopped", requestId, sample });

/**
 * @param {number} requestId
 * @returns {RequestAborted}
 */
export const requestAborted = (requestId) => ({ type: "aborted", requestId });

/**
 * @param {Fields<StepCompleted, "outcome" | "deviceNs" | "nonFinite" | "sampled">} fields
 * @returns {StepCompleted}
 */
export function stepCompleted({
  stepId,
  outcome = StepOutcome.OK,
  deviceNs = 0,
  nonFinite = [],
  sampled = [],
}) {
  return { type: "completed", stepId, outcome, deviceNs, nonFinite, sampled };
}

/** @returns {Tick} */
export const tick = () => ({ type: "tick" });
