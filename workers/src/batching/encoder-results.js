/** What the end of an encoder's step means for the sequences that were in it. */
import { FinishReason, StepOutcome } from "./types.js";

/** @typedef {import("./events.js").Decision} Decision */
/** @typedef {import("./events.js").StepCompleted} StepCompleted */
/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./scheduler.js").RunningStep} RunningStep */
/** @typedef {import("./types.js").Reason} Reason */

/**
 * Ends a request.
 *
 * @typedef {(request: Request, reason: Reason, item?: number, stepId?: number) => void} Finish
 */

/** Turns completions into vectors and ends. */
export class EncoderResults {
  #finish;

  /** @param {Finish} finish */
  constructor(finish) {
    this.#finish = finish;
  }

  /**
   * A step ended, well or not.
   *
   * @param {RunningStep} step
   * @param {StepCompleted} event
   * @param {number} nowNs
   * @param {Decision[]} out
   */
  take(step, event, nowNs, out) {
    const { outcome, stepId } = event;
    if (outcome === StepOutcome.OK) this.#deliver(step, event, out);
    else if (outcome === StepOutcome.OUT_OF_MEMORY) this.#giveBack(step, stepId, nowNs);
    else if (outcome === StepOutcome.FAILED) this.#retry(step, stepId);
  }

  /**
   * @param {RunningStep} step
   * @param {StepCompleted} event
   * @param {Decision[]} out
   */
  #deliver({ members }, { stepId, nonFinite }, out) {
    for (const row of nonFinite) {
      const [request, item] = members[row];
      if (request.alive) this.#finish(request, FinishReason.NON_FINITE, item, stepId);
    }
    let row = 0;
    while (row < members.length) {
      const [request, first] = members[row];
      const start = row;
      do row += 1;
      while (
        row < members.length &&
        members[row][0] === request &&
        members[row][1] === first + row - start
      );
      if (!request.alive) continue;
      const numItems = row - start;
      const { requestId } = request;
      request.numDone += numItems;
      out.push({ type: "ready", requestId, item: first, numItems, stepId, row: start });
      if (request.complete) this.#finish(request, FinishReason.DONE);
    }
  }

  /**
   * Every sequence of a failed step runs once more, alone; then it is the culprit.
   *
   * @param {RunningStep} step
   * @param {number} stepId
   */
  #retry(step, stepId) {
    for (const [request, item] of step.members) {
      if (!request.alive) continue;
      if (step.isRetry) this.#finish(request, FinishReason.FAILED, item, stepId);
      else step.lane.retries.push([request, item]);
    }
  }

  /**
   * The step was too large for memory; a single sequence cannot get smaller.
   *
   * @param {RunningStep} step
   * @param {number} stepId
   * @param {number} nowNs
   */
  #giveBack(step, stepId, nowNs) {
    const members = step.members.filter(([request]) => request.alive);
    if (step.members.length === 1) {
      for (const [request, item] of members) {
        this.#finish(request, FinishReason.OUT_OF_MEMORY, item, stepId);
      }
      return;
    }
    /** @type {Map<Request, number[]>} */
    const itemsOf = new Map();
    for (const [request, item] of members) {
      const items = itemsOf.get(request);
      if (items === undefined) itemsOf.set(request, [item]);
      else items.push(item);
    }
    for (const [request, items] of itemsOf) step.lane.queue.giveBack(request, items, nowNs);
  }
}
