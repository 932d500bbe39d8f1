/** How fast work arrives: sliding-window counters that notice a jump. */

const PART = 8; // the short window is this part of the long one
const SIGMAS_SQ = 9; // a jump is a difference of three standard deviations of a Poisson count
const MOST = 2 ** 20; // arrivals in a window; squares of such numbers stay exact in a double

/**
 * Arrivals over about the last `windowNs`, with two counters instead of a history.
 *
 * Time is cut into windows. The estimate is the current window's count plus the part of
 * the previous one that the sliding window still covers, so it follows a change within one
 * window and is 0 two windows after the last arrival.
 */
export class SlidingCount {
  #windowNs;
  #index = 0;
  #current = 0;
  #previous = 0;

  /** @param {number} windowNs */
  constructor(windowNs) {
    this.#windowNs = windowNs;
  }

  /**
   * `count` sequences arrived at `nowNs`.
   *
   * @param {number} count
   * @param {number} nowNs
   */
  add(count, nowNs) {
    this.#roll(nowNs);
    this.#current = Math.min(this.#current + count, MOST);
  }

  /**
   * Sequences that arrived in the window that ends at `nowNs`.
   *
   * @param {number} nowNs
   * @returns {number}
   */
  count(nowNs) {
    this.#roll(nowNs);
    const left = this.#windowNs - (nowNs - this.#index * this.#windowNs);
    return this.#current + Math.trunc(this.#previous * (left / this.#windowNs));
  }

  /** @param {number} nowNs */
  #roll(nowNs) {
    const index = Math.floor(nowNs / this.#windowNs);
    if (index > this.#index) {
      this.#previous = index === this.#index + 1 ? this.#current : 0;
      this.#current = 0;
      this.#index = index;
    }
  }
}

/**
 * The rate of arrivals: steady over a window, yet quick to follow a jump.
 *
 * A window of an eighth of the length runs beside the long one. When the arrivals in it are
 * more than three standard deviations from what the long one leads to expect, the load has
 * changed and the short one is right. What comes together, such as a list of many texts, is
 * one arrival for that decision; what is counted then is sequences.
 */
export class ArrivalRate {
  #windowNs;
  #long;
  #short;
  #longTimes;
  #shortTimes;
  #lastNs = -1;

  /** @param {number} windowNs */
  constructor(windowNs) {
    const shortNs = Math.max(Math.floor(windowNs / PART), 1);
    this.#windowNs = windowNs;
    this.#long = new SlidingCount(windowNs);
    this.#short = new SlidingCount(shortNs);
    this.#longTimes = new SlidingCount(windowNs);
    this.#shortTimes = new SlidingCount(shortNs);
  }

  /**
   * A request of `count` sequences arrived at `nowNs`.
   *
   * @param {number} count
   * @param {number} nowNs
   */
  add(count, nowNs) {
    this.#long.add(count, nowNs);
    this.#short.add(count, nowNs);
    if (nowNs !== this.#lastNs) {
      this.#lastNs = nowNs;
      this.#longTimes.add(1, nowNs);
      this.#shortTimes.add(1, nowNs);
    }
  }

  /**
   * Sequences per window at the present rate.
   *
   * @param {number} nowNs
   * @returns {number}
   */
  inWindow(nowNs) {
    const slow = this.#longTimes.count(nowNs);
    const miss = this.#shortTimes.count(nowNs) * PART - slow;
    // The short count's variance is slow / PART, that of PART times it PART * slow
    if (miss * miss > SIGMAS_SQ * PART * Math.max(slow, PART)) {
      return this.#short.count(nowNs) * PART;
    }
    return this.#long.count(nowNs);
  }

  /**
   * Whole sequences to expect within the next `horizonNs`.
   *
   * @param {number} horizonNs
   * @param {number} nowNs
   * @returns {number}
   */
  expected(horizonNs, nowNs) {
    return Math.trunc(this.inWindow(nowNs) * (Math.max(horizonNs, 0) / this.#windowNs));
  }
}
