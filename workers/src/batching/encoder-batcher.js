/**
 * Fills one encoder step: whole sequences, packed, until a budget is spent.
 *
 * The order: a turn of the throughput class when it has waited too long; the latency class,
 * earliest due time first; then throughput sequences in what is left. A step that carries
 * latency sequences is lengthened by bulk work only a little, because packing more tokens
 * into a step hardly makes a token cheaper, while every sequence in it waits for its end.
 */
import { BoundBy, MAX_NS, NS_PER_MS, TrafficClass, stepShape } from "./types.js";

/** @typedef {import("./admission.js").Admission} Admission */
/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./cost-model.js").CostLine} CostLine */
/** @typedef {import("./queue.js").ClassQueue} ClassQueue */
/** @typedef {import("./queue.js").RequestQueue} RequestQueue */
/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./types.js").Bound} Bound */

const NEVER = 2 * MAX_NS;

/**
 * The members of a step, in row order.
 *
 * @typedef {object} Batch
 * @property {[Request, number][]} members (request, item) per row
 * @property {import("./types.js").StepShape} shape
 * @property {Bound} bound
 */

/** A batch while it grows. */
class Fill {
  /** @type {[Request, number][]} */
  members = [];
  numTokens = 0;
  sumLenSq = 0;
  /** The earliest deadline of a member. */
  deadlineNs = NEVER;
  /** The earliest due time of a latency member. */
  dueNs = NEVER;

  #line;
  #nowNs;
  #maxTokens;
  #maxSeqs;

  /**
   * @param {CostLine} line
   * @param {Admission} admission
   * @param {number} nowNs
   */
  constructor(line, admission, nowNs) {
    this.costNs = line.fixed;
    this.#line = line;
    this.#nowNs = nowNs;
    this.#maxTokens = admission.maxTokens;
    this.#maxSeqs = admission.maxSeqs;
  }

  /**
   * Add items in the queue's order while the step stays within `limitNs`.
   *
   * @param {ClassQueue} queue
   * @param {number} limitNs
   * @returns {Bound}
   */
  takeFrom(queue, limitNs) {
    const { seq: seqNs, token: tokenNs, pair: pairNs } = this.#line;
    const { members } = this;
    for (let request = queue.head(); request !== null; request = queue.head()) {
      const n = request.numTokens[request.nextItem()];
      const costNs = this.costNs + seqNs + tokenNs * n + pairNs * (n * n);
      let { deadlineNs } = this;
      if (request.deadlineNs >= 0 && request.deadlineNs < deadlineNs) {
        deadlineNs = request.deadlineNs;
      }
      if (members.length > 0) {
        if (members.length >= this.#maxSeqs) return BoundBy.SEQS;
        if (this.numTokens + n > this.#maxTokens) return BoundBy.TOKENS;
        if (costNs > deadlineNs - this.#nowNs) return BoundBy.DEADLINE;
        if (costNs > limitNs) return BoundBy.TIME;
      }
      members.push([request, queue.take(request)]);
      this.numTokens += n;
      this.sumLenSq += n * n;
      this.costNs = costNs;
      this.deadlineNs = deadlineNs;
      if (queue.traffic === TrafficClass.LATENCY && request.dueNs < this.dueNs) {
        this.dueNs = request.dueNs;
      }
    }
    return BoundBy.ALL;
  }
}

/** Builds the next batch of one lane. */
export class EncoderBatcher {
  #admission;
  #fillPercent;
  #maxWaitNs;
  #maxSkips;
  #sharePercent;

  /**
   * @param {SchedulerConfig} config
   * @param {Admission} admission
   */
  constructor(config, admission) {
    this.#admission = admission;
    this.#fillPercent = config.fillPercent;
    this.#maxWaitNs = config.throughputMaxWaitMs * NS_PER_MS;
    this.#maxSkips = config.throughputMaxSkips;
    this.#sharePercent = config.throughputSharePercent;
  }

  /**
   * The throughput class has waited for its turn long enough.
   *
   * @param {RequestQueue} queue
   * @param {number} nowNs
   */
  overdue({ throughput: bulk }, nowNs) {
    return (
      bulk.size > 0 && (nowNs - bulk.servedNs >= this.#maxWaitNs || bulk.skips >= this.#maxSkips)
    );
  }

  /**
   * Take the members of the next step out of `queue`, which is not empty.
   *
   * @param {RequestQueue} queue
   * @param {CostLine} line the cost model at this step's thread count
   * @param {number} threads that count
   * @param {number} limitNs the predicted time that the step may take; its first sequence
   *   runs whatever it takes
   * @param {number} nowNs the present
   * @returns {Batch}
   */
  fill(queue, line, threads, limitNs, nowNs) {
    const fill = new Fill(line, this.#admission, nowNs);
    const { latency, throughput } = queue;
    const before = [latency.numSeqs, throughput.numSeqs];
    /** @type {Bound} */
    let bound = BoundBy.ALL;
    if (this.overdue(queue, nowNs) && latency.size > 0) {
      bound = fill.takeFrom(throughput, (limitNs * this.#sharePercent) / 100);
    }
    if (bound === BoundBy.ALL || bound === BoundBy.TIME) bound = fill.takeFrom(latency, limitNs);
    if (bound === BoundBy.ALL) {
      if (fill.members.length > 0) {
        const longerNs = (fill.costNs * (100 + this.#fillPercent)) / 100;
        limitNs = Math.min(limitNs, longerNs, fill.dueNs - nowNs);
      }
      bound = fill.takeFrom(throughput, limitNs);
    }
    for (const ofClass of [latency, throughput]) {
      if (ofClass.numSeqs < before[ofClass.traffic]) {
        ofClass.skips = 0;
        ofClass.servedNs = nowNs;
      } else if (ofClass.size > 0) {
        ofClass.skips += 1;
      }
    }
    const { members, numTokens, sumLenSq } = fill;
    return { members, shape: stepShape(members.length, numTokens, sumLenSq, 0, threads), bound };
  }
}
