/** Runs steps on the calling thread: for hosts without workers. */
import { Aborted, DeviceLost } from "../errors.js";

/** @typedef {import("../step/workspace.js").Workspace} Workspace */
/** @typedef {import("../wasm/instance.js").Runtime} Runtime */
/** @typedef {import("./runner.js").Step} Step */
/** @typedef {import("./runner.js").StepResult} StepResult */
/** @typedef {import("./runner.js").StepRunner} StepRunner */

/** @implements {StepRunner} */
export class InlinePool {
  threads = 1;
  concurrency = 1;
  /** @type {DeviceLost | null} */
  lost = null;
  #runtime;
  #workspace;
  #nextTask;
  #closed = false;
  /** The end of the step before. @type {Promise<unknown>} */
  #tail = Promise.resolve();

  /**
   * @param {Runtime} runtime
   * @param {Workspace} workspace its first
   * @param {(() => Promise<void>) | null} nextTask lets the host's other events in before a
   *   step stops them: requests that have arrived are then batched together in the next one
   */
  constructor(runtime, workspace, nextTask) {
    this.#runtime = runtime;
    this.#workspace = workspace;
    this.#nextTask = nextTask;
  }

  /**
   * @param {Step} step
   * @returns {Promise<StepResult>}
   */
  run(step) {
    if (this.#closed) return Promise.reject(new Aborted("the model is closed; load it again"));
    const result = this.#tail.then(this.#nextTask).then(() => this.#execute(step));
    this.#tail = result.catch(() => {});
    return result;
  }

  async close() {
    this.#closed = true;
    await this.#tail;
  }

  /** @param {Step} step */
  #execute(step) {
    if (this.lost) throw this.lost;
    this.#workspace.write(step);
    const start = performance.now();
    try {
      this.#runtime.exports.v_run(0);
    } catch (cause) {
      this.lost = new DeviceLost(`the wasm runtime trapped (${cause})`, { cause });
      throw this.lost;
    }
    return this.#workspace.read((performance.now() - start) * 1e6);
  }
}
