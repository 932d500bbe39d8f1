/** One model's work on the device: its queue and everything learned about it. */
import { Admission } from "./admission.js";
import { ArrivalRate } from "./arrival.js";
import { CostModel } from "./cost-model.js";
import { EncoderBatcher } from "./encoder-batcher.js";
import { RequestQueue } from "./queue.js";
import { NS_PER_MS, stepShape } from "./types.js";

/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./types.js").LaneSpec} LaneSpec */
/** @typedef {import("./types.js").StepShape} StepShape */

/**
 * What the lanes of encoders and decoders share.
 *
 * @abstract
 */
export class Lane {
  /** Device time used so far over the lane's weight. */
  shareNs = 0;
  /** Its backend died. */
  lost = false;

  /**
   * @param {LaneSpec} spec
   * @param {SchedulerConfig} config
   */
  constructor(spec, config) {
    this.spec = spec;
    this.queue = new RequestQueue(config.latency, config.throughput);
    this.cost = new CostModel(spec.profile, {
      memorySteps: config.costMemorySteps,
      warmupSteps: config.warmupSteps,
    });
    this.arrivals = new ArrivalRate(config.arrivalWindowMs * NS_PER_MS);
    this.admission = new Admission(config, spec);
  }

  /**
   * A step could start now.
   *
   * @abstract
   * @returns {boolean}
   */
  get hasWork() {
    throw new TypeError("a kind of lane must say when it has work");
  }

  /**
   * It has latency work, a retry, or bulk work whose turn is overdue.
   *
   * @abstract
   * @param {number} nowNs
   * @returns {boolean}
   */
  isUrgent(nowNs) {
    throw new TypeError(`a kind of lane must say whether it is urgent at ${nowNs}`);
  }

  /**
   * When the urgent work must start to be done when it is due.
   *
   * @abstract
   * @param {number} threads
   * @param {number} nowNs
   * @returns {number}
   */
  latestStartNs(threads, nowNs) {
    throw new TypeError(`a kind of lane must know its latest start on ${threads} at ${nowNs}`);
  }

  /**
   * Everything that could run now, as one step.
   *
   * @param {number} threads
   * @returns {StepShape}
   */
  waiting(threads) {
    const { queue } = this;
    return stepShape(queue.numSeqs, queue.numTokens, queue.sumLenSq, 0, threads);
  }

  /**
   * How long the waiting items of `request` take with the device to themselves.
   *
   * @param {Request} request
   * @param {number} threads
   */
  aloneNs(request, threads) {
    const { numWaiting, waitingTokens, waitingSq } = request;
    return this.cost.predict(stepShape(numWaiting, waitingTokens, waitingSq, 0, threads));
  }
}

/** Sequences that run once, whole. */
export class EncoderLane extends Lane {
  /** (request, item) of failed steps, each to run alone. @type {[Request, number][]} */
  retries = [];
  retriedLast = false;

  /**
   * @param {LaneSpec} spec
   * @param {SchedulerConfig} config
   */
  constructor(spec, config) {
    super(spec, config);
    this.batcher = new EncoderBatcher(config, this.admission);
  }

  /** @override */
  get hasWork() {
    return this.queue.numSeqs > 0 || this.nextRetry() !== null;
  }

  /**
   * The first retry whose request still lives.
   *
   * @returns {[Request, number] | null}
   */
  nextRetry() {
    while (this.retries.length > 0 && !this.retries[0][0].alive) this.retries.shift();
    return this.retries[0] ?? null;
  }

  /**
   * @override
   * @param {number} nowNs
   */
  isUrgent(nowNs) {
    return (
      this.queue.latency.size > 0 ||
      this.nextRetry() !== null ||
      this.batcher.overdue(this.queue, nowNs)
    );
  }

  /**
   * @override
   * @param {number} threads
   * @param {number} nowNs
   */
  latestStartNs(threads, nowNs) {
    const { latency } = this.queue;
    const head = latency.head();
    if (head === null || this.nextRetry() !== null) return nowNs;
    const shape = stepShape(latency.numSeqs, latency.numTokens, latency.sumLenSq, 0, threads);
    return head.dueNs - this.cost.predict(shape);
  }
}
