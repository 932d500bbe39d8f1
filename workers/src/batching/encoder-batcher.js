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
const MOST_CHARGE_NS = 1e12; // keeps accounts exact whatever a profile claims

/**
 * The members of a step, in row order, and what made them so; see `Why`.
 *
 * @typedef {object} Batch
 * @property {[Request, number][]} members (request, item) per row
 * @property {import("./types.js").StepShape} shape
 * @property {Bound} bound
 * @property {boolean} overdue
 * @property {number} blocked
 * @property {number} binding
 * @property {number} limit
 * @property {number} dueNs the earliest of a latency member, or -1
 */

/**
 * A sequence of a failed step, alone.
 *
 * @param {[Request, number]} member
 * @param {number} threads
 * @returns {Batch}
 */
export function retryBatch(member, threads) {
  const [request, item] = member;
  const n = request.numTokens[item];
  return {
    members: [member],
    shape: stepShape(1, n, n * n, 0, threads),
    bound: BoundBy.RETRY,
    overdue: false,
    blocked: -1,
    binding: request.requestId,
    limit: 1,
    dueNs: request.traffic === TrafficClass.LATENCY ? request.dueNs : -1,
  };
}

/** A batch while it grows. */
class Fill {
  /** @type {[Request, number][]} */
  members = [];
  numTokens = 0;
  sumLenSq = 0;
  /** The earliest deadline of a member, and whose it is. */
  deadlineNs = NEVER;
  deadlineOf = -1;
  /** The earliest due time of a latency member, and whose it is. */
  dueNs = NEVER;
  dueOf = -1;
  blocked = -1;
  binding = -1;
  limit = 0;

  #line;
  #caution;
  #nowNs;
  #maxTokens;
  #maxSeqs;

  /**
   * @param {CostLine} line
   * @param {Admission} admission
   * @param {number} margin
   * @param {number} nowNs
   */
  constructor(line, admission, margin, nowNs) {
    this.costNs = line.fixed;
    this.#line = line;
    this.#caution = 1 + margin;
    this.#nowNs = nowNs;
    this.#maxTokens = admission.maxTokens;
    this.#maxSeqs = admission.maxSeqs;
  }

  /**
   * Add items in the queue's order while the step stays within `limitNs`.
   *
   * @param {ClassQueue} queue
   * @param {number} limitNs
   * @param {number} [binding] the member that this limit is for
   * @returns {Bound}
   */
  takeFrom(queue, limitNs, binding = -1) {
    const { seq: seqNs, token: tokenNs, pair: pairNs } = this.#line;
    const { members } = this;
    const latency = queue.traffic === TrafficClass.LATENCY;
    for (let request = queue.head(); request !== null; request = queue.head()) {
      const n = request.numTokens[request.nextItem()];
      const itemNs = seqNs + tokenNs * n + pairNs * (n * n);
      const costNs = this.costNs + itemNs;
      let { deadlineNs, deadlineOf } = this;
      if (request.deadlineNs >= 0 && request.deadlineNs < deadlineNs) {
        deadlineNs = request.deadlineNs;
        deadlineOf = request.requestId;
      }
      if (members.length > 0) {
        const leftNs = deadlineNs - this.#nowNs;
        const { requestId } = request;
        if (members.length >= this.#maxSeqs) {
          return this.#stop(BoundBy.SEQS, requestId, this.#maxSeqs, binding);
        }
        if (this.numTokens + n > this.#maxTokens) {
          return this.#stop(BoundBy.TOKENS, requestId, this.#maxTokens, binding);
        }
        if (costNs * this.#caution > leftNs) {
          return this.#stop(BoundBy.DEADLINE, requestId, Math.max(leftNs, 0), deadlineOf);
        }
        if (costNs > limitNs) {
          const limit = Math.trunc(Math.max(limitNs, 0));
          return this.#stop(BoundBy.TIME, requestId, limit, binding);
        }
      }
      const chargeNs = Math.trunc(Math.min(itemNs, MOST_CHARGE_NS));
      members.push([request, queue.take(request, chargeNs)]);
      this.numTokens += n;
      this.sumLenSq += n * n;
      this.costNs = costNs;
      this.deadlineNs = deadlineNs;
      this.deadlineOf = deadlineOf;
      if (latency && request.dueNs < this.dueNs) {
        this.dueNs = request.dueNs;
        this.dueOf = request.requestId;
      }
    }
    return BoundBy.ALL;
  }

  /**
   * @param {Bound} bound
   * @param {number} blocked
   * @param {number} limit
   * @param {number} binding
   */
  #stop(bound, blocked, limit, binding) {
    this.blocked = blocked;
    this.limit = limit;
    this.binding = binding;
    return bound;
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
   * @param {number} margin part of a prediction to keep free before a deadline
   * @param {number} nowNs the present
   * @returns {Batch}
   */
  fill(queue, line, threads, limitNs, margin, nowNs) {
    const fill = new Fill(line, this.#admission, margin, nowNs);
    const { latency, throughput } = queue;
    const before = [latency.numSeqs, throughput.numSeqs];
    /** @type {Bound} */
    let bound = BoundBy.ALL;
    const overdue = latency.size > 0 && this.overdue(queue, nowNs);
    if (overdue) bound = fill.takeFrom(throughput, (limitNs * this.#sharePercent) / 100);
    if (bound === BoundBy.ALL || bound === BoundBy.TIME) bound = fill.takeFrom(latency, limitNs);
    if (bound === BoundBy.ALL) {
      let binding = -1;
      if (fill.members.length > 0) {
        const longerNs = (fill.costNs * (100 + this.#fillPercent)) / 100;
        limitNs = Math.min(limitNs, longerNs);
        if (fill.dueNs - nowNs < limitNs) {
          limitNs = fill.dueNs - nowNs;
          binding = fill.dueOf;
        }
      }
      bound = fill.takeFrom(throughput, limitNs, binding);
    }
    if (bound === BoundBy.ALL) {
      // An earlier round's are in it after all
      fill.blocked = fill.binding = -1;
      fill.limit = 0;
    }
    for (const ofClass of [latency, throughput]) {
      if (ofClass.numSeqs < before[ofClass.traffic]) {
        ofClass.skips = 0;
        ofClass.servedNs = nowNs;
      } else if (ofClass.size > 0) {
        ofClass.skips += 1;
      }
    }
    const { members, numTokens, sumLenSq, blocked, binding, limit } = fill;
    const shape = stepShape(members.length, numTokens, sumLenSq, 0, threads);
    const dueNs = fill.dueOf >= 0 ? fill.dueNs : -1;
    return { members, shape, bound, overdue, blocked, binding, limit, dueNs };
  }
}
