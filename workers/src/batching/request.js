/** A request inside the core, from arrival to its one end. */

/** @typedef {import("./types.js").Traffic} Traffic */

/**
 * The items of one `RequestArrived` and how far they have come. An item is *waiting* (not
 * yet in a step, or given back by one), *in flight* or *done*. Waiting items leave in
 * ascending order, given-back ones first.
 */
export class Request {
  /** Index of its lane. */
  lane = 0;
  /** It has an entry in the heap of alarms. */
  alarmed = false;
  /** False once its `RequestFinished` is out. */
  alive = true;
  /** It has an entry in the heap of its class. */
  queued = false;
  /** At least one item has been in a step. */
  started = false;
  /** Items whose result was delivered. */
  numDone = 0;

  #cursor = 0;
  /** @type {number[]} */
  #returned = [];

  /**
   * @param {number} requestId
   * @param {readonly number[]} numTokens
   * @param {Traffic} traffic
   * @param {number} arrivalNs
   * @param {number} deadlineNs when its owner stops caring, -1 = never (sheds)
   * @param {number} seq arrival order within the core; breaks every tie
   * @param {string} tenant whom its device time is charged to
   */
  constructor(requestId, numTokens, traffic, arrivalNs, deadlineNs, seq, tenant) {
    this.requestId = requestId;
    this.numTokens = numTokens;
    this.traffic = traffic;
    this.arrivalNs = arrivalNs;
    this.deadlineNs = deadlineNs;
    /** When the scheduler wants it finished (never sheds). */
    this.dueNs = arrivalNs;
    /**
     * Its place in the latency class: its due time, and with a deadline that the work ahead
     * puts in doubt the time that it needs alone beyond it. Earliest deadline first is best as
     * long as all can be kept; when not, the same device time keeps more of the short ones.
     */
    this.rankNs = arrivalNs;
    this.seq = seq;
    this.tenant = tenant;
    /** Totals over the waiting items: their number, tokens, and sum of squared lengths. */
    this.numWaiting = numTokens.length;
    this.waitingTokens = 0;
    this.waitingSq = 0;
    for (const n of numTokens) {
      this.waitingTokens += n;
      this.waitingSq += n * n;
    }
  }

  get complete() {
    return this.numDone === this.numTokens.length;
  }

  /** The item that `take` hands out next; there is one while `numWaiting` > 0. */
  nextItem() {
    return this.#returned.length ? this.#returned[0] : this.#cursor;
  }

  /** Move the next waiting item into flight. */
  take() {
    const item = this.#returned.shift() ?? this.#cursor++;
    const n = this.numTokens[item];
    this.numWaiting -= 1;
    this.waitingTokens -= n;
    this.waitingSq -= n * n;
    this.started = true;
    return item;
  }

  /**
   * Items in flight wait again, ahead of the others.
   *
   * @param {readonly number[]} items
   */
  giveBack(items) {
    for (const item of items) {
      const n = this.numTokens[item];
      this.waitingTokens += n;
      this.waitingSq += n * n;
    }
    this.numWaiting += items.length;
    this.#returned.push(...items);
    this.#returned.sort((a, b) => a - b);
  }
}
