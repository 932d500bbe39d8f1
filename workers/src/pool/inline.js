/** Runs steps on the calling thread: the pool of hosts without shared memory. */
import { Aborted, DeviceLost } from "../errors.js";

/** @typedef {import("../wasm/instance.js").Runtime} Runtime */

/**
 * What runs steps: `InlinePool` or `ThreadPool`.
 *
 * @typedef {object} StepRunner
 * @property {number} threads most threads in a step
 * @property {<R>(threads: number, write: (ws: number) => void,
 *   read: (ws: number, deviceNs: number) => R) => Promise<R>} run
 *   fill a workspace, run it on up to `threads` threads, and read the result
 * @property {() => Promise<void>} close let steps in flight end, refuse later ones
 */

/** @implements {StepRunner} */
export class InlinePool {
  threads = 1;
  #runtime;
  /** @type {Error | null} */
  #refusal = null;

  /** @param {Runtime} runtime */
  constructor(runtime) {
    this.#runtime = runtime;
  }

  /**
   * @template R
   * @param {number} _threads
   * @param {(ws: number) => void} write
   * @param {(ws: number, deviceNs: number) => R} read
   * @returns {Promise<R>}
   */
  async run(_threads, write, read) {
    if (this.#refusal) throw this.#refusal;
    write(0);
    const start = performance.now();
    try {
      this.#runtime.exports.v_run(0);
    } catch (cause) {
      this.#refusal = new DeviceLost(`the wasm runtime trapped (${cause}); load the model again`, {
        cause,
      });
      throw this.#refusal;
    }
    return read(0, (performance.now() - start) * 1e6);
  }

  async close() {
    this.#refusal ??= new Aborted("the model is closed; load it again");
  }
}
