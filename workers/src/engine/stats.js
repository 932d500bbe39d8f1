/** A snapshot of an engine for people and metrics. */

/** @typedef {import("../batching/types.js").Reason} Reason */

/**
 * What an engine counts of its own model; see `EngineStats`.
 */
export class Counters {
  /** @type {Map<Reason, number>} */
  finished = new Map();
  steps = 0;
  seqs = 0;
  tokens = 0;
  /** @type {Map<number, number>} */
  batchSizes = new Map();
  deviceNs = 0;

  /**
   * A step begins.
   *
   * @param {import("../batching/types.js").StepShape} shape
   */
  scheduled({ numSeqs, numTokens }) {
    this.steps += 1;
    this.seqs += numSeqs;
    this.tokens += numTokens;
    this.batchSizes.set(numSeqs, (this.batchSizes.get(numSeqs) ?? 0) + 1);
  }

  /** @param {Reason} reason */
  ended(reason) {
    this.finished.set(reason, (this.finished.get(reason) ?? 0) + 1);
  }
}

/**
 * `Engine.stats`, counted since the model was loaded.
 *
 * @typedef {object} EngineStats
 * @property {number} queuedSeqs what waits now
 * @property {number} queuedTokens what waits now
 * @property {number} runningSteps steps on the device now
 * @property {number} requests requests in the core now
 * @property {Record<string, number>} finished how many ended, by reason ("done",
 *   "overloaded", ...)
 * @property {number} steps what was scheduled
 * @property {number} seqs
 * @property {number} tokens
 * @property {number} meanBatchSeqs sequences per step
 * @property {Record<number, number>} batchSizes number of sequences in a step -> number of
 *   such steps
 * @property {number} deviceMs time of all steps inside the backend
 * @property {number} predictionError decayed mean of the cost model's relative error
 * @property {Record<number, number>} predictionErrors steps by how far their predicted time was
 *   off: at least so many percent of the measured one
 * @property {number} arrivalsPerS sequences that arrived in the last second, or about
 * @property {number} lateCompletions steps of the device that ended when nobody wanted them
 * @property {number} runningSeqs a decoder's sequences that hold blocks now
 * @property {number} recomputedTokens what preemptions made a decoder compute again
 * @property {import("../batching/kv/manager.js").KVStats | null} kv its key-value cache:
 *   blocks, hits, evictions, preemptions
 */
