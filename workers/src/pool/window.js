/** Keeps a worker busy without flooding it. */

/** Bytes on their way: enough to keep both sides busy, few enough to hold. */
const WINDOW_BYTES = 1 << 20;

/** Calls that were made and not answered yet, held back while there are too many. */
export class Window {
  #bytes = 0;
  /** @type {{call: Promise<unknown>, bytes: number}[]} */
  #calls = [];

  /**
   * @param {Promise<unknown>} call
   * @param {number} bytes that it carries
   * @returns {Promise<void>} when there is room for another
   */
  async add(call, bytes) {
    call.catch(() => {}); // seen when its turn comes
    this.#calls.push({ call, bytes });
    this.#bytes += bytes;
    while (this.#bytes > WINDOW_BYTES) await this.#oldest();
  }

  /** @returns {Promise<void>} when all were answered */
  async settle() {
    while (this.#calls.length > 0) await this.#oldest();
  }

  async #oldest() {
    const oldest = /** @type {{call: Promise<unknown>, bytes: number}} */ (this.#calls.shift());
    await oldest.call;
    this.#bytes -= oldest.bytes;
  }
}
