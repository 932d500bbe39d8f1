/** A decoder's step while it grows. */
import { BoundBy, MAX_NS } from "./types.js";

/** @typedef {import("./cost-model.js").CostLine} CostLine */
/** @typedef {import("./generation.js").Sample} Sample */
/** @typedef {import("./kv/sequence.js").BlockCopy} BlockCopy */
/** @typedef {import("./types.js").Bound} Bound */

/** Members, copies, and what they cost. */
export class Fill {
  /** @type {[Sample, number][]} */
  members = [];
  /** @type {BlockCopy[]} */
  copies = [];
  numTokens = 0;
  pairs = 0;
  kvTokens = 0;
  /** @type {Bound} */
  bound = BoundBy.ALL;
  preempted = false;
  spareNs = MAX_NS;
  blocked = -1;
  binding = -1;
  limit = 0;

  /**
   * @param {CostLine} line
   * @param {number} targetNs what it may take by prediction: the tightest TPOT target of a
   *   stream in it, which is that of request `binding`
   * @param {number} nowNs
   */
  constructor(line, targetNs, nowNs) {
    this.line = line;
    this.targetNs = targetNs;
    this.nowNs = nowNs;
  }

  /** What it is predicted to take. */
  get ns() {
    const { line } = this;
    const ns = line.fixed + line.seq * this.members.length + line.token * this.numTokens;
    return ns + line.pair * this.pairs + line.kv * this.kvTokens;
  }

  /** Its streams are chosen: the tightest of their targets is the step's. */
  aim() {
    if (this.members.length === 0) return;
    this.targetNs = MAX_NS;
    for (const [{ request }] of this.members) {
      if (request.tpotTargetNs < this.targetNs) {
        this.targetNs = request.tpotTargetNs;
        this.binding = request.requestId;
      }
    }
    this.spareNs = this.targetNs;
  }

  /**
   * Something kept `blocked` out; the last obstacle is the one that is told.
   *
   * @param {Bound} bound
   * @param {number} blocked
   * @param {number} limit
   */
  stop(bound, blocked, limit) {
    this.bound = bound;
    this.blocked = blocked;
    this.limit = limit;
  }

  /**
   * A prompt does not get all of its tokens.
   *
   * @param {Sample} sample
   */
  outOfTime(sample) {
    this.stop(BoundBy.TPOT, sample.request.requestId, this.targetNs);
  }

  /**
   * @param {Sample} sample
   * @param {number} numTokens
   */
  add(sample, numTokens) {
    const context = sample.kv.computed + numTokens;
    this.members.push([sample, numTokens]);
    this.numTokens += numTokens;
    this.pairs += numTokens * context;
    this.kvTokens += context;
  }
}
