/** A set of small integers that is emptied in constant time. */
export class StampSet {
  #stamps;
  #now = 1;

  /** @param {number} size integers 0 .. size - 1 */
  constructor(size) {
    this.#stamps = new Uint32Array(size);
  }

  clear() {
    this.#now += 1;
    if (this.#now > 0xffffffff) {
      this.#stamps.fill(0);
      this.#now = 1;
    }
  }

  /** @param {number} i */
  has(i) {
    return this.#stamps[i] === this.#now;
  }

  /**
   * @param {number} i
   * @returns {boolean} whether it was not there
   */
  add(i) {
    if (this.#stamps[i] === this.#now) return false;
    this.#stamps[i] = this.#now;
    return true;
  }
}
