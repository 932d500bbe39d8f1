/** One model's work on the device: its queue and everything learned about it. */
import { Admission } from "./admission.js";
import { ArrivalRate } from "./arrival.js";
import { CostModel } from "./cost-model.js";
import { EncoderBatcher } from "./encoder-batcher.js";
import { RequestQueue } from "./queue.js";
import { PredictionStats } from "./stats.js";
import { MAX_NS, NS_PER_MS, TrafficClass, stepShape } from "./types.js";

/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./types.js").LaneSpec} LaneSpec */
/** @typedef {import("./types.js").StepShape} StepShape */

const TARGET_PARTS = 4; // a newcomer finds the device busy for at most this part of its target
const OUTLOOK = 4; // steps are short while somebody is expected within so many long ones
const TARGET_MEMORY = 16; // requests after which the tightest target seen is forgotten, about
const MOST_MARGIN = 0.5;

/**
 * What the lanes of encoders and decoders share.
 *
 * @abstract
 */
export class Lane {
  /**
   * Device time used so far over the lane's weight; that of steps on the device by prediction.
   */
  shareNs = 0;
  /** Its backend died. */
  lost = false;
  /** How good the predictions of its steps were. */
  predictions = new PredictionStats();

  #targetNs;
  #overheadPercent;
  #margin;

  /**
   * @param {LaneSpec} spec
   * @param {SchedulerConfig} config its knobs
   */
  constructor(spec, config) {
    this.spec = spec;
    this.config = config;
    this.queue = new RequestQueue(config);
    this.cost = new CostModel(spec.profile, {
      memorySteps: config.costMemorySteps,
      warmupSteps: config.warmupSteps,
    });
    /** Sequences of both classes. */
    this.arrivals = new ArrivalRate(config.arrivalWindowMs * NS_PER_MS);
    /** Of the latency class. */
    this.latencyArrivals = new ArrivalRate(config.arrivalWindowMs * NS_PER_MS);
    this.admission = new Admission(config, spec);
    /** How long a step may take. */
    this.stepNs = config.stepTargetMs * NS_PER_MS;
    this.#targetNs = config.latencyTargetMs * NS_PER_MS;
    this.#overheadPercent = config.stepOverheadPercent;
    this.#margin = config.deadlineMarginPercent / 100;
  }

  /**
   * Learn from a request that was let in what the traffic is like.
   *
   * @param {Request} request
   * @param {number} targetNs its latency target
   * @param {number} nowNs
   */
  arrived(request, targetNs, nowNs) {
    const count = request.numTokens.length;
    this.arrivals.add(count, nowNs);
    if (request.traffic !== TrafficClass.LATENCY) return;
    this.latencyArrivals.add(count, nowNs);
    if (request.deadlineNs >= 0) targetNs = Math.min(targetNs, request.deadlineNs - nowNs);
    if (targetNs < this.#targetNs) {
      this.#targetNs = targetNs;
    } else {
      this.#targetNs += Math.floor((targetNs - this.#targetNs) / TARGET_MEMORY);
    }
  }

  /**
   * How long the next step may take by prediction.
   *
   * While somebody waits for it, or will find it running, a step is only as long as efficiency
   * demands: packing more into it hardly makes a token cheaper, but everything in it and behind
   * it waits for its end.
   *
   * @param {number} threads
   * @param {number} nowNs
   */
  limitNs(threads, nowNs) {
    const limitNs = this.stepNs;
    if (this.#overheadPercent === 0 || !this.cost.warm) return limitNs;
    const outlookNs = OUTLOOK * limitNs;
    if (this.queue.latency.size > 0 || this.latencyArrivals.expected(outlookNs, nowNs) > 0) {
      const shortNs = Math.trunc(this.cost.line(threads).fixed * (100 / this.#overheadPercent));
      return Math.min(limitNs, Math.max(shortNs, Math.floor(this.#targetNs / TARGET_PARTS), 1));
    }
    return limitNs;
  }

  /** The part of a prediction to keep free before a deadline. */
  get margin() {
    return Math.min(this.cost.error * this.#margin, MOST_MARGIN);
  }

  /**
   * A predicted time with its margin.
   *
   * @param {number} ns
   */
  withMargin(ns) {
    return ns + Math.trunc(ns * this.margin);
  }

  /**
   * When the work of a lane that saves energy has to start.
   *
   * Later than now only if nothing is under way, the next step would not be full, and arrivals
   * are expected that will make it larger while every waiting request's slack still lasts.
   *
   * @param {number} threads
   * @param {number} nowNs
   * @returns {number}
   */
  holdUntilNs(threads, nowNs) {
    const { latency, throughput } = this.queue;
    const shape = this.waiting(threads);
    const ns = this.cost.predict(shape);
    const { maxSeqs, maxTokens } = this.admission;
    const full = shape.numSeqs >= maxSeqs || shape.numTokens >= maxTokens || ns >= this.stepNs;
    if (!this.mayHold || full) return nowNs;
    let untilNs = MAX_NS;
    // Nobody is due before its rank less what it needs, which is at most `ns`
    if (latency.size > 0) untilNs = latency.firstRankNs() - ns - this.withMargin(ns);
    if (throughput.size > 0) {
      const waitNs = this.config.throughputMaxWaitMs * NS_PER_MS;
      untilNs = Math.min(untilNs, throughput.servedNs + waitNs);
    }
    if (untilNs <= nowNs || this.arrivals.expected(untilNs - nowNs, nowNs) === 0) return nowNs;
    return untilNs;
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
   * Nothing but newcomers waits.
   *
   * @abstract
   * @returns {boolean}
   */
  get mayHold() {
    throw new TypeError("a kind of lane must say when it may hold its work back");
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
   * How long the waiting work of the latency class takes; 0 when there is none.
   *
   * @param {number} threads
   * @returns {number}
   */
  latencyNs(threads) {
    const { numSeqs, numTokens, sumLenSq } = this.queue.latency;
    if (numSeqs === 0) return 0;
    return this.cost.predict(stepShape(numSeqs, numTokens, sumLenSq, 0, threads));
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

  /** @override */
  get mayHold() {
    return this.nextRetry() === null;
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
    const head = this.queue.latency.head();
    if (head === null || this.nextRetry() !== null) return nowNs;
    return head.dueNs - this.latencyNs(threads);
  }
}
