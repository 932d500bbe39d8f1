/** Turns waiting work into steps whenever the device has room. */
import { Arbiter } from "./arbiter.js";
import { DecoderLane } from "./decoder-lane.js";
import { BoundBy, stepShape } from "./types.js";

/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./events.js").StepScheduled} StepScheduled */
/** @typedef {import("./events.js").DecoderStepScheduled} DecoderStepScheduled */
/** @typedef {import("./generation.js").Sample} Sample */
/** @typedef {import("./lane.js").EncoderLane} EncoderLane */
/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./types.js").DecoderSlice} DecoderSlice */
/** @typedef {import("./types.js").DeviceSpec} DeviceSpec */
/** @typedef {import("./types.js").StepShape} StepShape */

/**
 * A step on the device.
 *
 * @typedef {object} RunningStep
 * @property {"step"} type
 * @property {EncoderLane} lane
 * @property {readonly (readonly [Request, number])[]} members (request, item) per row
 * @property {StepShape} shape
 * @property {number} predictedNs
 * @property {boolean} isRetry it holds one sequence of a failed step
 */

/**
 * A decoder's step on the device.
 *
 * @typedef {object} RunningDecoderStep
 * @property {"decoder_step"} type
 * @property {DecoderLane} lane
 * @property {readonly (readonly [Sample, number])[]} members (sample, tokens) per row
 * @property {StepShape} shape
 * @property {number} predictedNs
 * @property {boolean} isRetry
 * @property {readonly number[]} rows per member which of the wanted rows is its, or -1
 * @property {number} numWanted how many rows are wanted
 */

/** @type {readonly number[]} */
const SAME = [];

/** Starts steps. There is no timer here: work starts when the device is free. */
export class Scheduler {
  /** Steps in flight by step id, oldest first. @type {Map<number, RunningStep | RunningDecoderStep>} */
  running = new Map();

  #lanes;
  #device;
  #arbiter;
  #freeThreads;
  #nextStep = 0;

  /**
   * @param {readonly Lane[]} lanes
   * @param {DeviceSpec} device
   * @param {SchedulerConfig} config
   */
  constructor(lanes, device, config) {
    this.#lanes = lanes;
    this.#device = device;
    this.#arbiter = new Arbiter(device, config.stepTargetMs);
    this.#freeThreads = device.threads;
  }

  /**
   * Start every step that the device has room for.
   *
   * @param {number} nowNs
   * @returns {(StepScheduled | DecoderStepScheduled)[]}
   */
  schedule(nowNs) {
    /** @type {(StepScheduled | DecoderStepScheduled)[]} */
    const scheduled = [];
    while (this.#freeThreads > 0) {
      const slots = this.#device.concurrentSteps - this.running.size;
      const lane = slots > 0 ? this.#arbiter.chooseLane(this.#lanes, nowNs) : null;
      if (lane === null) break;
      if (lane instanceof DecoderLane) scheduled.push(this.#startDecoder(lane, nowNs));
      else scheduled.push(this.#start(/** @type {EncoderLane} */ (lane), slots, nowNs));
    }
    return scheduled;
  }

  /**
   * Take a step off the device; null when it is not on it.
   *
   * @param {number} stepId
   * @returns {RunningStep | RunningDecoderStep | null}
   */
  finish(stepId) {
    const step = this.running.get(stepId);
    if (step === undefined) return null;
    this.running.delete(stepId);
    this.#freeThreads += step.shape.threads;
    return step;
  }

  /**
   * @param {DecoderLane} lane
   * @param {number} nowNs
   * @returns {DecoderStepScheduled}
   */
  #startDecoder(lane, nowNs) {
    const threads = this.#arbiter.bestThreads(lane, this.#freeThreads);
    const batch = lane.batcher.fill(lane.cost.line(threads), threads, nowNs);
    const { members, copies, shape, bound, isRetry } = batch;
    const predictedNs = lane.cost.predict(shape);
    const stepId = this.#nextStep++;
    this.#freeThreads -= threads;
    lane.inFlight = true;
    let numWanted = 0;
    /** @type {number[]} */
    const rows = [];
    /** @type {DecoderSlice[]} */
    const seqs = [];
    const { kv } = lane.residents;
    for (const [sample, count] of members) {
      const seq = sample.kv;
      const contextLen = seq.computed;
      const wanted = contextLen + count === seq.tokens.length ? 1 : 0;
      rows.push(wanted ? numWanted : -1);
      numWanted += wanted;
      let kept = seq.blocks.length;
      let blocks = SAME;
      if (seq.changed < kept) ({ kept, blocks } = kv.changes(sample.seqId));
      sample.inFlight = count;
      sample.lastStep = stepId;
      const { requestId } = sample.request;
      seqs.push({
        requestId,
        sample: sample.index,
        contextLen,
        numTokens: count,
        wanted,
        kept,
        blocks,
      });
    }
    const type = "decoder_step";
    const running = { type, lane, members, shape, predictedNs, isRetry, rows, numWanted };
    this.running.set(stepId, /** @type {RunningDecoderStep} */ (running));
    return { type, stepId, lane: lane.spec.name, seqs, copies, shape, predictedNs, bound };
  }

  /**
   * @param {EncoderLane} lane
   * @param {number} slots
   * @param {number} nowNs
   * @returns {StepScheduled}
   */
  #start(lane, slots, nowNs) {
    const { members, shape, bound, isRetry } = this.#retry(lane) ?? this.#fresh(lane, slots, nowNs);
    const predictedNs = lane.cost.predict(shape);
    const stepId = this.#nextStep++;
    this.#freeThreads -= shape.threads;
    const type = "step";
    this.running.set(stepId, { type, lane, members, shape, predictedNs, isRetry });
    const seqs = members.map(([{ requestId, numTokens }, item]) => {
      return { requestId, item, numTokens: numTokens[item] };
    });
    return { type, stepId, lane: lane.spec.name, seqs, shape, predictedNs, bound };
  }

  /**
   * Retries and fresh work take turns, so that one bad batch delays nobody for long.
   *
   * @param {EncoderLane} lane
   */
  #retry(lane) {
    const retry = lane.nextRetry();
    if (retry === null || (lane.retriedLast && lane.queue.numSeqs > 0)) return null;
    lane.retriedLast = true;
    lane.retries.shift();
    const [request, item] = retry;
    const n = request.numTokens[item];
    const shape = stepShape(1, n, n * n, 0, this.#freeThreads);
    return { members: [retry], shape, bound: BoundBy.RETRY, isRetry: true };
  }

  /**
   * @param {EncoderLane} lane
   * @param {number} slots
   * @param {number} nowNs
   */
  #fresh(lane, slots, nowNs) {
    lane.retriedLast = false;
    const { threads, limitNs } = this.#arbiter.chooseThreads(lane, this.#freeThreads, slots);
    const line = lane.cost.line(threads);
    return { ...lane.batcher.fill(lane.queue, line, threads, limitNs, nowNs), isRetry: false };
  }
}
