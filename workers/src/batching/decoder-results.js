/** What the end of a decoder's step means for the samples that were in it. */
import { InvalidInput } from "../errors.js";
import { FinishReason, StepOutcome } from "./types.js";

const MOST_CHARGE_NS = 1e12; // keeps accounts exact whatever a profile claims

/** @typedef {import("./decoder-lane.js").DecoderLane} DecoderLane */
/** @typedef {import("./events.js").Decision} Decision */
/** @typedef {import("./events.js").StepCompleted} StepCompleted */
/** @typedef {import("./generation.js").Generation} Generation */
/** @typedef {import("./generation.js").Sample} Sample */
/** @typedef {import("./scheduler.js").RunningDecoderStep} RunningDecoderStep */
/** @typedef {import("./types.js").Reason} Reason */

/**
 * Ends a request, with all of its samples.
 *
 * @typedef {(request: Generation, reason: Reason, item?: number, stepId?: number) => void}
 *   Finish
 */

/** Turns completions into tokens and ends. */
export class DecoderResults {
  #finish;

  /** @param {Finish} finish */
  constructor(finish) {
    this.#finish = finish;
  }

  /**
   * A step ended, well or not.
   *
   * @param {RunningDecoderStep} step
   * @param {StepCompleted} event
   * @param {number} nowNs
   * @param {Decision[]} out
   * @throws {InvalidInput} the driver brings another number of tokens than were wanted
   */
  take(step, event, nowNs, out) {
    const { lane } = step;
    lane.landedNs = nowNs;
    if (event.outcome === StepOutcome.OK && event.sampled.length !== step.numWanted) {
      throw new InvalidInput(
        `step ${event.stepId} brought ${event.sampled.length} tokens, expected ${step.numWanted}`,
      );
    }
    lane.residents.landed(step.members);
    if (event.outcome === StepOutcome.OK) {
      lane.batcher.learn(step.shape, event.deviceNs);
      this.#tokens(lane, step, event, out);
    } else if (event.outcome === StepOutcome.FAILED) {
      this.#suspect(step, event.stepId);
    } else if (event.outcome === StepOutcome.OUT_OF_MEMORY && step.shape.numTokens === 1) {
      const [sample] = step.members[0];
      if (sample.alive) {
        const reason = FinishReason.OUT_OF_MEMORY;
        this.#finish(sample.request, reason, sample.index, event.stepId);
      }
    }
  }

  /**
   * End one sample, and its request with the last of them.
   *
   * @param {DecoderLane} lane
   * @param {Sample} sample
   * @param {Reason} reason
   * @param {Decision[]} out
   */
  stop(lane, sample, reason, out) {
    const { request } = sample;
    lane.residents.end(sample);
    out.push({ type: "sample", requestId: request.requestId, sample: sample.index, reason });
    request.numOpen -= 1;
    if (request.numOpen === 0) this.#finish(request, FinishReason.DONE);
  }

  /**
   * @param {DecoderLane} lane
   * @param {RunningDecoderStep} step
   * @param {StepCompleted} event
   * @param {Decision[]} out
   */
  #tokens(lane, step, event, out) {
    const { residents } = lane;
    const { kv } = residents;
    const { stepId, sampled } = event;
    const { queue } = lane;
    const line = lane.cost.line(step.shape.threads);
    // An account matters while somebody waits
    const tokenNs = Math.trunc(Math.min(line.seq + line.token, MOST_CHARGE_NS));
    const chargeNs = queue.numSeqs > 0 ? tokenNs : 0;
    if (step.isRetry) {
      step.members[0][0].suspect = 0;
      residents.changed();
    }
    for (const row of event.nonFinite) {
      const [sample] = step.members[row];
      if (!sample.alive) continue;
      residents.end(sample, false);
      this.#finish(sample.request, FinishReason.NON_FINITE, sample.index, stepId);
    }
    for (let i = 0; i < step.members.length; i++) {
      const [sample, count] = step.members[i];
      const row = step.rows[i];
      if (!sample.alive) continue;
      if (row < 0) {
        kv.computed(sample.seqId, count);
        residents.changed();
        residents.fork(sample);
        continue;
      }
      if (count > 1) {
        kv.computed(sample.seqId, count - 1);
        residents.changed();
      }
      const tokenId = sampled[row];
      kv.advance(sample.kv, tokenId);
      const { requestId, stopIds, traffic, tenant } = sample.request;
      if (chargeNs > 0) queue.of(traffic).tenants.charge(tenant, chargeNs);
      const { length } = sample.kv.tokens;
      out.push({
        type: "token",
        requestId,
        sample: sample.index,
        tokenId,
        position: length - 1,
        stepId,
        row,
      });
      if (stopIds.includes(tokenId)) {
        this.stop(lane, sample, FinishReason.STOP, out);
      } else if (length >= sample.end) {
        this.stop(lane, sample, FinishReason.LENGTH, out);
      }
    }
  }

  /**
   * Each sequence of a failed step runs once more, alone; then it is the culprit.
   *
   * @param {RunningDecoderStep} step
   * @param {number} stepId
   */
  #suspect(step, stepId) {
    step.lane.residents.changed();
    for (const [sample, count] of step.members) {
      if (!sample.alive) continue;
      if (step.isRetry) {
        step.lane.residents.end(sample, false);
        this.#finish(sample.request, FinishReason.FAILED, sample.index, stepId);
      } else {
        sample.suspect = count;
      }
    }
  }
}
