/** Who may begin, or begin again, on a decoder lane: seats, memory and turns. */
import { Generation, Sample, compareSamples } from "./generation.js";
import { BoundBy, MAX_NS, NS_PER_MS, TrafficClass } from "./types.js";

/** @typedef {import("./admission.js").Admission} Admission */
/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./queue.js").RequestQueue} RequestQueue */
/** @typedef {import("./residents.js").Residents} Residents */
/** @typedef {import("./types.js").Bound} Bound */
/** @typedef {import("./types.js").Traffic} Traffic */

const PATIENCE = 4; // bulk work this many times overdue is overtaken by nobody
const MOST_CHARGE_NS = 1e12; // keeps accounts exact whatever a profile claims
const HEADROOM = 2; // blocks a preempted sequence must find free beyond its own; doubles

const LATENCY_FIRST = [TrafficClass.LATENCY, TrafficClass.THROUGHPUT];
const BULK_FIRST = [TrafficClass.THROUGHPUT, TrafficClass.LATENCY];

/**
 * Admission by memory: a prompt enters when all of it fits, and every running stream can
 * still grow by a block.
 *
 * The order: preempted samples of the latency class, its queue, then the same of the
 * throughput class, which goes first when it is overdue. Nobody is skipped within a class,
 * so nothing starves behind smaller requests.
 */
export class Entrance {
  /** Whom the last obstacle kept out, and the limit it met. */
  blocked = -1;
  limit = 0;
  /** Bulk work was let into the present step. */
  bulkEntered = false;
  /** What a tenant is charged for a token of its prompt. */
  tokenNs = 0;

  #admission;
  #residents;
  #kv;
  #queue;
  #maxWaitNs;
  #maxSkips;
  #maxPreemptions;

  /**
   * @param {SchedulerConfig} config
   * @param {Admission} admission
   * @param {Residents} residents
   * @param {RequestQueue} queue
   */
  constructor(config, admission, residents, queue) {
    this.#admission = admission;
    this.#residents = residents;
    this.#kv = residents.kv;
    this.#queue = queue;
    this.#maxWaitNs = config.throughputMaxWaitMs * NS_PER_MS;
    this.#maxSkips = config.throughputMaxSkips;
    this.#maxPreemptions = config.maxPreemptions;
  }

  /** Somebody wants to begin. */
  get waiting() {
    return this.#residents.preempted.length > 0 || this.#queue.numSeqs > 0;
  }

  /** The request that is first in line, or -1. */
  firstId() {
    for (const traffic of LATENCY_FIRST) {
      const comer = this.#next(traffic);
      if (comer !== null) return requestOf(comer).requestId;
    }
    return -1;
  }

  /**
   * Bulk work has waited for its turn `times` as long as it may.
   *
   * @param {number} nowNs
   * @param {number} [times]
   */
  overdue(nowNs, times = 1) {
    const bulk = this.#queue.throughput;
    if (this.#next(TrafficClass.THROUGHPUT) === null) return false;
    const waitedNs = nowNs - bulk.servedNs;
    return waitedNs >= times * this.#maxWaitNs || bulk.skips >= times * this.#maxSkips;
  }

  /**
   * Let the first in line begin, if it may.
   *
   * @param {number} longest most tokens that it may have to compute
   * @param {boolean} busy the streams alone take all the time that a step may take
   * @param {number} nowNs
   * @returns {Bound} ALL if it was let in or nobody waits; otherwise what keeps it out
   */
  admit(longest, busy, nowNs) {
    /** @type {Bound} */
    let bound = BoundBy.ALL;
    const overdue = this.overdue(nowNs);
    for (const traffic of overdue ? BULK_FIRST : LATENCY_FIRST) {
      const comer = this.#next(traffic);
      if (comer === null) continue;
      const bulk = traffic === TrafficClass.THROUGHPUT;
      if (bulk && busy && !overdue) {
        this.blocked = requestOf(comer).requestId;
        return BoundBy.TPOT;
      }
      bound = this.#obstacle(comer, longest);
      if (bound === BoundBy.ALL) {
        this.#enter(comer);
        this.bulkEntered ||= bulk;
        return bound;
      }
      if (!(bulk && overdue) || this.overdue(nowNs, PATIENCE)) return bound;
    }
    return bound;
  }

  /**
   * Preempt bulk samples if that lets the first latency request in. They were never promised
   * their place, and latency work must not wait until they have said all they have to say.
   *
   * @returns {boolean} whether it did
   */
  makeRoom() {
    const comer = this.#next(TrafficClass.LATENCY);
    const residents = this.#residents;
    if (comer === null || this.#obstacle(comer, MAX_NS) === BoundBy.ALL) return false;
    const victims = residents.running.filter(
      (s) =>
        s.request.traffic === TrafficClass.THROUGHPUT &&
        s.preemptions < this.#maxPreemptions &&
        s.suspect === 0,
    );
    victims.sort((a, b) => a.kv.computed - b.kv.computed || compareSamples(a, b));
    let seats = residents.seats + seatsOf(comer) - this.#admission.maxSeqs;
    let blocks = this.#blocks(comer) - this.#kv.freeBlocks;
    let count = 0;
    while (count < victims.length && (seats > 0 || blocks > 0)) {
      seats -= victims[count].seats;
      blocks -= victims[count].kv.blocks.length;
      count += 1;
    }
    if (seats > 0 || blocks > 0) return false;
    for (const sample of victims.slice(0, count)) residents.preempt(sample);
    return count > 0;
  }

  /**
   * A step was filled: count for the bulk class whether it had its turn.
   *
   * @param {number} nowNs
   */
  note(nowNs) {
    const bulk = this.#queue.throughput;
    if (this.bulkEntered) {
      bulk.skips = 0;
      bulk.servedNs = nowNs;
    } else if (this.#next(TrafficClass.THROUGHPUT) !== null) {
      bulk.skips += 1;
    }
  }

  /**
   * @param {Traffic} traffic
   * @returns {Sample | Generation | null}
   */
  #next(traffic) {
    for (const sample of this.#residents.preempted) {
      if (sample.request.traffic === traffic) return sample;
    }
    return /** @type {Generation | null} */ (this.#queue.of(traffic).head());
  }

  /**
   * @param {Sample | Generation} comer
   * @param {number} longest
   * @returns {Bound}
   */
  #obstacle(comer, longest) {
    const residents = this.#residents;
    const kv = this.#kv;
    this.blocked = requestOf(comer).requestId;
    this.limit = this.#admission.maxSeqs;
    if (residents.seats + seatsOf(comer) > this.limit) return BoundBy.SEQS;
    this.limit = kv.freeBlocks;
    if (residents.running.length > 0 && this.#blocks(comer) > this.limit) return BoundBy.MEMORY;
    const { tokens, salt } = tokensOf(comer);
    if (tokens.length > longest && tokens.length - kv.cost(tokens, 1, salt).cached > longest) {
      return BoundBy.TPOT;
    }
    return BoundBy.ALL;
  }

  /**
   * Free blocks that must be there for it to begin among others.
   *
   * @param {Sample | Generation} comer
   * @returns {number}
   */
  #blocks(comer) {
    const { running } = this.#residents;
    const { tokens, salt } = tokensOf(comer);
    const need = this.#kv.cost(tokens, tokens.length, salt).blocks + running.length;
    if (comer instanceof Generation) return need + seatsOf(comer) - 1;
    // The more often it had to go, the more room it needs to see before it tries again; at
    // last so much that nobody's growth can drive it out
    const growth = this.#growth(comer);
    if (comer.preemptions >= this.#maxPreemptions) {
      return running.reduce((sum, s) => sum + this.#growth(s), need + growth);
    }
    return need + Math.min(growth, HEADROOM * 2 ** comer.preemptions);
  }

  /**
   * Blocks that it may still come to need.
   *
   * @param {Sample} sample
   */
  #growth(sample) {
    return Math.ceil(sample.remaining / this.#kv.blockSize);
  }

  /** @param {Sample | Generation} comer */
  #enter(comer) {
    if (comer instanceof Sample) {
      this.#residents.resume(comer);
      return;
    }
    const queue = this.#queue.of(comer.traffic);
    while (comer.numWaiting > 0) {
      const n = comer.numTokens[comer.nextItem()];
      queue.take(comer, Math.trunc(Math.min(n * this.tokenNs, MOST_CHARGE_NS)));
    }
    this.#residents.admit(comer);
  }
}

/** @param {Sample | Generation} comer */
function requestOf(comer) {
  return comer instanceof Sample ? comer.request : comer;
}

/** @param {Sample | Generation} comer */
function seatsOf(comer) {
  return comer instanceof Sample ? comer.seats : comer.numTokens.length;
}

/**
 * @param {Sample | Generation} comer
 * @returns {{tokens: readonly number[], salt: string}}
 */
function tokensOf(comer) {
  if (comer instanceof Sample) return comer.kv;
  return { tokens: comer.prompt, salt: comer.salt };
}
