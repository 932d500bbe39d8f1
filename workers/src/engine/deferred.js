/** A promise that somebody else settles. */

/** @template T */
export class Deferred {
  /** It was resolved or rejected. */
  settled = false;
  /** @type {(value: T) => void} */
  #resolve = () => {};
  /** @type {(error: unknown) => void} */
  #reject = () => {};

  constructor() {
    /** @type {Promise<T>} */
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // An owner that stopped listening is not an error
    this.promise.catch(() => {});
  }

  /** @param {T} value */
  resolve(value) {
    this.settled = true;
    this.#resolve(value);
  }

  /** @param {unknown} error */
  reject(error) {
    this.settled = true;
    this.#reject(error);
  }
}
