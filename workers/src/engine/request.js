/** A request on the engine's side: its tokens, its output, and the facts about it. */
import { FinishReason } from "../batching/index.js";
import {
  Aborted,
  DeadlineExceeded,
  DeviceLost,
  NeverFits,
  NonFinite,
  OutOfMemory,
  Overloaded,
  VoleryError,
} from "../errors.js";
import { Deferred } from "./deferred.js";

/** @typedef {import("../batching/events.js").EmbeddingReady} EmbeddingReady */
/** @typedef {import("../batching/events.js").RequestFinished} RequestFinished */
/** @typedef {import("../batching/types.js").StepShape} StepShape */
/** @typedef {import("../step.js").StepResult} StepResult */

export const NS_PER_MS = 1_000_000;

/** Sequences that become vectors. `Engine.submit` makes it. */
export class EncodeRequest {
  /** Settled when the request ended; rejected with the reason why it failed. */
  done = /** @type {Deferred<void>} */ (new Deferred());
  /** Its owner does not want it any more. */
  aborted = false;
  /** From arrival to the start of its first step, -1 before. */
  queueNs = -1;
  /** Time of the steps that carried it, inside the backend. */
  deviceNs = 0;
  /** How many those were. */
  steps = 0;
  /** The size of the largest of them. */
  batchSeqs = 0;
  batchTokens = 0;

  /**
   * @param {object} fields
   * @param {number} fields.requestId
   * @param {string} fields.lane its model's name on the device
   * @param {readonly (readonly number[])[]} fields.tokenIds ids of each sequence
   * @param {readonly number[] | null} fields.poolSkips leading tokens of each that pooling
   *   leaves out
   * @param {number} fields.width columns of a row
   * @param {number} fields.arrivalNs
   * @param {number} fields.firstIndex of the first sequence in the caller's list
   */
  constructor({ requestId, lane, tokenIds, poolSkips, width, arrivalNs, firstIndex }) {
    this.requestId = requestId;
    this.lane = lane;
    this.tokenIds = tokenIds;
    this.poolSkips = poolSkips;
    this.width = width;
    this.arrivalNs = arrivalNs;
    this.firstIndex = firstIndex;
    /** [sequences, width], filled row by row. */
    this.output = new Float32Array(tokenIds.length * width);
  }

  /**
   * Copy rows of a step that are this request's.
   *
   * @param {EmbeddingReady} ready
   * @param {StepResult} result
   * @param {StepShape} shape
   */
  take({ item, numItems, row }, result, { numSeqs, numTokens }) {
    const { width } = this;
    const rows = result.output.subarray(row * width, (row + numItems) * width);
    this.output.set(rows, item * width);
    this.steps += 1;
    this.deviceNs += result.deviceNs;
    this.batchSeqs = Math.max(this.batchSeqs, numSeqs);
    this.batchTokens = Math.max(this.batchTokens, numTokens);
  }

  /**
   * Tell the owner how it ended, unless it knows.
   *
   * @param {unknown} error
   */
  fail(error) {
    if (!this.done.settled) this.done.reject(error);
  }

  /** It ended well. */
  finish() {
    if (!this.done.settled) this.done.resolve();
  }

  /**
   * The typed error of a request that ended without a result.
   *
   * @param {RequestFinished} finished
   * @param {unknown} cause what the backend threw in the step that failed, if one did
   */
  errorOf(finished, cause) {
    const { item, value } = finished;
    const texts = this.tokenIds.length;
    const index = this.firstIndex + item;
    switch (finished.reason) {
      case FinishReason.NEVER_FITS:
        return new NeverFits(
          item >= 0
            ? `texts[${index}] has ${this.tokenIds[item].length} tokens, a step holds at most ` +
                `${value}; raise maxBatchTokens or shorten the text`
            : `a request of ${texts} texts cannot wait in a queue of ${value}; raise ` +
                "maxQueueSize or send fewer texts",
        );
      case FinishReason.OVERLOADED:
        return overloaded(`the queue has no room for ${texts} more texts`, value);
      case FinishReason.NON_FINITE:
        return new NonFinite(
          `texts[${index}]: the model computed NaN or infinity, expected finite numbers; ` +
            "check the exported weights",
        );
    }
    return errorOfAny(finished, cause, `texts[${index}]`);
  }
}

/**
 * @param {string} what
 * @param {number} ns until there should be room
 */
export function overloaded(what, ns) {
  const retryAfterMs = ns / NS_PER_MS;
  return new Overloaded(`${what}; try again in about ${retryAfterMs.toFixed(0)} ms`, {
    retryAfterMs,
  });
}

/**
 * The errors that do not depend on what was asked for.
 *
 * @param {RequestFinished} finished
 * @param {unknown} cause
 * @param {string} what names the culprit
 * @returns {unknown}
 */
export function errorOfAny({ reason, value }, cause, what) {
  const ms = (value / NS_PER_MS).toFixed(1);
  switch (reason) {
    case FinishReason.DEADLINE:
      return new DeadlineExceeded(
        `the request could not be finished by its deadline (it was here for ${ms} ms); ` +
          "allow more time or send less work",
      );
    case FinishReason.TIMEOUT:
      return new DeadlineExceeded(
        `the request waited ${ms} ms for its first step, more than its class allows; raise ` +
          "timeoutMs or send less work",
      );
    case FinishReason.ABORTED:
      return new Aborted("the request was cancelled, or its model was closed");
    case FinishReason.OUT_OF_MEMORY: {
      const bytesRequested = cause instanceof OutOfMemory ? cause.bytesRequested : 0;
      return new OutOfMemory(
        `${what} alone needs more memory than the backend has (${bytesRequested} bytes asked ` +
          "for); shorten it or load the model with a smaller limit",
        { bytesRequested, cause },
      );
    }
    case FinishReason.DEVICE_LOST: {
      const detail = cause instanceof Error ? ` (${cause.message})` : "";
      return new DeviceLost(`the backend died${detail}; load the model again`, { cause });
    }
  }
  return cause ?? new VoleryError("the backend failed without a reason");
}
