/** How fast work arrives: a sliding-window counter. */

/**
 * Arrivals over about the last `windowNs`, with two counters instead of a history.
 *
 * Time is cut into windows. The estimate is the current window's count plus the part of
 * the previous one that the sliding window still covers, so it follows a change within one
 * window and is 0 two windows after the last arrival.
 */
export class ArrivalRate {
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
    this.#current += count;
  }

  /**
   * Sequences that arrived in the window that ends at `nowNs`.
   *
   * @param {number} nowNs
   * @returns {number}
   */
  inWindow(nowNs) {
    this.#roll(nowNs);
    const left = this.#windowNs - (nowNs - this.#index * this.#windowNs);
    return this.#current + Math.trunc(this.#previous * (left / this.#windowNs));
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
