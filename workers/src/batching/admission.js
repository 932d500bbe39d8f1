/** Who may enter, and how much one step may hold. */
import { FinishReason, NS_PER_MS, stepShape } from "./types.js";

/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./cost-model.js").CostModel} CostModel */
/** @typedef {import("./queue.js").ClassQueue} ClassQueue */
/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./types.js").LaneSpec} LaneSpec */
/** @typedef {import("./types.js").StepShape} StepShape */

/**
 * Why a request may not enter; the fields of its `RequestFinished`.
 *
 * @typedef {object} Rejection
 * @property {import("./types.js").Reason} reason
 * @property {number} item
 * @property {number} value
 */

/**
 * The limits of one lane, and their answer to memory pressure.
 *
 * An allocation failure halves the token budget; after a number of good steps it doubles
 * again, up to the configured limit. A sequence longer than a shrunken budget still runs,
 * alone: only the configured limit can refuse it.
 */
export class Admission {
  #recoverySteps;
  #goodSteps = 0;

  /**
   * @param {SchedulerConfig} config
   * @param {LaneSpec} lane
   */
  constructor(config, lane) {
    /** Tokens a step may hold at most: the longest sequence that runs whole. */
    this.longest = Math.min(lane.maxTokens, config.maxBatchTokens || lane.maxTokens);
    /** Tokens a step may hold at present. */
    this.maxTokens = this.longest;
    /** Sequences a step may hold. */
    this.maxSeqs = Math.min(lane.maxSeqs, config.maxBatchSeqs || lane.maxSeqs);
    this.#recoverySteps = config.memoryRecoverySteps;
  }

  /**
   * What is wrong with a newcomer, if anything.
   *
   * @param {Request} request
   * @param {ClassQueue} queue
   * @param {CostModel} cost
   * @param {number} threads
   * @param {number} longest most tokens that an item may have
   * @param {number} nowNs
   * @returns {Rejection | null}
   */
  check(request, queue, cost, threads, longest, nowNs) {
    const { numTokens, deadlineNs } = request;
    for (let item = 0; item < numTokens.length; item++) {
      if (!(numTokens[item] > 0 && numTokens[item] <= longest)) {
        return { reason: FinishReason.NEVER_FITS, item, value: longest };
      }
    }
    const count = numTokens.length;
    const { maxQueueSize } = queue.policy;
    if (count === 0 || count > maxQueueSize) {
      return { reason: FinishReason.NEVER_FITS, item: -1, value: maxQueueSize };
    }
    if (deadlineNs >= 0 && deadlineNs <= nowNs) {
      return { reason: FinishReason.DEADLINE, item: -1, value: 0 };
    }
    if (!queue.hasRoom(count)) {
      const value = timeToMakeRoom(queue, count, cost, threads);
      return { reason: FinishReason.OVERLOADED, item: -1, value };
    }
    const mostNs = queue.policy.maxQueueMs * NS_PER_MS;
    if (mostNs > 0 && cost.warm && queue.numSeqs > 0) {
      const { numSeqs, numTokens: tokens, sumLenSq } = queue;
      const value = cost.predict(stepShape(numSeqs, tokens, sumLenSq, 0, threads)) - mostNs;
      if (value > 0) return { reason: FinishReason.OVERLOADED, item: -1, value };
    }
    return null;
  }

  /**
   * A step of this shape could not be allocated.
   *
   * @param {StepShape} shape
   */
  outOfMemory(shape) {
    this.maxTokens = Math.max(Math.floor(Math.min(this.maxTokens, shape.numTokens) / 2), 1);
    this.#goodSteps = 0;
  }

  stepSucceeded() {
    if (this.maxTokens >= this.longest) return;
    this.#goodSteps += 1;
    if (this.#goodSteps >= this.#recoverySteps) {
      this.#goodSteps = 0;
      this.maxTokens = Math.min(2 * this.maxTokens, this.longest);
    }
  }
}

/**
 * Nanoseconds of work ahead of the moment at which `count` more sequences fit.
 *
 * @param {ClassQueue} queue
 * @param {number} count
 * @param {CostModel} cost
 * @param {number} threads
 */
function timeToMakeRoom(queue, count, cost, threads) {
  const leaving = queue.numSeqs + count - queue.policy.maxQueueSize;
  const share = leaving / queue.numSeqs;
  const tokens = Math.trunc(queue.numTokens * share);
  const pairs = Math.trunc(queue.sumLenSq * share);
  return cost.predict(stepShape(leaving, tokens, pairs, 0, threads));
}
