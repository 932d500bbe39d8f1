/** A binary heap of things with a key; equal keys leave in the order of a sequence number. */

/**
 * @template T
 * @typedef {{key: number, seq: number, value: T}} Entry
 */

/**
 * @template T
 * @param {Entry<T>} a
 * @param {Entry<T>} b
 */
const before = (a, b) => a.key < b.key || (a.key === b.key && a.seq < b.seq);

/** @template T */
export class Heap {
  /** @type {Entry<T>[]} */
  #entries = [];

  get size() {
    return this.#entries.length;
  }

  /** @returns {T[]} in no order */
  values() {
    return this.#entries.map((entry) => entry.value);
  }

  /** @returns {Entry<T> | undefined} the least entry */
  peek() {
    return this.#entries[0];
  }

  /**
   * @param {number} key
   * @param {number} seq
   * @param {T} value
   */
  push(key, seq, value) {
    const entries = this.#entries;
    const entry = { key, seq, value };
    let at = entries.length;
    entries.push(entry);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(entry, entries[parent])) break;
      entries[at] = entries[parent];
      at = parent;
    }
    entries[at] = entry;
  }

  /** @returns {Entry<T> | undefined} the least entry, which leaves */
  pop() {
    const least = this.#entries[0];
    const last = this.#entries.pop();
    if (last !== undefined && this.#entries.length > 0) this.#sink(0, last);
    return least;
  }

  /**
   * Keep only some values.
   *
   * @param {(value: T) => boolean} wanted
   */
  filter(wanted) {
    this.#entries = this.#entries.filter((entry) => wanted(entry.value));
    for (let at = (this.#entries.length >> 1) - 1; at >= 0; at--) this.#sink(at, this.#entries[at]);
  }

  /**
   * Put `entry` at `at` or below, where it belongs.
   *
   * @param {number} at
   * @param {Entry<T>} entry
   */
  #sink(at, entry) {
    const entries = this.#entries;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= entries.length) break;
      if (child + 1 < entries.length && before(entries[child + 1], entries[child])) child += 1;
      if (!before(entries[child], entry)) break;
      entries[at] = entries[child];
      at = child;
    }
    entries[at] = entry;
  }
}
