/** Turns waiting work into steps whenever the device has room. */
import { Arbiter } from "./arbiter.js";
import { DecoderLane } from "./decoder-lane.js";
import { retryBatch } from "./encoder-batcher.js";
import { MAX_NS, mostThreads } from "./types.js";

/** @typedef {import("./events.js").StepScheduled} StepScheduled */
/** @typedef {import("./events.js").DecoderStepScheduled} DecoderStepScheduled */
/** @typedef {import("./generation.js").Sample} Sample */
/** @typedef {import("./lane.js").EncoderLane} EncoderLane */
/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./types.js").DecoderSlice} DecoderSlice */
/** @typedef {import("./types.js").DeviceSpec} DeviceSpec */
/** @typedef {import("./types.js").StepShape} StepShape */
/** @typedef {import("./types.js").TurnName} TurnName */
/** @typedef {import("./types.js").Why} Why */

/**
 * A step on the device.
 *
 * @typedef {object} RunningStep
 * @property {"step"} type
 * @property {EncoderLane} lane
 * @property {readonly (readonly [Request, number])[]} members (request, item) per row
 * @property {StepShape} shape
 * @property {number} predictedNs
 * @property {number} chargeNs what the lane's share of the device was charged for it
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
 * @property {number} chargeNs
 * @property {boolean} isRetry
 * @property {readonly number[]} rows per member which of the wanted rows is its, or -1
 * @property {number} numWanted how many rows are wanted
 */

const MOST_NS = 2 ** 40; // of a step's time that is charged; keeps the products below 2**53

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
   */
  constructor(lanes, device) {
    this.#lanes = lanes;
    this.#device = device;
    this.#arbiter = new Arbiter(device);
    this.#freeThreads = device.threads;
  }

  /** When work that is held back to save energy has to start, or `MAX_NS`. */
  get wakeNs() {
    return this.#hasRoom ? this.#arbiter.wakeNs : MAX_NS;
  }

  get #hasRoom() {
    return this.#freeThreads > 0 && this.running.size < this.#device.concurrentSteps;
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
    while (this.#hasRoom) {
      const choice = this.#arbiter.chooseLane(this.#lanes, nowNs);
      if (choice === null) break;
      const { lane, turn } = choice;
      if (lane instanceof DecoderLane) scheduled.push(this.#startDecoder(lane, turn, nowNs));
      else scheduled.push(this.#start(/** @type {EncoderLane} */ (lane), turn, nowNs));
    }
    return scheduled;
  }

  /**
   * Take a step off the device; null when it is not on it.
   *
   * @param {number} stepId
   * @param {number} deviceNs the time it took, which replaces the predicted one in the lane's
   *   share
   * @returns {RunningStep | RunningDecoderStep | null}
   */
  finish(stepId, deviceNs) {
    const step = this.running.get(stepId);
    if (step === undefined) return null;
    this.running.delete(stepId);
    const { lane, shape, chargeNs } = step;
    this.#freeThreads += shape.threads;
    lane.shareNs += this.#charge(lane, deviceNs, shape.threads) - chargeNs;
    return step;
  }

  /**
   * What `ns` on so many threads cost a lane: its part of the device, over its weight.
   *
   * @param {Lane} lane
   * @param {number} ns
   * @param {number} threads
   */
  #charge(lane, ns, threads) {
    const whole = this.#device.threads * lane.spec.weight;
    return Math.floor((Math.min(Math.max(ns, 0), MOST_NS) * threads) / whole);
  }

  /**
   * Take the device for a step; its number, and what its lane is charged.
   *
   * @param {Lane} lane
   * @param {StepShape} shape
   * @param {number} predictedNs
   */
  #begin(lane, { threads }, predictedNs) {
    const stepId = this.#nextStep++;
    this.#freeThreads -= threads;
    const chargeNs = this.#charge(lane, predictedNs, threads);
    lane.shareNs += chargeNs;
    return { stepId, chargeNs };
  }

  /**
   * @param {DecoderLane} lane
   * @param {TurnName} turn
   * @param {number} nowNs
   * @returns {DecoderStepScheduled}
   */
  #startDecoder(lane, turn, nowNs) {
    const most = mostThreads(this.#device, this.#freeThreads);
    const threads = this.#arbiter.bestThreads(lane, most);
    const batch = lane.batcher.fill(lane.cost.line(threads), threads, nowNs);
    const { members, copies, shape, bound, isRetry } = batch;
    const predictedNs = lane.cost.predict(shape);
    const { stepId, chargeNs } = this.#begin(lane, shape, predictedNs);
    lane.residents.stepId = stepId;
    const { seqs, rows, numWanted } = this.#slices(lane, members, stepId);
    const type = "decoder_step";
    const step = { type, lane, members, shape, predictedNs, chargeNs, isRetry, rows, numWanted };
    this.running.set(stepId, /** @type {RunningDecoderStep} */ (step));
    /** @type {Why} */
    const why = {
      turn,
      overdue: batch.overdue,
      blocked: batch.blocked,
      binding: batch.binding,
      limit: batch.limit,
      slackNs: Math.min(batch.spareNs - predictedNs, MAX_NS),
      waiting: lane.queue.numSeqs + lane.residents.preempted.length,
      expected: lane.arrivals.expected(predictedNs, nowNs),
    };
    return { type, stepId, lane: lane.spec.name, seqs, copies, shape, predictedNs, bound, why };
  }

  /**
   * What the driver needs to know of every member.
   *
   * @param {DecoderLane} lane
   * @param {readonly (readonly [Sample, number])[]} members
   * @param {number} stepId
   */
  #slices(lane, members, stepId) {
    const { kv } = lane.residents;
    let numWanted = 0;
    /** @type {number[]} */
    const rows = [];
    /** @type {DecoderSlice[]} */
    const seqs = [];
    for (const [sample, numTokens] of members) {
      const seq = sample.kv;
      const contextLen = seq.computed;
      const wanted = contextLen + numTokens === seq.tokens.length ? 1 : 0;
      rows.push(wanted ? numWanted : -1);
      numWanted += wanted;
      let kept = seq.blocks.length;
      let blocks = SAME;
      if (seq.changed < kept) ({ kept, blocks } = kv.changes(sample.seqId));
      sample.lastStep = stepId;
      const { requestId } = sample.request;
      const { index } = sample;
      seqs.push({ requestId, sample: index, contextLen, numTokens, wanted, kept, blocks });
    }
    return { seqs, rows, numWanted };
  }

  /**
   * @param {EncoderLane} lane
   * @param {TurnName} turn
   * @param {number} nowNs
   * @returns {StepScheduled}
   */
  #start(lane, turn, nowNs) {
    const retry = lane.nextRetry();
    // Retries and fresh work take turns, so that one bad batch delays nobody for long.
    const isRetry = retry !== null && !(lane.retriedLast && lane.queue.numSeqs > 0);
    lane.retriedLast = isRetry;
    const batch = isRetry ? this.#retry(lane, retry) : this.#fresh(lane, nowNs);
    const { members, shape, bound } = batch;
    const predictedNs = lane.cost.predict(shape);
    const { stepId, chargeNs } = this.#begin(lane, shape, predictedNs);
    const type = "step";
    this.running.set(stepId, { type, lane, members, shape, predictedNs, chargeNs, isRetry });
    const seqs = members.map(([{ requestId, numTokens }, item]) => {
      return { requestId, item, numTokens: numTokens[item] };
    });
    /** @type {Why} */
    const why = {
      turn,
      overdue: batch.overdue ? 1 : 0,
      blocked: batch.blocked,
      binding: batch.binding,
      limit: batch.limit,
      slackNs: batch.dueNs >= 0 ? batch.dueNs - nowNs - predictedNs : MAX_NS,
      waiting: lane.queue.numSeqs,
      expected: lane.arrivals.expected(predictedNs, nowNs),
    };
    return { type, stepId, lane: lane.spec.name, seqs, shape, predictedNs, bound, why };
  }

  /**
   * @param {EncoderLane} lane
   * @param {[Request, number]} retry its first
   */
  #retry(lane, retry) {
    lane.retries.shift();
    return retryBatch(retry, mostThreads(this.#device, this.#freeThreads));
  }

  /**
   * @param {EncoderLane} lane
   * @param {number} nowNs
   */
  #fresh(lane, nowNs) {
    const slots = this.#device.concurrentSteps - this.running.size;
    const { threads, limitNs } = this.#arbiter.chooseThreads(lane, this.#freeThreads, slots, nowNs);
    const line = lane.cost.line(threads);
    return lane.batcher.fill(lane.queue, line, threads, limitNs, lane.margin, nowNs);
  }
}
