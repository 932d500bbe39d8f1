/**
 * The waiting requests of one lane: two classes, their limits, and their alarms.
 *
 * Everything is O(log n): heaps with lazy deletion (an entry whose request ended or changed
 * class is dropped when it surfaces, and the heap is rebuilt when such entries outnumber the
 * live ones).
 */
import { Heap } from "./heap.js";
import { TenantOrder } from "./tenants.js";
import { MAX_NS, NS_PER_MS, TrafficClass } from "./types.js";

/** @typedef {import("./config.js").QueuePolicy} QueuePolicy */
/** @typedef {import("./config.js").SchedulerConfig} SchedulerConfig */
/** @typedef {import("./request.js").Request} Request */
/** @typedef {import("./types.js").Traffic} Traffic */

/**
 * Requests of one class with waiting items, by tenant and then by (key, arrival). The key is
 * the rank in the latency class, the arrival in the throughput class.
 */
export class ClassQueue {
  /** Totals over the waiting items. */
  numSeqs = 0;
  numTokens = 0;
  sumLenSq = 0;
  /** Steps since this class last had a sequence in one, while it had work. */
  skips = 0;
  /** When that was, or when work arrived in an empty queue. */
  servedNs = 0;

  #live = 0;

  /**
   * @param {Traffic} traffic
   * @param {QueuePolicy} policy its limits
   * @param {number} leadNs
   */
  constructor(traffic, policy, leadNs) {
    this.traffic = traffic;
    this.policy = policy;
    /** Whose turn it is. */
    this.tenants = new TenantOrder(traffic, leadNs);
  }

  /** Requests with waiting items. */
  get size() {
    return this.#live;
  }

  /**
   * Queue the waiting items of a request that has none queued.
   *
   * @param {Request} request
   * @param {number} nowNs
   */
  push(request, nowNs) {
    if (this.#live === 0) {
      this.skips = 0;
      this.servedNs = nowNs;
    }
    this.#count(request, 1);
    this.#live += 1;
    request.queued = true;
    const latency = this.traffic === TrafficClass.LATENCY;
    this.tenants.push(latency ? request.rankNs : request.arrivalNs, request);
  }

  /**
   * The request whose turn it is.
   *
   * @returns {Request | null}
   */
  head() {
    return this.tenants.head();
  }

  /** The lowest rank of all that wait in the latency class, or `MAX_NS`; O(tenants). */
  firstRankNs() {
    let rankNs = MAX_NS;
    for (const tenant of this.tenants.active.values()) {
      rankNs = Math.min(rankNs, tenant.head().key);
    }
    return rankNs;
  }

  /**
   * Take the next item of `request`, which is the head.
   *
   * @param {Request} request
   * @param {number} chargeNs device time that its tenant is charged for it
   * @returns {number}
   */
  take(request, chargeNs) {
    const item = request.take();
    const n = request.numTokens[item];
    this.numSeqs -= 1;
    this.numTokens -= n;
    this.sumLenSq -= n * n;
    const tenant = this.tenants.of(request);
    tenant.servedNs += chargeNs;
    if (request.numWaiting === 0) {
      request.queued = false;
      this.#live -= 1;
      tenant.pop();
      this.tenants.removed(tenant);
    }
    return item;
  }

  /**
   * Items of a living request that left in a step wait again, ahead of its others.
   *
   * @param {Request} request
   * @param {readonly number[]} items
   * @param {number} nowNs
   */
  restore(request, items, nowNs) {
    if (!request.queued) {
      request.giveBack(items);
      this.push(request, nowNs);
      return;
    }
    this.#count(request, -1);
    request.giveBack(items);
    this.#count(request, 1);
  }

  /**
   * Forget the waiting items of a queued request.
   *
   * @param {Request} request
   */
  remove(request) {
    const tenant = this.tenants.of(request);
    this.#count(request, -1);
    this.#live -= 1;
    request.queued = false;
    this.tenants.removed(tenant);
    tenant.shrink();
  }

  /** @param {number} numSeqs */
  hasRoom(numSeqs) {
    return this.numSeqs + numSeqs <= this.policy.maxQueueSize;
  }

  /**
   * @param {Request} request
   * @param {1 | -1} sign
   */
  #count(request, sign) {
    this.numSeqs += sign * request.numWaiting;
    this.numTokens += sign * request.waitingTokens;
    this.sumLenSq += sign * request.waitingSq;
  }
}

/** Both classes of one lane, and the times at which a request needs another look. */
export class RequestQueue {
  /** @type {Heap<Request>} */
  #alarms = new Heap();
  #numAlarmed = 0;

  /** @param {SchedulerConfig} config */
  constructor(config) {
    const leadNs = config.tenantLeadMs * NS_PER_MS;
    this.latency = new ClassQueue(TrafficClass.LATENCY, config.latency, leadNs);
    this.throughput = new ClassQueue(TrafficClass.THROUGHPUT, config.throughput, leadNs);
  }

  get numSeqs() {
    return this.latency.numSeqs + this.throughput.numSeqs;
  }

  get numTokens() {
    return this.latency.numTokens + this.throughput.numTokens;
  }

  get sumLenSq() {
    return this.latency.sumLenSq + this.throughput.sumLenSq;
  }

  /**
   * @param {Traffic} traffic
   * @returns {ClassQueue}
   */
  of(traffic) {
    return traffic === TrafficClass.LATENCY ? this.latency : this.throughput;
  }

  /**
   * @param {Request} request
   * @param {number} nowNs
   */
  push(request, nowNs) {
    this.of(request.traffic).push(request, nowNs);
  }

  /**
   * Forget a request that has ended, wherever it is.
   *
   * @param {Request} request
   */
  remove(request) {
    if (request.queued) this.of(request.traffic).remove(request);
    if (request.alarmed) {
      request.alarmed = false;
      this.#numAlarmed -= 1;
      if (this.#alarms.size > 64 && this.#alarms.size > 2 * this.#numAlarmed) {
        this.#alarms.filter((other) => other.alarmed);
      }
    }
  }

  /**
   * Items of a step that did not run wait again, ahead of the request's others.
   *
   * @param {Request} request
   * @param {readonly number[]} items
   * @param {number} nowNs
   */
  giveBack(request, items, nowNs) {
    this.of(request.traffic).restore(request, items, nowNs);
  }

  /**
   * Move a queued latency request to the throughput class.
   *
   * @param {Request} request
   * @param {number} nowNs
   */
  demote(request, nowNs) {
    this.latency.remove(request);
    request.traffic = TrafficClass.THROUGHPUT;
    this.throughput.push(request, nowNs);
  }

  /**
   * When `request` has waited too long for its first step, or -1.
   *
   * @param {Request} request
   */
  timeoutNs(request) {
    const { timeoutMs } = this.of(request.traffic).policy;
    if (request.started || timeoutMs === 0) return -1;
    return request.arrivalNs + timeoutMs * NS_PER_MS;
  }

  /**
   * Look at a living request without an alarm again at `atNs`.
   *
   * @param {Request} request
   * @param {number} atNs
   */
  setAlarm(request, atNs) {
    request.alarmed = true;
    this.#numAlarmed += 1;
    this.#alarms.push(atNs, request.seq, request);
  }

  /** When the next alarm rings, or -1. */
  nextAlarm() {
    const alarms = this.#alarms;
    for (let entry = alarms.peek(); entry !== undefined; entry = alarms.peek()) {
      if (entry.value.alarmed) return entry.key;
      alarms.pop();
    }
    return -1;
  }

  /**
   * A living request whose alarm has rung by `nowNs`; it then has none.
   *
   * @param {number} nowNs
   * @returns {Request | null}
   */
  popAlarm(nowNs) {
    const atNs = this.nextAlarm();
    if (atNs < 0 || atNs > nowNs) return null;
    const request = /** @type {{value: Request}} */ (this.#alarms.pop()).value;
    request.alarmed = false;
    this.#numAlarmed -= 1;
    return request;
  }
}
